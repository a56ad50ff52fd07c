"""Campaigns are deterministic, and whatever a target does ends in a trace."""

from dataclasses import replace

import pytest

from poolproof.contract.commands import Allocate
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.harness.pool_workload import PoolWorkload
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign, plan_of
from poolproof.harness.replay import replay
from poolproof.impl.block_pool import BlockPool
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue
from poolproof.targets.impl_pool import ChainedBlockPool


def campaign_of(cls=BlockPool, **rows):
    profile = Profile(**rows)

    def make(num_blocks, caching):
        return cls(num_blocks, enable_caching=caching, null_block=profile.null_block)

    return PoolCampaign("mine", make, profile)


class LosesEveryThird(BlockPool):
    def free(self, block_ids):
        super().free(block_ids)
        if len(block_ids) == 3:
            self._queue.length -= 1


def test_runs_are_planned_by_seed_and_number():
    plans = [plan_of(campaign_of(), number) for number in range(200)]
    assert plans == [plan_of(campaign_of(), number) for number in range(200)]
    assert {plan.num_blocks for plan in plans} == set(range(2, 13))
    assert {plan.enable_caching for plan in plans} == {True, False}
    assert {plan.num_hashes for plan in plans} == {2, 3, 4}
    assert any(plan.num_steps >= 1000 for plan in plans)


def test_the_null_block_exists_in_every_pool():
    plans = [plan_of(campaign_of(null_block=7), number) for number in range(100)]
    assert min(plan.num_blocks for plan in plans) == 8
    plans = [plan_of(campaign_of(null_block=0), number) for number in range(100)]
    assert {plan.num_blocks for plan in plans} == set(range(3, 14))
    assert campaign_of(null_block=7).run(0).trace is None


def test_the_same_number_gives_the_same_run():
    heard, again = [], []
    first = campaign_of().run(5, heard.append)
    second = campaign_of().run(5, again.append)
    assert heard == again
    assert first.num_steps == second.num_steps == len(heard)
    assert first.facts == second.facts
    campaign_of().run(6, again.append)
    assert again[len(heard) :] != heard


def test_a_violation_comes_with_a_trace_that_replays():
    campaign = campaign_of(LosesEveryThird)
    result = next(r for r in map(campaign.run, range(100)) if r.trace)
    trace = result.trace
    assert trace.violation.command_index == len(trace.commands) - 1
    assert (trace.target, trace.level, trace.options["block_size"]) == ("mine", "pool", 1)
    assert replay(trace, campaign.make).violation == trace.violation


@pytest.mark.parametrize("error", [RuntimeError("torn"), SystemExit(1)])
def test_a_target_that_cannot_be_built_is_a_violation(error):
    def make(num_blocks, caching):
        raise error

    for campaign in (PoolCampaign("mine", make, Profile()), QueueCampaign("mine", make)):
        result = campaign.run(0)
        assert (result.num_steps, result.trace.commands) == (0, ())
        assert result.trace.violation.invariant == "CRASH"


def test_a_target_that_lacks_methods_is_an_error_of_the_run():
    def make(num_blocks, caching):
        return object()

    for campaign in (PoolCampaign("mine", make, Profile()), QueueCampaign("mine", make)):
        with pytest.raises(TargetError):
            campaign.run(0)


def test_a_pool_that_is_broken_from_the_start_is_a_violation():
    class StartsEmpty(BlockPool):
        def num_free(self):
            return 0

    result = campaign_of(StartsEmpty).run(0)
    assert (result.num_steps, result.trace.commands) == (0, ())
    assert result.trace.violation.invariant == "OWN"


def test_references_that_a_cache_call_moved_are_followed():
    class Merges(BlockPool):
        def cache(self, block_ids, hashes):
            answer = []
            for block, key in zip(block_ids, hashes, strict=True):
                other = self.lookup(key)
                super().cache([block], [key])
                if other not in (None, block):
                    self.touch([other])
                    self.evict([block])
                    self.free([block])
                answer.append(block if other is None else other)
            return answer

    campaign = campaign_of(Merges, misuse="undefined", recache="forbidden")
    remapped = 0
    for number in range(30):
        result = campaign.run(number)
        assert result.trace is None, result.trace.violation
        remapped += "two blocks came under one hash" in result.facts
    assert remapped


def test_a_queue_campaign_gives_traces_too():
    class Forgets(NativeDictQueue):
        def append(self, block_id):
            pass

    campaign = QueueCampaign("queue", lambda num_blocks, caching: Forgets(num_blocks))
    heard = []
    result = next(r for n in range(50) if (r := campaign.run(n, heard.append)).trace)
    assert result.trace.level == "queue"
    assert replay(result.trace, campaign.make).violation == result.trace.violation
    assert heard[-1] == result.trace.commands[-1]


