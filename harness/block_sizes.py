"""Drives a manager or an engine with block sizes other than the usual one, from 1 to 256 tokens.

All other runs have blocks of a few tokens, where most bugs have their shortest trace. Some bugs
need a longer block: a key of the first eight tokens is right for blocks of four, an offset in a
block may be stored in too few bits, and a shift may divide by a size that is not a power of two.
Engines run blocks of 1 (SGLang), 16 (vLLM) and 256 tokens (nano-vLLM).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN, Cancel
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_production import EngineProductionCampaign, EngineScript, ScriptPlan
from poolproof.harness.manager_driver import ManagerCampaign, ManagerProductionCampaign
from poolproof.harness.manager_production import ManagerScript, Plan, life
from poolproof.harness.random_driver import RunResult

__all__ = ["EngineBlockSizesCampaign", "ManagerBlockSizesCampaign", "other_block_sizes"]

_SHORT = (1, 2, 3, 5, 8, 16)
"""Tokens of a block in usual runs."""

_LONG = (16, 32, 64, 128, 256)
"""Tokens of a block in runs that look at every place of one."""

_SCRIPT_EVERY = 8
"""One run in so many has long blocks."""

_NUM_BLOCKS = 96
"""Of a pool with long blocks, for each cache group."""

_LONGEST_PROMPT = 2**16 + 300
"""Tokens of the longest prompt of a manager, so that a count of 16 bits is too short for it."""

_MOST_BEHIND = 2_048
"""Tokens of an engine's prompts of many blocks, which are computed a few positions a step."""


def other_block_sizes(profile: ManagerProfile | EngineProfile, usual: int) -> tuple[int, ...]:
    """The sizes that a layout of this profile may be built with, besides its `usual` one.

    There are none if a group states its own size, or an engine takes slots ahead, of which the
    profile says how many there are with the usual size. No window is smaller than a block.
    """
    if any(g.block_size or g.is_chunked or g.is_state for g in profile.groups):
        return ()
    if isinstance(profile, EngineProfile) and profile.spare_tokens:
        return ()
    windows = [group.window for group in profile.groups if group.window]
    sizes = sorted({*_SHORT, *_LONG} - {usual})
    return tuple(size for size in sizes if size <= min(windows, default=size))


P = TypeVar("P", ManagerProfile, EngineProfile)
C = TypeVar("C", ManagerCampaign, EngineCampaign)


@dataclass(frozen=True, slots=True)
class _BlockSizesCampaign(Generic[P, C]):
    """What to run against; `make_of(block_size)` builds instances of that size.

    Usual runs with short blocks and scripts with long ones, of the sizes in `block_sizes`.
    """

    name: str
    make_of: Callable[[int], Callable[[int, bool], Any]]
    profile: P
    block_sizes: tuple[int, ...]
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails."""
        return self._campaign(number).setup(number)

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Carry out run number `number`; `announce` gets each command before it is applied."""
        return self._campaign(number).run(number, announce)

    def usual(self, size: int) -> C:
        """Usual runs with blocks of that size."""
        raise NotImplementedError

    def scripted(self, size: int) -> C:
        """Scripts with long blocks of that size."""
        raise NotImplementedError

    def _campaign(self, number: int) -> C:
        turn, place = divmod(number, _SCRIPT_EVERY)
        long = [size for size in _LONG if size in self.block_sizes]
        if long and place == 0:
            return self.scripted(long[turn % len(long)])
        short = [size for size in self.block_sizes if size in _SHORT] or self.block_sizes
        return self.usual(short[(number - turn) % len(short)])


class ManagerBlockSizesCampaign(_BlockSizesCampaign[ManagerProfile, ManagerCampaign]):
    """Managers of other block sizes."""

    __slots__ = ()

    def usual(self, size: int) -> ManagerCampaign:
        """Usual runs with blocks of that size."""
        make = self.make_of(size)
        return ManagerCampaign(self.name, make, self.profile, size, self.seed, self.options)

    def scripted(self, size: int) -> ManagerCampaign:
        """Scripts with long blocks of that size."""
        make = self.make_of(size)
        return _LongBlocksOfManagers(self.name, make, self.profile, size, self.seed, self.options)


