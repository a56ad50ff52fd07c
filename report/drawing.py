"""A pool's, queue's or index's trace as a table: after each command, the states as they must be.

Computed on the reference alone, so that a trace can be drawn anywhere, without its target. The
states are those of a right allocator; what the target did instead is what the violation's sentence
says, and its command is marked. Colours and borders are added where the table is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from poolproof.contract.commands import (
    Append,
    AppendN,
    Command,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
)
from poolproof.contract.index_commands import (
    Clear,
    Contains,
    Get,
    IndexCommand,
    IndexKey,
    Insert,
    Pop,
)
from poolproof.contract.trace import Trace
from poolproof.reference.dict_index import DictIndex
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.legality import queue_misuse_of
from poolproof.report.expected_pool import ExpectedPool, LostTrackError
from poolproof.report.key_letters import KeyLetters
from poolproof.report.wording import num_blocks_of, shortened

__all__ = ["HEADINGS", "Drawing", "Row", "draw_index", "draw_pool", "draw_queue"]

HEADINGS = ("#", "command", "free queue", "held", "index", "note")
"""Held: block x owners. Index: hash -> blocks. The free queue stands head first."""

_QUEUE_HEADINGS = (*HEADINGS[:3], "outside", *HEADINGS[4:])

_INDEX_HEADINGS = (*HEADINGS[:2], "index", "keys", "", HEADINGS[-1])
_MOST_NAMED = 6


_FIRST_ROWS, _LAST_ROWS = 24, 40
"""Of a longer trace the rows between these are left out; its file has every command."""


@dataclass(frozen=True, slots=True)
class Row:
    """One command and the state after it; `violating` marks the command that broke something.

    An `expected` row belongs to the one above it: what should have stood there.
    """

    number: int
    command: str
    free_queue: str
    held: str
    index: str
    note: str
    violating: bool = False
    expected: bool = False

    def cells(self) -> tuple[str, ...]:
        """The cells in the order of `HEADINGS`; a mark stands beside the violating number."""
        number = f"> {self.number}" if self.violating else str(self.number)
        number = "" if self.expected else number
        return (number, self.command, self.free_queue, self.held, self.index, self.note)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The rows, the first of them before any command, and what each letter stands for."""

    rows: tuple[Row, ...]
    legend: tuple[tuple[str, str], ...]
    lost_track: str | None = None
    headings: tuple[str, ...] = HEADINGS
    caption: str = "the states are those of a right allocator; held is block x owners"


def draw_queue(trace: Trace) -> Drawing:
    """The drawing of a queue's trace."""
    return _drawn(trace, KeyLetters(), lambda _: _queue_states(trace), _QUEUE_HEADINGS)


def draw_index(trace: Trace) -> Drawing:
    """The drawing of an index's trace."""
    return _drawn(trace, KeyLetters(), partial(_index_states, trace), _INDEX_HEADINGS)


def draw_pool(trace: Trace) -> Drawing:
    """The drawing of a pool's trace."""
    return _drawn(trace, KeyLetters(), partial(_pool_states, trace), HEADINGS)


def _drawn(
    trace: Trace,
    letters: KeyLetters,
    states_of: Callable[[KeyLetters], Iterable[State]],
    headings: tuple[str, ...],
) -> Drawing:
    failing = -2 if trace.violation is None else trace.violation.command_index
    rows, lost = [], None
    left_out = range(_FIRST_ROWS, len(trace.commands) + 1 - _LAST_ROWS)
    for number, (text, cells, problem) in enumerate(states_of(letters)):
        lost = lost or problem
        if number not in left_out or len(left_out) < 2:
            rows.append(Row(number, text, *cells(), violating=number == failing + 1))
        elif number == left_out[0]:
            rows.append(Row(number, f".. {len(left_out):,} commands ..", "", "", "", ""))
    return Drawing(tuple(rows), tuple(letters.legend()), lost, headings)


State = tuple[str, Callable[[], tuple[str, str, str, str]], str | None]
"""A command, its cells, to be asked for before the next state, and why states are not known."""


def _pool_states(trace: Trace, letters: KeyLetters) -> Iterable[State]:
    expected = ExpectedPool(trace, letters)
    yield "", lambda: (*_pool_cells(expected.pool, letters), _setting(trace)), None
    lost: str | None = None
    for place, command in enumerate(trace.commands):
        letters.name_keys_of(command, expected.pool.block_size)
        text = letters.command(command)
        if lost is None:
            try:
                note = expected.apply(command, trace.commands[place + 1 :])
            except LostTrackError as error:
                lost = f"from command {place + 1} on the states are not known: {error}"
        if lost is None:
            yield text, partial(_pool_row, expected.pool, letters, note), None
        else:
            yield text, lambda: ("?", "?", "?", ""), lost


