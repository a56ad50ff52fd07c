"""A few runs of token chains have a server's pool and prompts, and what breaks there shows."""

import pytest

from poolproof.contract.commands import CacheChain, CachePartial
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.harness.random_driver import LARGE_EVERY, PoolCampaign, plan_of
from poolproof.impl import block_pool
from poolproof.impl.cached_keys import CachedKeys
from poolproof.targets.load import load_target

LARGE = [LARGE_EVERY * (place + 1) - 1 for place in range(6)]


def campaign(target="impl"):
    loaded = load_target(target)
    return PoolCampaign(
        loaded.name,
        loaded.make_chained,
        loaded.profile,
        chain_block_size=loaded.block_size,
        hash_block_size=loaded.hash_block_size,
    )


def test_the_other_runs_are_small():
    sizes = [plan_of(campaign(), n).num_blocks for n in range(LARGE_EVERY) if n not in LARGE]
    assert max(sizes) <= 13


def test_large_runs_reach_prompts_of_thousands_of_tokens_and_blocks_beyond_a_thousand():
    keyed, tokens = set(), set()

    def hear(command):
        if isinstance(command, CachePartial):
            keyed.add(command.block_id)
            tokens.add(command.num_tokens)
        elif isinstance(command, CacheChain):
            keyed.update(command.block_ids)

    driven = campaign()
    extents = [driven.run(number, hear).extent for number in LARGE]
    assert max(extent.get("tokens in a prompt")[1] for extent in extents) > 4_096
    assert max(extent.get("blocks")[1] for extent in extents) == 4_096
    assert max(keyed) > 3_000
    assert max(tokens) > 2_000


class ForgetsBeyond(CachedKeys):
    """Keeps in few bits how many tokens a part of a block covers."""

    bound = 100

    def add_partial(self, block_id, key, num_tokens):
        covered = self.partial_tokens.get(block_id)
        if covered is not None:
            self.partial_tokens[block_id] = covered % self.bound
        super().add_partial(block_id, key, num_tokens)


@pytest.mark.deep
@pytest.mark.parametrize("bound", [100, 1000])
def test_a_length_that_is_cut_shows_and_its_trace_becomes_short(monkeypatch, bound):
    monkeypatch.setattr(ForgetsBeyond, "bound", bound)
    monkeypatch.setattr(block_pool, "CachedKeys", ForgetsBeyond)
    driven = campaign()
    found = next(trace for number in LARGE if (trace := driven.run(number).trace) is not None)
    assert found.violation.invariant == "IDX"
    small = minimise(found, lambda trace, tried: run_candidate(trace, tried, driven.make))
    assert len(small.commands) <= 4
    assert small.num_blocks <= 2
    assert len(small.commands[-1].chain.tokens) <= bound + 8


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("target", "runs"), [("impl", 4), ("impl[null_block=0]", 2), ("reference", 1)]
)
def test_right_pools_hold(target, runs):
    assert [campaign(target).run(number).trace for number in LARGE[:runs]] == [None] * runs


@pytest.mark.deep
@pytest.mark.parametrize("target", ["impl", "impl[null_block=0,misuse=ignores]"])
def test_right_pools_hold_in_all_large_runs_of_standard(target):
    driven = campaign(target)
    for number in range(LARGE_EVERY - 1, 5_000, LARGE_EVERY):
        assert driven.run(number).trace is None, number


def test_a_block_that_was_given_back_is_no_longer_the_last_of_a_prompt():
    # Here the last block of a prompt is freed, and the next part of it would have been misuse.
    assert campaign().run(3_071).trace is None