class EngineBlockSizesCampaign(_BlockSizesCampaign[EngineProfile, EngineCampaign]):
    """Engines of other block sizes."""

    __slots__ = ()

    def usual(self, size: int) -> EngineCampaign:
        """Usual runs with blocks of that size."""
        make = self.make_of(size)
        return EngineCampaign(self.name, make, self.profile, size, self.seed, self.options)

    def scripted(self, size: int) -> EngineCampaign:
        """Scripts with long blocks of that size."""
        make = self.make_of(size)
        return _LongBlocksOfEngines(self.name, make, self.profile, size, self.seed, self.options)


class _LongBlocksOfManagers(ManagerProductionCampaign):
    """One size of long blocks; every run plays the same script, with other tokens."""

    __slots__ = ()

    def plans(self) -> Mapping[str, Plan]:
        """The one script."""
        fits = 2 * _LONGEST_PROMPT // self.block_size if self.block_size == _LONG[-1] else 0
        return {"long blocks": Plan(_long_blocks, lambda _: max(_NUM_BLOCKS, fits))}


def _long_blocks(run: ManagerScript) -> Iterator[Command]:
    """Every token of a block counts, and a sequence may begin, grow or be cut at every offset."""
    unit = run.unit
    yield from run.confuse(run.confusable.of_places())
    yield from run.confuse(run.confusable.of_image_places())
    yield from run.confuse(run.confusable.of_parents(min(24, run.most_tokens // unit)))
    for place in _places(run):
        yield from life(run, 2 * unit + place, unit + place)
    if run.most_tokens > _LONGEST_PROMPT:
        yield from life(run, _LONGEST_PROMPT, 2**15)


def _places(run: ManagerScript | EngineScript) -> list[int]:
    """Offsets in a block: both ends, the middle, any two."""
    unit = run.unit
    any_two = (1 + run.below(unit - 1), 1 + run.below(unit - 1))
    return sorted({1, unit // 2, unit - 1, *any_two})


class _LongBlocksOfEngines(EngineProductionCampaign):
    """One size of long blocks; every run plays the same script, with other tokens."""

    __slots__ = ()

    def plans(self) -> Mapping[str, ScriptPlan]:
        """The one script."""
        return {"long blocks": ScriptPlan(_long_blocks_of_engine, lambda _: _NUM_BLOCKS)}


def _long_blocks_of_engine(run: EngineScript) -> Iterator[Command]:
    """Every token of a block counts, and a request may begin, grow or be cut at every offset."""
    most = min(run.model.most_tokens, _MOST_BEHIND) // run.unit
    yield from run.confuse(run.confusable.of_places())
    yield from run.confuse(run.confusable.of_image_places())
    yield from run.confuse(run.confusable.of_parents(min(24, most)))
    for place in _places(run):
        yield from _conversation(run, 2 * run.unit + place, run.unit + place)


def _conversation(run: EngineScript, num_prompt: int, num_answer: int) -> Iterator[Command]:
    """A request, what its user says next, and the same again until its user goes."""
    model, below = run.model, run.below
    request = run.submit(TokenChain(run.tokens(num_prompt)), num_answer)
    yield request
    while not model.is_idle:
        yield run.step(1 + below(2**20), going_on=True)
    if request.request_id not in model.requests:
        return  # it was longer than a request may be
    told = [token for token in model.requests[request.request_id].tokens if token != STOP_TOKEN]
    yield from run.serve([TokenChain((*told, 1 + below(9)))])
    again = run.submit(TokenChain(tuple(told)), num_answer)
    yield again
    for _ in range(below(run.unit)):
        if again.request_id in model.live:
            yield run.step(1 + below(2**20), going_on=True)
    if again.request_id in model.live:
        yield Cancel(again.request_id)
    yield from run.settle()
