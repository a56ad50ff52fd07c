"""Which sizes of blocks managers and engines are driven with, and what shows in them alone."""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.production_look_alikes import PowersOfTwo
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.harness.block_sizes import (
    EngineBlockSizesCampaign,
    ManagerBlockSizesCampaign,
    other_block_sizes,
)
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.replay import replay
from poolproof.impl.block_hash import BlockHasher
from poolproof.impl.engine import Engine
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.targets.impl_engine import impl_engine_layouts
from poolproof.targets.native_target import native_target


def profile_of(**rows):
    return ManagerProfile.from_mapping(rows)


def test_no_window_is_smaller_than_a_block():
    sizes = other_block_sizes(profile_of(null_block=0, groups="full+sliding:6"), 4)
    assert sizes == (1, 2, 3, 5)


@pytest.mark.parametrize("groups", ["full:0:8", "full+sliding:6:2", "full+state"])
def test_groups_with_sizes_of_their_own_have_no_others(groups):
    assert other_block_sizes(profile_of(null_block=0, groups=groups), 4) == ()


def test_every_size_that_is_given_is_driven():
    made = []

    def make_of(size):
        made.append(size)
        return lambda n, on: CleanManager(n, size, enable_caching=on)

    campaign = ManagerBlockSizesCampaign("clean", make_of, ManagerProfile(), (2, 16, 256))
    results = [campaign.run(number) for number in range(41)]
    assert {*made} == {2, 16, 256}
    assert not any(result.trace for result in results)
    assert {campaign.setup(number).options["block_size"] for number in range(41)} == {*made}


@pytest.mark.some(1)
@pytest.mark.parametrize("groups", ["full", "sliding:6", "full+sliding:70"])
def test_the_specification_holds_in_every_size(groups):
    rows = {} if groups == "full" else {"null_block": 0}
    profile = profile_of(groups=groups, **rows)

    def make_of(size):
        return lambda n, on: NativeSequenceManager(n, size, enable_caching=on, profile=profile)

    campaign = ManagerBlockSizesCampaign(
        "reference", make_of, profile, other_block_sizes(profile, 4)
    )
    assert not any(campaign.run(number).trace for number in range(33))


def test_a_layout_builds_other_sizes_only_where_it_can():
    layout = native_target("mine", PowersOfTwo, Level.MANAGER, {}, None).layouts[0]
    assert layout.make_with(16)(8, True).block_size == 16
    assert layout.make_with(4) is layout.make
    with pytest.raises(ValueError, match="power of two"):
        layout.make_with(3)(8, True)


def test_a_layout_without_other_sizes_says_which_one_it_has():
    layout = native_target("mine", CleanManager, Level.MANAGER, {}, None).layouts[0]
    fixed = type(layout)(layout.name, layout.profile, layout.make)
    with pytest.raises(TargetError, match="4 tokens a block"):
        fixed.make_with(16)


# Engines.

PROFILE = EngineProfile(null_block=0, image_tokens=3)
ALL_SIZES = other_block_sizes(PROFILE, 4)
QUICK_RUNS = range(80)
"""Those of an engine with one set-up."""


class OddHasher(BlockHasher):
    """A key of some tokens of a block."""

    def __init__(self, size: int, kept: Any) -> None:
        super().__init__(seed=b"odd", block_size=size)
        self.size = size
        self.kept = kept

    def hash_block(self, parent: bytes | None, tokens: Any, extra_keys: Any = ()) -> bytes:
        kept = self.kept(tokens)
        return super().hash_block(parent, (*kept, *[0] * (self.size - len(kept))), extra_keys)


class OddKeys(Engine):
    """An engine whose keys are of some tokens, which are all of them where a block has four."""

    def __init__(self, num_blocks: int, block_size: int, **named: Any) -> None:
        super().__init__(num_blocks, block_size, **named)
        self._hasher = OddHasher(block_size, self.kept)

    def kept(self, tokens: Any) -> Any:
        return tokens


