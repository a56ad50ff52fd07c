"""The sizes that servers run, and how the runs of one certification are spread over them.

Most bugs have their shortest trace in a pool of a few blocks, and small runs find those fastest.
The rest begin at some size: a mask of 8 bits at 256 blocks, a buffer of fixed size at so many
events, a scan that stops at so many entries. That size is unknown, so the sizes here crowd around
the powers of two, where such constants are, and fill the space between them: even steps from a
small pool to the largest, of which every fourth is a round number, a prime, or next to a power of
two. A counter that wraps shows in a small pool that lives long, so some runs use one to three
blocks for long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import count

from poolproof.harness.choices import Choices, SeededChoices

__all__ = ["MOST_SWEPT", "ProductionRun", "ProductionSizes", "size_near_a_border"]

HASH_BYTES = (16, 32, 8, 64, 4, 20, 28, 33, 5, 24, 7, 48, 12, 17, 40)
"""Lengths of hashes in every second run; all hashes of one run have one length, as those of a
server have. The other runs go through all lengths from 4 to 64 bytes."""

LONG_HASH_BYTES = (64, 16, 32, 8, 48)
"""Lengths in long runs, the longest first: they have hashes enough to differ in each byte alone."""

SHORT_BLOCKS = 130
"""Short runs have pools of up to so many blocks, so that every size up to there is soon met."""

FIRST_BLOCKS = (*range(1, 17), 64, 32, 128, 100, 63, 65, 31, 33, 127, 129)
"""The pools of the first short runs, whatever the seed; the others draw theirs."""

SHORT_COMMANDS = 250

LEAST_HASHES = 24
"""Of fewer hashes that look alike hardly two are alike in any one way."""

WIDE_COMMANDS = 24
"""Wide runs have so many commands or some more: the opening, and a little of a server's day."""

CAREFUL_BLOCKS = range(257, 513)
"""Every second wide run of such a size is careful (`careful_session.py`): ids are beyond a byte,
and reading the whole pool after each command is still cheap."""

STEADY_HASHES = 1_100
"""A steady run has so many hashes for each block, or one for 16 commands, so that a hash rests
while its block is reused hundreds of times."""

STEADY_FULL_EVERY = 8
"""A steady run reads everything after so many commands at least: few blocks, but many hashes."""

STEADY_READINGS = 2_500
"""A steady run of 75,000 commands reads everything about so many times, and not four times as
often: what it looks for, a hash that comes back after hundreds of others, stays wrong for long."""

MOST_SWEPT = 1100
"""Every count up to here is tried in turn by some run; beyond, counts near a border are."""


@dataclass(frozen=True, slots=True)
class ProductionRun:
    """One run: everything that follows from the seed and the run's number."""

    seed: str
    num_blocks: int
    num_steps: int
    enable_caching: bool
    num_hashes: int
    hash_bytes: int
    most_references: int
    events_every: int
    """The target's events are read after so many commands."""
    first_count: int
    """Where the sweep over all counts begins."""
    careful: bool = False
    """Whether its session takes nothing on trust."""
    full_every: int | None = None
    """Everything is read after so many commands; None: as usual for such a pool."""

    @property
    def is_steady(self) -> bool:
        """Whether few blocks are used for long."""
        return self.full_every is not None


