"""The passes of the minimiser: each looks for one kind of smaller variant of the best trace.

A pass is a generator of variants in a fixed order, each with its place in that order, so that a
minimisation can resume from any place. Variants that only change single commands are in
`smaller_pool_traces.py` and `smaller_manager_traces.py`. `minimise.py` finds out whether a variant
still fails, and in the same way.

A long trace cannot afford one attempt per command: its first passes remove much at a time, at a
cost of some ten executions of the trace each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from poolproof.contract.commands import Command
from poolproof.contract.engine_commands import EngineCommand
from poolproof.contract.level import Level
from poolproof.contract.manager_commands import ManagerCommand
from poolproof.contract.trace import Trace
from poolproof.harness.careful_session import CAREFUL
from poolproof.harness.pool_session import EVENTS_EVERY
from poolproof.harness.relative import Naming, RelativeCommand
from poolproof.harness.smaller_engine_traces import (
    large_tokens_lowered,
    lowered_engine_command,
    several_steps_traded,
    shorter_requests,
    steps_run_at_once,
    steps_traded,
    stopped_early,
    tokens_lowered,
)
from poolproof.harness.smaller_index_traces import least_num_blocks, simpler_index_traces
from poolproof.harness.smaller_manager_traces import (
    fewer_tokens,
    lowered_manager_command,
    smaller_everywhere,
    without_a_sequence,
)
from poolproof.harness.smaller_pool_traces import (
    Candidate,
    blocks_handed_out_earlier,
    calls_merged,
    for_one_block_less,
    lowered,
    one_reference_less,
    shorter_prompts,
    two_commands_less,
)
from poolproof.harness.smaller_together import (
    longest_shorter,
    shorter_by_as_many,
    shorter_in_proportion,
)

__all__ = ["LAST_RESORTS", "Best", "Pass", "Place", "TraceVariant", "passes_for"]

LONG_TRACE = 100
"""Longer traces get passes of their own first."""

COARSEST, FINEST_OF_LONG = 2, 32
"""The first passes cut windows of a half down to a thirty-second of a long trace."""

Place = tuple[int, ...]
"""A place in the order of a pass; () is the beginning."""


@dataclass(frozen=True, slots=True)
class Best:
    """The smallest failing trace so far: its set-up, and what was applied, in both forms."""

    setup: Trace
    commands: tuple[Command, ...]
    relative: tuple[RelativeCommand, ...]


@dataclass(frozen=True, slots=True)
class TraceVariant:
    """What to try: commands, and the set-up to apply them to."""

    setup: Trace
    commands: Candidate


class Pass(Protocol):
    """One kind of smaller variant; `name` is unique and is kept in campaign folders."""

    @property
    def name(self) -> str: ...

    def variants(self, best: Best, place: Place) -> Iterator[tuple[Place, TraceVariant]]:
        """The variants from `place` on, while `best` stays the best."""
        ...

    def after_success(self, place: Place) -> Place:
        """Where to go on once the variant at `place` has become the best."""
        ...


@dataclass(frozen=True, slots=True)
class Repeated:
    """Takes the first variant that helps, and begins again."""

    name: str
    make: Callable[[Best], Iterable[TraceVariant]]

    def variants(self, best: Best, place: Place) -> Iterator[tuple[Place, TraceVariant]]:
        first = place[0] if place else 0
        for number, variant in enumerate(islice(self.make(best), first, None), start=first):
            yield (number,), variant

    def after_success(self, place: Place) -> Place:  # noqa: ARG002 -- the protocol's
        return ()


@dataclass(frozen=True, slots=True)
class WithoutWindows:
    """Deletes windows of neighbours among the groups of commands, large windows first (ddmin).

    `groups_of` gives for each command the group that it goes with, None for one that stays;
    `longest` and `shortest` are shares of all groups, as divisors.
    """

    name: str
    groups_of: Callable[[Best], Sequence[Hashable | None]]
    longest: int = COARSEST
    shortest: int | None = None

    def variants(self, best: Best, place: Place) -> Iterator[tuple[Place, TraceVariant]]:
        groups = self.groups_of(best)
        names = list(dict.fromkeys(group for group in groups if group is not None))
        length, start = place or (max(1, len(names) // self.longest), 0)
        last = max(1, len(names) // self.shortest) if self.shortest else 1
        while length >= last and names:
            while start < len(names):
                gone = set(names[start : start + length])
                kept = [
                    item for item, group in zip(best.relative, groups, strict=True)
                    if group not in gone
                ]  # fmt: skip
                yield (length, start), TraceVariant(best.setup, kept)
                start += length
            start = 0
            length //= 2

    def after_success(self, place: Place) -> Place:
        return place


@dataclass(frozen=True, slots=True)
class TakenAway:
    """Takes as much as it can away from one number, the half first: twice its logarithm attempts.

    `without(best, step)` is the best with so much less, None where that cannot be. `finest` is the
    smallest step, as a share of the number.
    """

    name: str
    number: Callable[[Best], int]
    without: Callable[[Best, int], TraceVariant | None]
    finest: int | None = None

    def variants(self, best: Best, place: Place) -> Iterator[tuple[Place, TraceVariant]]:
        number = self.number(best)
        (step,) = place or (number // 2,)
        last = max(1, number // self.finest) if self.finest else 1
        while step >= last:
            variant = self.without(best, step) if step < number else None
            if variant is not None:
                yield (step,), variant
            step //= 2

    def after_success(self, place: Place) -> Place:
        return place


@dataclass(frozen=True, slots=True)
class Lowered:
    """Makes the arguments of one command after the other smaller."""

    name: str = "lower arguments"

    def variants(self, best: Best, place: Place) -> Iterator[tuple[Place, TraceVariant]]:
        position, first = place or (0, 0)
        for position_now in range(position, len(best.relative)):
            lower = _smaller_commands(best.relative[position_now], best.commands)
            for number, smaller in enumerate(islice(lower, first, None), start=first):
                changed = (
                    *best.relative[:position_now], smaller, *best.relative[position_now + 1 :]
                )  # fmt: skip
                yield (position_now, number), TraceVariant(best.setup, changed)
            first = 0

    def after_success(self, place: Place) -> Place:
        return place[0], 0


def passes_for(best: Best) -> Sequence[Pass]:
    """The passes of a round, in their order."""
    short, long = PASSES_AT[best.setup.level]
    return long if len(best.relative) > LONG_TRACE else short


def _smaller_commands(
    item: RelativeCommand, context: Sequence[Command]
) -> Iterable[RelativeCommand]:
    if isinstance(item.command, ManagerCommand):
        return map(RelativeCommand, lowered_manager_command(item.command))
    if isinstance(item.command, EngineCommand):
        return map(RelativeCommand, lowered_engine_command(item.command))
    return lowered(item, context)


def _of(
    candidates: Callable[[Candidate], Iterable[Candidate]],
) -> Callable[[Best], Iterable[TraceVariant]]:
    """Variants that change nothing but the commands."""
    return lambda best: (TraceVariant(best.setup, each) for each in candidates(best.relative))


def _one_reference_less(best: Best) -> Iterator[TraceVariant]:
    for candidate in one_reference_less(best.commands, best.relative):
        yield TraceVariant(best.setup, candidate)


def _smaller_prompts(best: Best) -> Iterator[TraceVariant]:
    block_size = int(best.setup.options["block_size"])
    for candidate in smaller_everywhere(best.relative, block_size):
        yield TraceVariant(best.setup, candidate)


def _steps_traded(best: Best) -> Iterator[TraceVariant]:
    block_size = int(best.setup.options["block_size"])
    for candidate in steps_traded(best.relative, block_size):
        yield TraceVariant(best.setup, candidate)


def _several_steps_traded(best: Best) -> Iterator[TraceVariant]:
    block_size = int(best.setup.options["block_size"])
    for candidate in several_steps_traded(best.relative, block_size):
        yield TraceVariant(best.setup, candidate)


def _shorter_requests(best: Best) -> Iterator[TraceVariant]:
    block_size = int(best.setup.options["block_size"])
    for candidate in shorter_requests(best.relative, block_size):
        yield TraceVariant(best.setup, candidate)


def _shorter_prompts(best: Best) -> Iterator[TraceVariant]:
    block_size = int(best.setup.options.get("block_size", 1))
    if block_size > 1:
        for candidate in shorter_prompts(best.relative, block_size):
            yield TraceVariant(best.setup, candidate)


def _plainer_keys_and_blocks(best: Best) -> Iterator[TraceVariant]:
    for candidate in simpler_index_traces(best.relative, best.setup.profile.fixed_hash_bytes):
        yield TraceVariant(best.setup, candidate)


def _only_blocks_that_are_named(best: Best) -> Iterator[TraceVariant]:
    """An index has no blocks of its own: no more of them than the trace names."""
    fewest = least_num_blocks(best.commands)
    if fewest < best.setup.num_blocks:
        yield TraceVariant(replace(best.setup, num_blocks=fewest), best.relative)


def _with_blocks(setup: Trace, num_blocks: int) -> Trace | None:
    """The set-up with so many blocks; None where there cannot be so few."""
    if num_blocks < 1 or (setup.profile.null_block or 0) >= num_blocks:
        return None
    return replace(setup, num_blocks=num_blocks)


def _smaller_pool(best: Best, number: int) -> TraceVariant | None:
    """The same commands in a large pool that has so many blocks less."""
    setup = _with_blocks(best.setup, best.setup.num_blocks - number)
    is_large = not Naming.is_small(best.setup.num_blocks)
    return TraceVariant(setup, best.relative) if setup is not None and is_large else None


def _earlier_end(best: Best, number: int) -> TraceVariant | None:
    """Without the last commands, where not everything was read after each of them."""
    is_large = not Naming.is_small(best.setup.num_blocks)
    return TraceVariant(best.setup, best.relative[:-number]) if is_large else None


def _one_block_less(best: Best) -> Iterator[TraceVariant]:
    """One block less at a time, and with it whatever the trace cannot do without it."""
    setup = _with_blocks(best.setup, best.setup.num_blocks - 1)
    if setup is None or not Naming.is_small(setup.num_blocks):
        return
    for candidate in for_one_block_less(best.relative):
        yield TraceVariant(setup, candidate)
    if setup.level.has_sequences:
        for candidate in (*without_a_sequence(best.relative), *fewer_tokens(best.relative)):
            yield TraceVariant(setup, candidate)


def _together(
    shorter: Callable[[Best, int, int], Candidate | None],
) -> Callable[[Best, int], TraceVariant | None]:
    """So many blocks less, and with them what filled them: given the block size and the number."""

    def without(best: Best, number: int) -> TraceVariant | None:
        setup = _with_blocks(best.setup, best.setup.num_blocks - number)
        commands = shorter(best, int(best.setup.options["block_size"]), number)
        return None if setup is None or commands is None else TraceVariant(setup, commands)

    return without


def _in_proportion(best: Best, block_size: int, fewer: int) -> Candidate:
    return shorter_in_proportion(best.relative, block_size, best.setup.num_blocks, fewer)


def _by_as_many(best: Best, block_size: int, fewer: int) -> Candidate | None:
    return shorter_by_as_many(best.relative, block_size, fewer)


def _longest_shorter(best: Best, block_size: int, fewer: int) -> Candidate | None:
    return longest_shorter(best.relative, block_size, fewer)


def _blocks_if_large(best: Best) -> int:
    """How many there are in a large pool; 0 in a small one, where nothing is done so early."""
    return 0 if Naming.is_small(best.setup.num_blocks) else best.setup.num_blocks


def _last_commands(best: Best) -> Iterator[TraceVariant]:
    """The last commands alone, few of them first."""
    count = 16
    while count < len(best.relative):
        yield TraceVariant(best.setup, best.relative[-count:])
        count *= 2


def _verbs(best: Best) -> list[Hashable | None]:
    return [item.command.verb for item in best.relative]


def _sequences(best: Best) -> list[Hashable | None]:
    return [getattr(item.command, "seq_id", None) for item in best.relative]


def _a_block_less(best: Best) -> Iterator[TraceVariant]:
    """The same in fewer blocks: half of them, or one less."""
    for number in (best.setup.num_blocks // 2, 1):
        setup = _with_blocks(best.setup, best.setup.num_blocks - number)
        if setup is not None and number:
            yield TraceVariant(setup, best.relative)


def _requests(best: Best) -> list[Hashable | None]:
    return [getattr(item.command, "request_id", None) for item in best.relative]


def _length(best: Best) -> int:
    return len(best.relative)


def _blocks(best: Best) -> int:
    return best.setup.num_blocks


def _places(best: Best) -> range:
    return range(len(best.relative))


def _plainer_setup(best: Best) -> Iterator[TraceVariant]:
    """An ordinary session in place of a careful one; events read more often."""
    options = dict(best.setup.options)
    every = int(options.get(EVENTS_EVERY, 1))
    if options.pop(CAREFUL, None):
        yield TraceVariant(replace(best.setup, options=options), best.relative)
    for fewer in dict.fromkeys(
        (1, 2, every // 16, every // 4, every // 2, every * 3 // 4, every - 1)
    ):
        if 0 < fewer < every:
            changed = {**best.setup.options, EVENTS_EVERY: fewer}
            if fewer == 1:
                del changed[EVENTS_EVERY]
            yield TraceVariant(replace(best.setup, options=changed), best.relative)


# What changes the size of a pool: variants with another `setup.num_blocks`. A large pool costs
# every attempt its construction, so large steps come first; what takes many attempts comes late.
_MUCH_SMALLER_POOL: tuple[Pass, ...] = (
    TakenAway("much smaller pool", _blocks, _smaller_pool, finest=16),
)
_SMALLER_POOL: tuple[Pass, ...] = (TakenAway("smaller pool", _blocks, _smaller_pool),)
_MUCH_SMALLER_TOGETHER: tuple[Pass, ...] = (
    TakenAway(
        "much smaller pool and texts", _blocks_if_large, _together(_in_proportion), finest=16
    ),
)
_TOGETHER: tuple[Pass, ...] = (
    TakenAway("pool and texts in proportion", _blocks, _together(_in_proportion)),
    TakenAway("pool and texts by as many", _blocks, _together(_by_as_many)),
    TakenAway("pool and longest text", _blocks, _together(_longest_shorter)),
)
_TOKENS_LOWERED: tuple[Pass, ...] = (Repeated("tokens lowered", _of(tokens_lowered)),)
LAST_RESORTS = frozenset(each.name for each in (*_TOGETHER, *_TOKENS_LOWERED))
"""The names of passes that are tried where no other finds anything smaller. Taken earlier, what
they find could lead to another end, which may be longer."""
_PLAINER_SETUP: tuple[Pass, ...] = (Repeated("plainer set-up", _plainer_setup),)
_ONE_BLOCK_LESS: tuple[Pass, ...] = (Repeated("one block less", _one_block_less),)

_LARGE_CUTS: tuple[Pass, ...] = (
    TakenAway("earlier end", _length, _earlier_end),
    Repeated("last commands", _last_commands),
    WithoutWindows("one verb less", _verbs, longest=10**6),
    WithoutWindows("large windows", _places, shortest=FINEST_OF_LONG),
)
_SINGLE_COMMANDS: tuple[Pass, ...] = (
    Repeated("merge calls", _of(calls_merged)),
    Repeated("one reference less", _one_reference_less),
    *_ONE_BLOCK_LESS,
    Lowered(),
)
_SHORTER_PROMPTS: tuple[Pass, ...] = (
    Repeated("blocks handed out earlier", _of(blocks_handed_out_earlier)),
    Repeated("shorter prompts", _shorter_prompts),
)
_PAIRS: tuple[Pass, ...] = (Repeated("two commands less", _of(two_commands_less)),)

_PASSES: tuple[Pass, ...] = (
    *_PLAINER_SETUP,
    *_SMALLER_POOL,
    WithoutWindows("windows", _places),
    *_SINGLE_COMMANDS,
    *_SHORTER_PROMPTS,
    *_PAIRS,
)
_LONG_PASSES: tuple[Pass, ...] = (
    *_PLAINER_SETUP,
    *_MUCH_SMALLER_POOL,
    *_LARGE_CUTS,
    *_SMALLER_POOL,
    WithoutWindows("small windows", _places, longest=2 * FINEST_OF_LONG),
    *_SINGLE_COMMANDS,
)
_SMALLER_PROMPTS: tuple[Pass, ...] = (Repeated("smaller prompts", _smaller_prompts),)
_PASSES_OF_MANAGERS: tuple[Pass, ...] = (
    *_PLAINER_SETUP,
    *_SMALLER_POOL,
    *_MUCH_SMALLER_TOGETHER,
    WithoutWindows("windows", _places),
    *_SINGLE_COMMANDS,
    *_SMALLER_PROMPTS,
    *_PAIRS,
    *_TOGETHER,
)
_LONG_PASSES_OF_MANAGERS: tuple[Pass, ...] = (
    WithoutWindows("fewer sequences", _sequences, shortest=FINEST_OF_LONG),
    *_MUCH_SMALLER_TOGETHER,
    *_LONG_PASSES,
    *_SMALLER_PROMPTS,
    *_TOGETHER,
)
_PLAINER_NAMES: tuple[Pass, ...] = (
    Repeated("plainer keys and blocks", _plainer_keys_and_blocks),
    Repeated("only blocks that are named", _only_blocks_that_are_named),
)
_PASSES_OF_INDEXES: tuple[Pass, ...] = (
    WithoutWindows("windows", _places),
    *_PLAINER_NAMES,
    Lowered(),
    *_PAIRS,
)
_LONG_PASSES_OF_INDEXES: tuple[Pass, ...] = (
    *_LARGE_CUTS,
    WithoutWindows("small windows", _places, longest=2 * FINEST_OF_LONG),
    *_PLAINER_NAMES,
)

_PASSES_OF_ENGINES: tuple[Pass, ...] = (
    WithoutWindows("fewer requests", _requests),
    Repeated("steps run at once", _of(steps_run_at_once)),
    *_MUCH_SMALLER_TOGETHER,
    Repeated("large tokens lowered", _of(large_tokens_lowered)),
    Repeated("a block less", _a_block_less),
    WithoutWindows("windows", _places),
    Repeated("steps traded", _steps_traded),
    Repeated("several steps traded", _several_steps_traded),
    Repeated("stopped early", _of(stopped_early)),
    Repeated("shorter requests", _shorter_requests),
    Lowered(),
    *_PAIRS,
    *_TOGETHER,
    *_TOKENS_LOWERED,
)
_LONG_PASSES_OF_ENGINES: tuple[Pass, ...] = (
    Repeated("last commands", _last_commands),
    WithoutWindows("fewer requests", _requests),
    *_MUCH_SMALLER_TOGETHER,
    Repeated("large tokens lowered", _of(large_tokens_lowered)),
    WithoutWindows("large windows", _places, shortest=FINEST_OF_LONG),
    Repeated("steps run at once", _of(steps_run_at_once)),
    WithoutWindows("small windows", _places, longest=2 * FINEST_OF_LONG),
    *_SMALLER_POOL,
    *_TOGETHER,
)

PASSES_AT: Mapping[Level, tuple[Sequence[Pass], Sequence[Pass]]] = {
    Level.QUEUE: (_PASSES, _LONG_PASSES),
    Level.INDEX: (_PASSES_OF_INDEXES, _LONG_PASSES_OF_INDEXES),
    Level.POOL: (_PASSES, _LONG_PASSES),
    Level.MANAGER: (_PASSES_OF_MANAGERS, _LONG_PASSES_OF_MANAGERS),
    Level.ENGINE: (_PASSES_OF_ENGINES, _LONG_PASSES_OF_ENGINES),
}
"""For traces of usual length and for long ones."""