class FirstFour(OddKeys):
    def kept(self, tokens: Any) -> Any:
        return tokens[:4]


class FirstThirtyTwo(OddKeys):
    def kept(self, tokens: Any) -> Any:
        return tokens[:32]


class LastEight(OddKeys):
    def kept(self, tokens: Any) -> Any:
        return tokens[-8:]


class BothEnds(OddKeys):
    def kept(self, tokens: Any) -> Any:
        return tokens if len(tokens) <= 16 else (*tokens[:8], *tokens[-8:])


class WithoutOrder(OddKeys):
    def kept(self, tokens: Any) -> Any:
        return tokens if len(tokens) <= 16 else sorted(tokens)


class KnowsItsSize(Engine):
    def __init__(self, num_blocks: int, block_size: int, **named: Any) -> None:
        super().__init__(num_blocks, block_size, **named)
        self.size = block_size


class PublishesEarly(KnowsItsSize):
    """Of a long block the last token need not be computed: its share was rounded."""

    def _keep(self, request: Any) -> None:
        early = self.size // 16 if len(request.token_ids) > request.num_settled else 0
        request.num_computed_tokens += early
        super()._keep(request)
        request.num_computed_tokens -= early


class TablesByShifts(KnowsItsSize):
    """What a step reads is counted with a shift, which is right for powers of two alone."""

    def _told(self, part: Any) -> Any:
        told = super()._told(part)
        bits, end = (self.size - 1).bit_length(), part.first + part.count
        if 2**bits != self.size:
            told["blocks"] = [table[: -(-end // 2**bits)] for table in told["blocks"]]
        return told


def engines(cls: type[Engine], sizes: tuple[int, ...] = ALL_SIZES) -> EngineBlockSizesCampaign:
    def make_of(size: int) -> Any:
        return lambda n, on: cls(n, size, enable_caching=on)

    return EngineBlockSizesCampaign(cls.__name__, make_of, PROFILE, sizes)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "cls",
    [FirstFour, FirstThirtyTwo, LastEight, BothEnds, WithoutOrder, PublishesEarly, TablesByShifts],
)
def test_what_only_longer_blocks_show_is_found_and_cut_down(cls):
    usual = EngineCampaign("usual", lambda n, on: cls(n, 4, enable_caching=on), PROFILE, 4)
    assert not any(usual.run(number).trace for number in range(60))
    campaign = engines(cls)
    traces = (campaign.run(number).trace for number in QUICK_RUNS)
    trace = next((trace for trace in traces if trace is not None), None)
    assert trace is not None
    again = replay(trace, campaign.make_of(trace.options["block_size"]))
    assert again.violation == trace.violation


def test_no_set_up_of_our_engine_is_accused_in_other_sizes():
    for layout in impl_engine_layouts():
        sizes = other_block_sizes(layout.profile, layout.block_size)
        if sizes:
            campaign = EngineBlockSizesCampaign("ours", layout.make_with, layout.profile, sizes)
            assert not any(campaign.run(number).trace for number in range(1, 6)), layout.name


def test_every_size_of_an_engine_is_driven():
    campaign = engines(Engine)
    sizes = {campaign.setup(number).options["block_size"] for number in QUICK_RUNS}
    assert sizes == {*ALL_SIZES}


def test_an_engine_that_takes_slots_ahead_has_no_others():
    assert other_block_sizes(EngineProfile(spare_tokens=4), 4) == ()


def test_a_prompt_that_is_longer_than_a_request_may_be_is_left_out():
    profile = EngineProfile(null_block=0, max_request_tokens=20)

    def make_of(size: int) -> Any:
        return lambda n, on: Engine(n, size, enable_caching=on)

    campaign = EngineBlockSizesCampaign("short", make_of, profile, (16, 64))
    results = [campaign.run(number) for number in range(9)]
    assert not any(result.trace for result in results)
