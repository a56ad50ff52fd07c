"""Engines at the sizes of servers: what breaks there is found, and nothing right is accused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest

from poolproof.bugs.engine_oddities import KeepsHeadroom
from poolproof.contract.engine_commands import STOP_TOKEN, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import engine_capabilities_of
from poolproof.harness.engine_production import (
    ENGINE_SCRIPTS,
    ONE_BEGINNING,
    QUICK_ENGINE_SIZES,
    WHOLE_POOL,
    EngineProductionCampaign,
    EngineSizes,
    required_engine_script_facts,
)
from poolproof.harness.replay import replay
from poolproof.impl.block_hash import BlockHasher, Salt
from poolproof.impl.engine import Engine
from poolproof.impl.kv_cache_manager import KVCacheBlocks
from poolproof.targets.impl_engine import impl_engine_layouts

SIZE = 4
LAYOUTS = {layout.name: layout for layout in impl_engine_layouts()}
PROFILE = EngineProfile(null_block=0, draft_tokens=2)


def campaign_of(cls: type[Engine]) -> EngineProductionCampaign:
    def make(num_blocks: int, enable_caching: bool) -> Engine:
        return cls(num_blocks, SIZE, enable_caching=enable_caching, draft_tokens=2)

    return EngineProductionCampaign(cls.__name__, make, PROFILE, SIZE)


def failure(cls: type[Engine], script: str) -> Any:
    """The trace of its failure under a script, or None."""
    campaign = campaign_of(cls)
    return campaign.run(campaign.sizes.scripts_for(PROFILE).index(script)).trace


# Bugs with a size at which they begin.


class DeepHasher(BlockHasher):
    """At these depths a key names its own tokens alone."""

    forgets_at = range(20, 10_000)

    def __init__(self) -> None:
        super().__init__(seed=b"deep", block_size=SIZE)
        self.depths: dict[bytes | None, int] = {None: 0}

    def hash_block(self, parent: bytes | None, tokens: Any, extra_keys: Any = ()) -> bytes:
        depth = self.depths[parent] + 1
        kept = None if depth in self.forgets_at else parent
        found = super().hash_block(kept, tokens, extra_keys)
        self.depths[found] = depth
        return found


class DeeperHasher(DeepHasher):
    """One depth, whose block is soon gone where the ends of prompts go first."""

    forgets_at = range(125, 126)


class EndsHasher(BlockHasher):
    """Of a long salt both ends are in the key."""

    def hash_block(self, parent: bytes | None, tokens: Any, extra_keys: Any = ()) -> bytes:
        cut = [
            Salt(key.value[:20] + key.value[-20:]) if isinstance(key, Salt) else key
            for key in extra_keys
        ]
        return super().hash_block(parent, tokens, cut)


class KeysForgetParents(Engine):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._hasher = DeepHasher()


class KeepsFewKeys(Engine):
    """Only so many keys stay: of a prompt that nobody uses the end goes first."""

    most_keys = 270

    def answer(self, tokens: Any, drafts: Any) -> Any:
        outputs = super().answer(tokens, drafts)
        pool = self.manager.block_pool
        keyed = [block for block in pool.free_order() if pool.block_hash(block) is not None]
        pool.evict(keyed[: max(0, len(keyed) - self.most_keys)])
        return outputs


class KeysForgetParentsLate(KeepsFewKeys):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._hasher = DeeperHasher()


class KeysOfEnds(Engine):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._hasher = EndsHasher(seed=b"ends", block_size=SIZE)


class AnswersBySlot(Engine):
    """What was sampled is looked up by the number of a request modulo 128."""

    def answer(self, tokens: Any, drafts: Any) -> Any:
        by_slot = {number % 128: sampled for number, sampled in tokens.items()}
        return super().answer({n: by_slot[n % 128] for n in tokens}, drafts)


class CountsInBytes(Engine):
    """The tokens of an answer are counted in 8 bits."""

    def _is_over(self, request: Any, given: Any) -> bool:
        answered = (request.num_tokens - request.max_tokens) & 0xFF
        return STOP_TOKEN in given or answered == 0


class LosesTheHundredth(Engine):
    """After each 100 cancellations one request keeps its blocks."""

    num_cancelled = 0

    def cancel(self, request_id: int) -> None:
        self.num_cancelled += 1
        if self.num_cancelled % 100 == 0:
            self.manager.block_pool.allocate(min(1, self.num_free()))
        super().cancel(request_id)


class ResetsInBytes(Engine):
    """Every 256th reset is taken for the one before."""

    num_resets = 0

    def reset(self) -> bool:
        self.num_resets = (self.num_resets + 1) & 0xFF
        return super().reset() if self.num_resets else not self._running


class EpochInBits(Engine):
    """A reset counts in 6 bits, and what is cached is found in its own epoch alone."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.hashers = [BlockHasher(seed=bytes([n]), block_size=SIZE) for n in range(64)]
        self._hasher = self.hashers[0]

    def reset(self) -> bool:
        if self._running or self.num_free() != self.manager.block_pool.num_blocks - 1:
            return False
        self.hashers.append(self.hashers.pop(0))
        self._hasher = self.hashers[0]
        return True