@dataclass(frozen=True, slots=True)
class ProductionSizes:
    """How far the runs of one level of `certify` go.

    The first `short_runs` have up to 130 blocks and 250 commands. Then come `long_runs` of
    `long_commands` each, on pools of up to `most_blocks`; the first and each fourth of them have
    just that many. `wide_runs` have sizes spread from 130 to `most_blocks`, and a few dozen
    commands. `steady_runs` have one to three blocks, and `long_commands`. Blocks get up to
    `most_references` references.
    """

    short_runs: int
    long_runs: int
    long_commands: int
    most_blocks: int
    most_references: int
    wide_runs: int = 8
    steady_runs: int = 1

    @property
    def most_runs(self) -> int:
        """The runs of any target."""
        return self.num_runs

    @property
    def num_runs(self) -> int:
        """Runs in all."""
        return self.short_runs + self.long_runs + self.wide_runs + self.steady_runs

    def place_of_long(self, number: int) -> int | None:
        """Which of the long runs number `number` is, from 0; None where it is none of them."""
        place = number - self.short_runs
        return place if 0 <= place < self.long_runs else None

    def groups(self, most: int) -> list[range]:
        """The numbers of runs that one job does: up to `most` brief ones, or a long one alone.

        The first brief ones come first, since they take the least time to fail. The other brief
        ones come last: behind the long ones, they keep every worker busy to the end.
        """
        short, long = self.short_runs, self.short_runs + self.long_runs
        wide = long + self.wide_runs
        brief = [
            range(first, min(first + most, end))
            for start, end in ((0, short), (long, wide))
            for first in range(start, end, most)
        ]
        alone = [*range(wide, self.num_runs), *range(short, long)]
        first = -(-len(brief) // 2)
        return brief[:first] + [range(n, n + 1) for n in alone] + brief[first:]

    def run(self, seed: int, number: int, hash_bytes: int | None = None) -> ProductionRun:
        """Run number `number`; with `hash_bytes` every hash has so many bytes."""
        wide = number - self.short_runs - self.long_runs
        if number < self.short_runs:
            run = self._short(seed, number)
        elif self.place_of_long(number) is not None:
            run = self._long(seed, number)
        elif wide < self.wide_runs:
            run = self._wide(seed, number, wide)
        else:
            run = self._steady(seed, number)
        return run if hash_bytes is None else replace(run, hash_bytes=hash_bytes)

    def _short(self, seed: int, number: int) -> ProductionRun:
        name, choices = _begin(seed, number)
        num_blocks = size_near_a_border(choices, SHORT_BLOCKS)
        if number < len(FIRST_BLOCKS):
            num_blocks = FIRST_BLOCKS[number]
        return ProductionRun(
            seed=name,
            num_blocks=num_blocks,
            num_steps=60 + choices.below(SHORT_COMMANDS - 60),
            enable_caching=choices.below(16) != 0,
            num_hashes=max(LEAST_HASHES, 8 + choices.below(2 * num_blocks)),
            hash_bytes=_length_of_hashes(seed, number),
            most_references=300,
            events_every=1 + choices.below(40),
            first_count=1,
        )

    def _wide(self, seed: int, number: int, place: int) -> ProductionRun:
        name, choices = _begin(seed, number)
        num_blocks = _spread_size(choices, seed, place, self.wide_runs, self.most_blocks)
        careful = place % 2 == 0 and num_blocks in CAREFUL_BLOCKS
        return ProductionRun(
            seed=name,
            num_blocks=num_blocks,
            num_steps=WIDE_COMMANDS + choices.below(2 * WIDE_COMMANDS),
            enable_caching=True,
            num_hashes=num_blocks + 64,
            # The neighbour's hash has the usual length, and all hashes of a run have one.
            hash_bytes=HASH_BYTES[0] if careful else _length_of_hashes(seed, number),
            most_references=300,
            # After each command in every fourth: what one call tells can only be judged then.
            events_every=1 if place % 4 == 3 else 2 + choices.below(WIDE_COMMANDS),
            first_count=1 + choices.below(MOST_SWEPT),
            careful=careful,
        )

    def _steady(self, seed: int, number: int) -> ProductionRun:
        name, choices = _begin(seed, number)
        num_blocks = 1 + (number - self.num_runs + seed) % 3
        return ProductionRun(
            seed=name,
            num_blocks=num_blocks,
            num_steps=self.long_commands,
            enable_caching=True,
            num_hashes=num_blocks * min(STEADY_HASHES, 8 + self.long_commands // 16),
            hash_bytes=_length_of_hashes(seed, number),
            most_references=300,
            events_every=1 + choices.below(40),
            first_count=1,
            full_every=max(STEADY_FULL_EVERY, self.long_commands // STEADY_READINGS),
        )

    def _long(self, seed: int, number: int) -> ProductionRun:
        name, choices = _begin(seed, number)
        place = self.place_of_long(number)
        assert place is not None
        if place % 4 == 0:
            num_blocks = self.most_blocks
        else:
            # From 256 on: below, short runs have been.
            num_blocks = 256 + size_near_a_border(choices, self.most_blocks - 256)
        return ProductionRun(
            seed=name,
            num_blocks=num_blocks,
            num_steps=self.long_commands,
            enable_caching=choices.below(16) != 0 or place == 0,
            num_hashes=2 * num_blocks + 64,
            hash_bytes=LONG_HASH_BYTES[place % len(LONG_HASH_BYTES)],
            most_references=self.most_references,
            events_every=1 + choices.below(2000),
            first_count=1 + choices.below(MOST_SWEPT) if place > 0 else 1,
        )


def _begin(seed: int, number: int) -> tuple[str, Choices]:
    name = f"{seed}/production/{number}"
    return name, SeededChoices(f"plan {name}")


def _length_of_hashes(seed: int, number: int) -> int:
    """One that is in use, or, in every second run, the next of all; 23 is prime to 61."""
    turn = number // 2
    if number % 2 == 0:
        return HASH_BYTES[turn % len(HASH_BYTES)]
    return 4 + (23 * turn + seed) % 61


def _spread_size(choices: Choices, seed: int, place: int, num_sizes: int, most: int) -> int:
    """The size at `place` of `num_sizes`, each larger than the one before by about one ratio.

    In turn it is any size, a round number, a prime, or one at a power of two.
    """
    least = min(SHORT_BLOCKS, most)
    exponent = (place + choices.below(100) / 100) / num_sizes
    size = round(least * math.pow(most / least, exponent))
    kind = (place + seed) % 4
    if kind == 1:
        unit = int("1".ljust(len(str(size)), "0"))
        if (place // 4 + seed) % 3 == 0:
            unit //= (2, 4, 10)[choices.below(3)]
        size = max(round(size / unit), 1) * unit
    elif kind == 2:
        size = next(number for number in count(size) if _is_prime(number))
    elif kind == 3:
        size = (1 << (size.bit_length() - choices.below(2))) - 1 + (place // 4 + seed) % 3
    return min(size, most)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def size_near_a_border(choices: Choices, most: int) -> int:
    """A size from 1 to `most`: around a power of two, odd, any, or just `most`."""
    kind = choices.below(8)
    if kind == 0:
        return most
    if kind < 4:
        power = 1 << choices.below(most.bit_length())
        return min(max(power - 1 + choices.below(3), 1), most)
    size = 1 + choices.below(most)
    return min(size | 1, most) if kind < 6 else size