def _pool_row(pool: DictPool, letters: KeyLetters, note: str) -> tuple[str, str, str, str]:
    return (*_pool_cells(pool, letters), note)


def _pool_cells(pool: DictPool, letters: KeyLetters) -> tuple[str, str, str]:
    held = [
        f"{block}x{len(holders)}" if len(holders) > 1 else str(block)
        for block, holders in pool.holders.items()
        if holders
    ]
    index = [
        f"{letters.letter(key)}->{','.join(map(str, blocks))}"
        for key, blocks in pool.carriers.items()
    ]
    return shortened(list(map(str, pool.free))), shortened(held), shortened(sorted(index))


def _setting(trace: Trace) -> str:
    parts = [num_blocks_of(trace)]
    parts += [f"{trace.profile.null_block} is null"] if trace.profile.null_block is not None else []
    parts += [] if trace.enable_caching else ["caching off"]
    return ", ".join(parts)


def _queue_states(trace: Trace) -> Iterable[State]:
    queue = DictQueue(trace.num_blocks)
    yield "", lambda: (*_queue_cells(queue), num_blocks_of(trace)), None
    lost: str | None = None
    for place, command in enumerate(trace.commands):
        misuse = queue_misuse_of(queue, command)
        if lost is None and misuse is not None:
            lost = f"from command {place + 1} on the states are not known: {misuse}"
        if lost is None:
            note = _apply_to_queue(queue, command)
            yield str(command), partial(_queue_row, queue, note), None
        else:
            yield str(command), lambda: ("?", "?", "", ""), lost


def _queue_row(queue: DictQueue, note: str) -> tuple[str, str, str, str]:
    return (*_queue_cells(queue), note)


def _queue_cells(queue: DictQueue) -> tuple[str, str, str]:
    outside = [str(block) for block in range(queue.num_blocks) if block not in queue.order]
    return shortened(list(map(str, queue.order))), shortened(outside), ""


def _apply_to_queue(queue: DictQueue, command: Command) -> str:
    match command:
        case PopLeft():
            return f"gives {queue.popleft()}"
        case PopLeftN(count=count):
            return f"gives {shortened(list(map(str, queue.popleft_n(count)))) if count else 'none'}"
        case Remove(block_id=block_id):
            queue.remove(block_id)
        case Append(block_id=block_id):
            queue.append(block_id)
        case AppendN(block_ids=ids):
            queue.append_n(ids)
        case PrependN(block_ids=ids):
            queue.prepend_n(ids)
    return ""


def _index_states(trace: Trace, letters: KeyLetters) -> Iterable[State]:
    index = DictIndex(trace.profile.duplicates)
    yield "", lambda: ("-", "0", "", num_blocks_of(trace)), None
    lost: str | None = None
    for place, command in enumerate(trace.commands):
        if lost is None and not isinstance(command, IndexCommand):
            lost = (
                f"from command {place + 1} on the states are not known: {command.verb} is none of "
            )
            lost += "an index's commands"
        note = _apply_to_index(index, command) if lost is None else ""
        key: IndexKey | None = getattr(command, "key", None)
        block: int | None = getattr(command, "block_id", None)
        arguments = [letters.letter(key)] if key is not None else []
        arguments += [str(block)] if block is not None else []
        text = f"{command.verb}({', '.join(arguments)})"
        if lost is not None:
            yield text, lambda: ("?", "?", "", ""), lost
            continue
        yield text, partial(_index_row, index, letters, note), None


def _index_row(index: DictIndex, letters: KeyLetters, note: str) -> tuple[str, str, str, str]:
    filed = [
        f"{letters.letter(key)}->{_some(list(map(str, blocks)))}"
        for key, blocks in index.carriers.items()
    ]
    return shortened(sorted(filed)), str(len(filed)), "", note


def _apply_to_index(index: DictIndex, command: Command) -> str:
    match command:
        case Insert(key=key, block_id=block_id):
            index.insert(key, block_id)
        case Pop(key=key, block_id=block_id):
            return f"gives {index.pop(key, block_id)}"
        case Get(key=key):
            carriers = list(map(str, index.carriers.get(key, ())))
            return f"gives {' or '.join(carriers[:_MOST_NAMED]) or None}"
        case Contains(key=key, block_id=block_id):
            return f"gives {index.contains(key, block_id)}"
        case Clear():
            index.clear()
    return ""


def _some(blocks: Sequence[str]) -> str:
    """The first ids of a key's, and how many there are."""
    shown = ",".join(blocks[:_MOST_NAMED])
    return shown if len(blocks) <= _MOST_NAMED else f"{shown},.. ({len(blocks):,})"