class EpochOfEach(Engine):
    """The same, but a block that is computed again has the epoch of the last time."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.epoch, self.epochs = 0, {}
        self.find = self.manager.get_computed_blocks
        self.manager.get_computed_blocks = self.found

    def found(self, request: Any) -> tuple[KVCacheBlocks, int]:
        hits, _ = self.find(request)
        pool = self.manager.block_pool
        kept = list(
            takewhile(
                lambda b: self.epochs.get((b, pool.block_hash(b))) == self.epoch, *hits.blocks
            )
        )
        return KVCacheBlocks((kept,)), len(kept) * SIZE

    def _keep(self, request: Any) -> None:
        super()._keep(request)
        pool = self.manager.block_pool
        for block in self._table(request) if request.is_running else ():
            key = pool.block_hash(block)
            if key is not None:
                self.epochs[block, key] = self.epoch
                others = [b for b in range(pool.num_blocks) if pool.block_hash(b) == key]
                pool.evict(b for b in others if b != block)

    def reset(self) -> bool:
        self.epoch = (self.epoch + 1) % 64
        return True


class TakesWhatComesAgain(Engine):
    """What is computed for the first or the second time gets no key, and the third time it does."""

    num_prior = 2

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        pool, self.seen = self.manager.block_pool, Counter[bytes]()
        taken = pool.cache

        def cache(blocks: Any, hashes: Any, **further: Any) -> None:
            kept = [pair for pair in zip(blocks, hashes) if self.seen[pair[1]] >= self.num_prior]
            self.seen.update(hashes)
            taken([block for block, _ in kept], [key for _, key in kept], **further)

        pool.cache = cache  # type: ignore[method-assign]  # of this one pool


class HasOneUserABlock(Engine):
    """A hit ends where somebody holds the block."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        manager, pool = self.manager, self.manager.block_pool
        found = manager.get_computed_blocks

        def free_ones(request: Any) -> tuple[KVCacheBlocks, int]:
            blocks, _ = found(request)
            ids = blocks.blocks[0] if blocks.blocks else []
            free = list(takewhile(lambda block: not pool.ref_count(block), ids))
            return KVCacheBlocks((free,)), len(free) * SIZE

        manager.get_computed_blocks = free_ones  # type: ignore[method-assign]  # of this one


class TakesItUnderShortKeys(TakesWhatComesAgain):
    """Behind a doorkeeper, too, a key needs its parent."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._hasher = DeepHasher()


class KeepsKeysBehindAByte(Engine):
    """Of what is taken at once, only the first 255 blocks lose the keys that they had."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        pool, keys = self.manager.block_pool, dict[int, bytes]()
        cache, allocate = pool.cache, pool.allocate

        def noted(blocks: Any, hashes: Any, **further: Any) -> None:
            keys.update(zip(blocks, hashes))
            cache(blocks, hashes, **further)

        def forgetful(count: int) -> list[int]:
            taken = allocate(count)
            for block in taken[255:]:
                if block in keys:
                    cache([block], [keys[block]])
            return taken

        pool.cache = noted  # type: ignore[method-assign]  # of this one pool
        pool.allocate = forgetful  # type: ignore[method-assign]  # the same


