"""Drives a manager with block sizes other than the usual one, from one token to 256.

All other runs have blocks of a few tokens, where most bugs have their shortest trace. Some bugs
need a longer block: a key of the first eight tokens is right for blocks of four, an offset in a
block may be stored in too few bits, and a shift may divide by a size that is not a power of two.
Engines run blocks of 1 (SGLang), 16 (vLLM) and 256 tokens (nano-vLLM).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.manager_driver import ManagerCampaign, ManagerProductionCampaign
from poolproof.harness.manager_production import ManagerScript, Plan, life
from poolproof.harness.random_driver import RunResult

__all__ = ["BlockSizesCampaign", "other_block_sizes"]

_SHORT = (1, 2, 3, 5, 8, 16)
"""Tokens of a block in usual runs."""

_LONG = (16, 32, 64, 128, 256)
"""Tokens of a block in runs that look at every place of one."""

_SCRIPT_EVERY = 8
"""One run in so many has long blocks."""

_NUM_BLOCKS = 96
"""Of a pool with long blocks."""

_LONGEST_PROMPT = 2**16 + 300
"""Tokens of the longest prompt, so that a count of 16 bits is too short for it."""


def other_block_sizes(profile: ManagerProfile, usual: int) -> tuple[int, ...]:
    """The sizes that a layout of this profile may be built with, besides its `usual` one.

    There are none if a group states its own size, and no window is smaller than a block.
    """
    if any(g.block_size or g.is_chunked or g.is_state for g in profile.groups):
        return ()
    windows = [group.window for group in profile.groups if group.window]
    sizes = sorted({*_SHORT, *_LONG} - {usual})
    return tuple(size for size in sizes if size <= min(windows, default=size))


@dataclass(frozen=True, slots=True)
class BlockSizesCampaign:
    """A manager to run against; `make_of(block_size)` builds instances of that size.

    Usual runs with short blocks and scripts with long ones, of the sizes in `block_sizes`.
    """

    name: str
    make_of: Callable[[int], Callable[[int, bool], Any]]
    profile: ManagerProfile
    block_sizes: tuple[int, ...]
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails."""
        return self._campaign(number).setup(number)

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Carry out run number `number`; `announce` gets each command before it is applied."""
        return self._campaign(number).run(number, announce)

    def _campaign(self, number: int) -> ManagerCampaign:
        turn, place = divmod(number, _SCRIPT_EVERY)
        long = [size for size in _LONG if size in self.block_sizes]
        if long and place == 0:
            return self._of_size(_LongBlocksCampaign, long[turn % len(long)])
        short = [size for size in self.block_sizes if size in _SHORT] or self.block_sizes
        return self._of_size(ManagerCampaign, short[(number - turn) % len(short)])

    def _of_size(self, kind: type[ManagerCampaign], size: int) -> ManagerCampaign:
        return kind(self.name, self.make_of(size), self.profile, size, self.seed, self.options)


class _LongBlocksCampaign(ManagerProductionCampaign):
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
    for place in sorted({1, unit // 2, unit - 1, 1 + run.below(unit - 1), 1 + run.below(unit - 1)}):
        yield from life(run, 2 * unit + place, unit + place)
    if run.most_tokens > _LONGEST_PROMPT:
        yield from life(run, _LONGEST_PROMPT, 2**15)
