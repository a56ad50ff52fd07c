"""The sizes that servers run, and how the runs of one certification are spread over them.

Most bugs have their shortest trace in a pool of a few blocks, and small runs find those fastest.
The rest begin somewhere: a mask of 8 bits at 256 blocks, a buffer of fixed size at so many events,
a scan that stops at so many entries. Nobody knows where, so the sizes here crowd around the powers
of two, where such constants live, and fill the space between them with odd numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.harness.choices import Choices, SeededChoices

__all__ = ["MOST_SWEPT", "ProductionRun", "ProductionSizes", "size_near_a_border"]

HASH_BYTES = (16, 32, 8, 64, 4, 20, 33, 5, 24, 7, 48, 17)
"""Lengths of hashes in turn; all hashes of one run have one length, as those of a server have."""

SHORT_BLOCKS = 130
"""Short runs have pools of up to so many blocks, so that every size up to there is soon met."""

SHORT_COMMANDS = 250

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


@dataclass(frozen=True, slots=True)
class ProductionSizes:
    """How far the runs of one level of `certify` go.

    The first `short_runs` have up to 130 blocks and 250 commands. Then come `long_runs` of
    `long_commands` each, on pools of up to `most_blocks`; the first and the last of them have just
    that many. Blocks get up to `most_references` references.
    """

    short_runs: int
    long_runs: int
    long_commands: int
    most_blocks: int
    most_references: int

    @property
    def most_runs(self) -> int:
        """The runs of any target."""
        return self.num_runs

    @property
    def num_runs(self) -> int:
        """Runs in all."""
        return self.short_runs + self.long_runs

    @property
    def num_steps(self) -> int:
        """About how many commands that is."""
        return self.short_runs * SHORT_COMMANDS // 2 + self.long_runs * self.long_commands

    def run(self, seed: int, number: int, hash_bytes: int | None = None) -> ProductionRun:
        """Run number `number`; with `hash_bytes` every hash has so many bytes."""
        name = f"{seed}/production/{number}"
        choices = SeededChoices(f"plan {name}")
        long = number >= self.short_runs
        place = number - self.short_runs
        if not long:
            num_blocks = 1 + number if number < 16 else size_near_a_border(choices, SHORT_BLOCKS)
        elif place % 4 == 0:
            num_blocks = self.most_blocks
        else:
            # From 256 on: below, short runs have been.
            num_blocks = 256 + size_near_a_border(choices, self.most_blocks - 256)
        return ProductionRun(
            seed=name,
            num_blocks=num_blocks,
            num_steps=self.long_commands if long else 60 + choices.below(SHORT_COMMANDS - 60),
            enable_caching=choices.below(16) != 0 or place == 0,
            num_hashes=(2 * num_blocks + 64) if long else 8 + choices.below(2 * num_blocks),
            hash_bytes=hash_bytes or HASH_BYTES[number % len(HASH_BYTES)],
            most_references=self.most_references if long else 300,
            events_every=1 + choices.below(2000 if long else 40),
            first_count=1 + choices.below(MOST_SWEPT) if place > 0 else 1,
        )


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