class TakesNoLargePrompts(Engine):
    """A request has a table of 255 blocks when it comes in."""

    def _may_enter(self, request: Any) -> bool:
        return len(request.token_ids) <= 255 * SIZE and super()._may_enter(request)


class WearsOut(Engine):
    """The 1,500th step loses a block."""

    def plan(self) -> Any:
        if self._num_planned == 1_500 and self.num_free():
            self.manager.block_pool.allocate(1)
        return super().plan()


@pytest.mark.parametrize(
    ("cls", "script"),
    [
        (KeysForgetParents, "depths"),
        (KeysForgetParentsLate, "depths"),
        (TakesItUnderShortKeys, "depths"),
        (KeysOfEnds, "other keys"),
        (AnswersBySlot, "beside one"),
        (CountsInBytes, "long answers"),
        (LosesTheHundredth, "cancellations"),
        (ResetsInBytes, "resets"),
        (EpochInBits, "resets"),
        (EpochOfEach, "resets"),
        (TakesNoLargePrompts, "whole pool"),
        (WearsOut, "long day"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_bug_that_begins_at_a_size_is_found_by_its_script(cls: type[Engine], script: str) -> None:
    trace = failure(cls, script)
    assert trace is not None
    again = replay(trace, lambda n, on: campaign_of(cls).make(n, on))
    assert again.violation == trace.violation


class CountsUsersInBits(Engine):
    """Of so many users of a block the last one gives it away."""

    most_users = 128

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        pool = self.manager.block_pool
        touch = pool.touch

        def touched(blocks: Any) -> None:
            ids = list(blocks)
            touch(ids)
            for block in ids:
                if pool.ref_count(block) == self.most_users:
                    pool.free([block] * self.most_users)

        pool.touch = touched  # type: ignore[method-assign]  # of this one pool


class CountsUsersInBytes(CountsUsersInBits):
    most_users = 256


WIDE = {"max_running": 300, "max_batch_tokens": 2_048}


def wide_failure(cls: type[Engine], script: str) -> Any:
    """The trace of its failure where hundreds of requests, and of blocks, fit a step; or None."""
    profile = EngineProfile(null_block=0, **WIDE)

    def make(num_blocks: int, enable_caching: bool) -> Engine:
        return cls(num_blocks, SIZE, enable_caching=enable_caching, **WIDE)

    campaign = EngineProductionCampaign(cls.__name__, make, profile, SIZE)
    result = campaign.run(campaign.sizes.scripts_for(profile).index(script))
    assert result.trace is not None or {ONE_BEGINNING, WHOLE_POOL} & result.facts
    return result.trace


@pytest.mark.parametrize("cls", [CountsUsersInBits, CountsUsersInBytes])
def test_a_count_of_users_in_few_bits_is_found(cls: type[Engine]) -> None:
    assert wide_failure(cls, "one beginning") is not None


def test_keys_that_stay_where_hundreds_of_blocks_are_taken_in_one_step_are_found() -> None:
    assert wide_failure(KeepsKeysBehindAByte, "whole pool") is not None


@pytest.mark.parametrize("script", ["one beginning", "whole pool"])
def test_a_right_engine_of_wide_steps_holds(script: str) -> None:
    assert wide_failure(Engine, script) is None


@pytest.mark.some(1)
@pytest.mark.parametrize("cls", [Engine, TakesWhatComesAgain, HasOneUserABlock, KeepsFewKeys])
def test_a_right_engine_is_not_accused_and_shows_everything(cls: type[Engine]) -> None:
    campaign = campaign_of(cls)
    facts: set[str] = set()
    for number in campaign.sizes.runs(PROFILE):
        result = campaign.run(number)
        assert result.trace is None
        facts |= result.facts
    can = engine_capabilities_of(campaign.make(9, True))
    assert set(required_engine_script_facts(PROFILE, can, campaign.sizes)) <= facts


@pytest.mark.some(0)
@pytest.mark.parametrize("answers", ["any-time", "when-full"])
def test_scripts_have_several_steps_in_flight_and_come_to_an_end(answers: str) -> None:
    profile = EngineProfile(null_block=0, steps_in_flight=2, answers=answers)

    def make(num_blocks: int, enable_caching: bool) -> Engine:
        return Engine(num_blocks, SIZE, enable_caching=enable_caching)

    campaign = EngineProductionCampaign("async", make, profile, SIZE)
    for number, script in enumerate(campaign.sizes.scripts_for(profile)):
        result = campaign.run(number)
        assert result.trace is None, script
        assert "two steps were in flight" in result.facts, script


@pytest.mark.parametrize(("percent", "is_accused"), [(10, False), (0, True), (9, True)])
def test_who_keeps_headroom_is_accused_where_its_profile_says_less(
    percent: int, is_accused: bool
) -> None:
    profile = replace(PROFILE, headroom_percent=percent)

    def make(num_blocks: int, enable_caching: bool) -> Engine:
        return KeepsHeadroom(num_blocks, SIZE, enable_caching=enable_caching, draft_tokens=2)

    campaign = EngineProductionCampaign("headroom", make, profile, SIZE)
    trace = campaign.run(campaign.sizes.scripts_for(profile).index("whole pool")).trace
    assert (trace is not None) == is_accused
    assert trace is None or trace.violation.invariant == "LIVE"


@pytest.mark.some(1)
@pytest.mark.parametrize("name", LAYOUTS)
def test_no_set_up_of_ours_is_accused(name: str) -> None:
    layout = LAYOUTS[name]
    campaign = EngineProductionCampaign(name, layout.make, layout.profile, layout.block_size)
    for number in campaign.sizes.runs(layout.profile):
        assert campaign.run(number).trace is None


# What is played.


def test_an_engine_without_a_prefix_cache_is_asked_for_no_hits() -> None:
    names = QUICK_ENGINE_SIZES.scripts_for(EngineProfile(prefix_hits="never"))
    left_out = set(ENGINE_SCRIPTS) - set(names)
    assert left_out == {"depths", "other keys", "token values", "resets", "one beginning"}


def test_an_engine_whose_requests_are_short_has_to_show_no_long_ones() -> None:
    profile = EngineProfile(null_block=0, max_request_tokens=40)
    facts = required_engine_script_facts(profile, campaign_of(Engine).make(9, True), EngineSizes())  # type: ignore[arg-type]  # no fact asks for a capability here
    assert "a user was given hundreds of tokens" not in facts


def test_the_first_set_up_plays_everything_and_the_others_share() -> None:
    sizes = EngineSizes(most_shares=4)
    assert sizes.shared(0, 16) == sizes
    shares = [set(sizes.shared(place, 16).scripts_for(PROFILE)) for place in range(1, 5)]
    assert set.union(*shares) == set(ENGINE_SCRIPTS)
    assert sum(map(len, shares)) == len(ENGINE_SCRIPTS)


def test_a_trace_names_its_script() -> None:
    campaign = campaign_of(Engine)
    setups = [campaign.setup(number) for number in range(len(ENGINE_SCRIPTS))]
    assert [setup.options["script"] for setup in setups] == list(ENGINE_SCRIPTS)


@pytest.mark.some(0)
def test_no_prompt_has_the_token_that_stops_requests() -> None:
    seen: list[Submit] = []

    def note(command: Any) -> None:
        if isinstance(command, Submit):
            seen.append(command)

    campaign = campaign_of(Engine)
    for number in range(len(ENGINE_SCRIPTS)):
        campaign.run(number, note)
    assert len(seen) > 1_000
    assert not any(STOP_TOKEN in command.chain.tokens for command in seen)