def test_misuse_is_driven_where_the_profile_defines_it():
    for misuse, expected in (("raises", True), ("undefined", False)):
        campaign = PoolCampaign(
            "mine",
            lambda n, caching, misuse=misuse: BlockPool(n, enable_caching=caching, misuse=misuse),
            Profile(misuse=misuse),
        )
        facts = set().union(*(campaign.run(number).facts for number in range(10)))
        assert ("misuse was tried" in facts) == expected


def test_an_unchecked_campaign_drives_the_same_commands():
    checked, unchecked = [], []
    campaign_of().run(3, checked.append)
    make = campaign_of().make
    PoolCampaign("mine", make, Profile(), checked=False).run(3, unchecked.append)
    assert checked == unchecked
    assert Allocate(0) in checked or len(checked) > 0


def test_the_set_up_of_a_run_is_that_of_its_trace():
    campaign = campaign_of(LosesEveryThird)
    number = next(n for n in range(100) if campaign.run(n).trace)
    trace = campaign.run(number).trace
    assert campaign.setup(number) == trace.with_commands(())


def test_misuse_that_the_target_has_no_verb_for_is_passed_over():
    class NoTouch(BlockPool):
        touch = lookup = evict = reset = None

        def acquire(self, hashes):
            return []

        def cache(self, block_ids, hashes):
            if self.enable_caching:
                self._checks.cache(block_ids, hashes, 0)

    profile = Profile(retention="may-drop")
    campaign = PoolCampaign("mine", lambda n, caching: NoTouch(n, enable_caching=caching), profile)
    facts = set().union(*(campaign.run(number).facts for number in range(10)))
    assert "misuse was tried" in facts


def test_a_target_without_reset_is_driven_to_the_end():
    class NoReset(BlockPool):
        reset = None

    result = campaign_of(NoReset).run(0)
    assert result.trace is None
    assert "everything was freed at the end" in result.facts
    assert "a reset was done" not in result.facts


def test_where_no_misuse_is_to_be_had_the_run_goes_on():
    class Behaves(PoolWorkload):
        def misuse(self):
            return None

    campaign = replace(campaign_of(misuse="raises"), workload=Behaves, make=native)
    assert campaign.run(0).trace is None


def native(num_blocks, caching):
    return NativeDictPool(num_blocks, enable_caching=caching, profile=Profile(misuse="raises"))


class NeedsAnId(BlockPool):
    """Raises where a list is empty, in one of its methods."""

    method = ""

    def _require(self, name, block_ids):
        if name == self.method and not block_ids:
            raise IndexError("list index out of range")

    def touch(self, block_ids):
        self._require("touch", block_ids)
        super().touch(block_ids)

    def free(self, block_ids):
        self._require("free", block_ids)
        super().free(block_ids)

    def cache(self, block_ids, hashes):
        self._require("cache", block_ids)
        super().cache(block_ids, hashes)

    def evict(self, block_ids):
        self._require("evict", block_ids)
        super().evict(block_ids)


@pytest.mark.parametrize("method", ["touch", "free", "cache", "evict"])
def test_a_pool_that_needs_an_id_in_each_list_is_refused(method):
    class Needs(NeedsAnId):
        pass

    Needs.method = method
    traces = [campaign_of(Needs, misuse="undefined").run(number).trace for number in range(40)]
    found = {trace.violation.invariant for trace in traces if trace is not None}
    assert found == {"CRASH"}


def test_calls_with_an_empty_list_leave_the_rest_of_a_run_as_it_is():
    campaign = campaign_of(misuse="undefined")
    for number in range(10):
        heard = []
        campaign.run(number, heard.append)
        drawn = [command for command in heard if getattr(command, "block_ids", (0,)) != ()]
        num_steps = plan_of(campaign, number).num_steps
        assert len(heard) - len(drawn) in (num_steps // 64, num_steps // 64 + 1)


class KeepsPartsOverAReset(ChainedBlockPool):
    """Still takes a block for one that is cached in part after the index was emptied."""

    def reset(self):
        parts = dict(self._cached.partial_tokens)
        done = super().reset()
        if done:
            self._cached.partial_tokens.update(parts)
        return done


@pytest.mark.some(0)
def test_what_a_pool_keeps_over_a_reset_is_found_among_chains():
    def make(num_blocks, caching):
        return KeepsPartsOverAReset(
            num_blocks, enable_caching=caching, block_size=4, hash_block_size=2, keys="partial"
        )

    campaign = PoolCampaign(
        "mine", make, Profile(keys="partial"), chain_block_size=4, hash_block_size=2
    )
    violations = [
        result.trace.violation
        for result in map(campaign.run, range(1, 400, 4))
        if result.trace is not None
    ]
    assert {violation.severity for violation in violations} == {Severity.LOST_HIT}
