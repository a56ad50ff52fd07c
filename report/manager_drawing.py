"""A manager trace as a table: after each command the free queue, the block tables and the index.

The table shows what the target showed, which a finding's trace stores, and below the command that
broke something what a right manager shows there. That comes from the specification, which runs
along; if the profile leaves a choice of blocks, its blocks are renamed to the target's. Sequences
are named A, B, ... and keys a, b, ...; the legend gives their prefixes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from poolproof.certification.manager_watch import Seen, watch
from poolproof.certification.right_target import right_target
from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Fork,
    Load,
    LookupPrefix,
    Resume,
    Schedule,
    Step,
    Truncate,
)
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.shown_state import Answer, Held, ShownState
from poolproof.contract.trace import Trace
from poolproof.harness.weak_hashes import with_full_hashes
from poolproof.invariants.wording import copy_list, sequence_name
from poolproof.report.drawing import Drawing, KeyLetters, Row, left_out_row, rows_left_out
from poolproof.report.wording import first_of, num_blocks_of, shortened

__all__ = ["RIGHT", "SHOWN", "command_words", "draw_manager"]

HEADINGS = ("#", "command", "free queue", "tables", "index", "note")
RIGHT = "the states are those of a right manager; what the target showed is not in the trace"
SHOWN = (
    "what the target showed, and where it broke what it was expected to show; the index, and a "
    "free queue that it hides, are as they must be"
)

_MOST_TOKENS = 20

_MOST_CARRIERS = 32
"""Of the blocks that carry one key; the pictures of small pools are made of all of them."""

_MOST_TABLES = 12
"""Of more sequences only those are written out whose tables have changed."""


def draw_manager(trace: Trace) -> Drawing:
    """What the target showed, if the trace has it, next to what the specification shows."""
    # Two contents that a weak hash takes for one are two contents to the specification.
    left_out = rows_left_out(trace)
    # With the one before the row behind the gap, which tells what that row changes.
    numbers = {n for n in range(len(trace.commands) + 1) if n not in left_out[:-1]}
    right = watch(with_full_hashes(trace), right_target(trace), wanted=numbers).seen
    letters = KeyLetters()
    failing = None if trace.violation is None else trace.violation.command_index + 1
    rows: list[Row] = []
    before: Seen | None = None
    known: Renaming | None = {}
    shown_before: ShownState | None = None
    for number in range(len(trace.shown) or len(right)):
        if number not in numbers:
            continue
        # The specification lacks some verbs, and may be led elsewhere where a profile is lenient.
        seen = right[number] if number < len(right) else None
        state = trace.shown[number] if trace.shown else right[number].shown
        if seen is None:
            known = None
        elif number != failing:
            # After the command that broke something nothing says which block is which.
            known = _renaming(seen.shown, state)
        expected = _renamed(seen, known) if seen is not None and known is not None else None
        if number in left_out:
            rows.append(left_out_row(left_out))
            before, shown_before = expected, state
            continue
        command = trace.commands[number - 1] if number else None
        words = "" if command is None else command_words(command, seen.batch if seen else ())
        note = _notes(state, command, expected, before, letters) if number else _setting(trace)
        cells = partial(_cells, letters=letters, before=shown_before)
        drawn = cells(state, expected)
        rows.append(Row(number, words, *drawn, note, violating=number == failing))
        if number == failing and trace.shown and expected is not None:
            rows += _expected_row(number, trace, state, expected, cells)
        before, shown_before = expected, state
    return _finished(trace, rows, letters, reached=max(len(trace.shown) or len(right), 1) - 1)


def _finished(trace: Trace, rows: list[Row], letters: KeyLetters, reached: int) -> Drawing:
    """The drawing with the commands that neither side has reached, and its legend."""
    failing = 0 if trace.violation is None else trace.violation.command_index + 1
    left_out = rows_left_out(trace)
    for number, command in enumerate(trace.commands[reached:], start=reached + 1):
        if number not in left_out:
            words = command_words(command)
            rows.append(Row(number, words, "?", "?", "?", "", violating=number == failing))
        elif number == left_out[-1]:
            rows.append(left_out_row(left_out))
    lost = None
    if len(trace.commands) > reached:
        lost = f"from command {reached + 1} on the states are not known: it is not legal there"
    several = len(getattr(trace.profile, "groups", ())) > 1
    legend = tuple(
        (letter, f"tokens {prefix.words()}" + (f" in group {prefix.group}" if several else ""))
        for prefix, letter in letters.prefixes()
    )
    return Drawing(tuple(rows), legend, lost, HEADINGS, SHOWN if trace.shown else RIGHT)


def _expected_row(
    number: int,
    trace: Trace,
    state: ShownState,
    expected: Seen,
    cells: Callable[[ShownState, Seen | None], tuple[str, str, str]],
) -> Iterator[Row]:
    """What a right manager shows after the command that broke something, if that differs."""
    right = expected.shown
    ordered = "unspecified" not in (
        trace.profile.eviction, getattr(trace.profile, "release_order", "")
    )  # fmt: skip
    in_order = list if ordered else sorted
    same_queue = state.free is None or in_order(state.free) == in_order(right.free or ())
    answers = [_answer(answer, expected.command) for answer in (state.answer, right.answer)]
    if not same_queue or state.held != right.held or answers[0] != answers[1]:
        yield Row(number, "expected", *cells(right, expected), answers[1], expected=True)


def _cells(
    state: ShownState, expected: Seen | None, letters: KeyLetters, before: ShownState | None
) -> tuple[str, str, str]:
    """A queue that the target does not show, and the index, are those of a right manager."""
    tables = _tables(state.held, () if before is None else before.held)
    if expected is None:
        free = "?" if state.free is None else shortened(state.free)
        return free, tables, "?"
    shown = expected.free if state.free is None else state.free
    return shortened(shown), tables, _index(expected, letters)


Renaming = dict[int, int]
"""The target's block for each block of the specification, where a profile leaves the choice."""


def _renaming(right: ShownState, shown: ShownState) -> Renaming | None:
    """How the blocks of two equal states correspond; None where the states are not equal."""
    names: Renaming = {}
    if len(right.held) != len(shown.held):
        return None
    for mine, its in zip(right.held, shown.held, strict=True):
        if [*map(len, mine.tables)] != [*map(len, its.tables)] or mine.place != its.place:
            return None
        if mine.place != "device":
            continue
        for table, other in zip(mine.tables, its.tables, strict=True):
            if any(names.setdefault(b, c) != c for b, c in zip(table, other, strict=True)):
                return None
    taken = set(names.values())
    left = [block for block in right.free or () if block not in names]
    there = [block for block in shown.free or left if block not in taken]
    names |= dict(zip(left, there, strict=False))
    return names if len(set(names.values())) == len(names) else None


def _renamed(seen: Seen, names: Renaming) -> Seen:
    """What the specification showed, in the blocks of the target."""

    def of(blocks: Iterable[int]) -> tuple[int, ...]:
        return tuple(names.get(block, block) for block in blocks)

    shown = seen.shown
    held = tuple(
        replace(one, tables=tuple(map(of, one.tables))) if one.place == "device" else one
        for one in shown.held
    )
    free = None if shown.free is None else of(shown.free)
    index = tuple((prefix, of(blocks)) for prefix, blocks in seen.index)
    return replace(seen, shown=replace(shown, free=free, held=held), index=index)


def command_words(command: Command, batch: Sequence[tuple[int, int]] = ()) -> str:
    """The command with sequences by their letters; `batch` is what a step computes."""
    seq_id: int | None = getattr(command, "seq_id", None)
    words = [command.verb if command.verb != "append_tokens" else "append"]
    words += [] if seq_id is None else [sequence_name(seq_id)]
    match command:
        case Step():
            words.append(", ".join(f"{sequence_name(s)} {count}" for s, count in batch))
        case Admit(chain=chain, num_tokens=count) | Load(chain=chain, num_tokens=count):
            words.append(_chain(chain) + (f", {count} of them" if count else ""))
        case LookupPrefix(chain=chain):
            words.append(_chain(chain))
        case AppendTokens(tokens=tokens) | Draft(tokens=tokens):
            words.append(_tokens(tokens))
        case Resume(num_tokens=count):
            words.append(f"{count} tokens" if count else "")
        case Schedule(num_tokens=count) | Accept(num_tokens=count):
            words.append(str(count))
        case Truncate(num_tokens=count):
            words.append(f"to {count}")
        case Fork(child_id=child_id):
            words.append(f"as {sequence_name(child_id)}")
    return " ".join(filter(None, words))


def _chain(chain: TokenChain) -> str:
    words = [_tokens(chain.tokens)]
    words += [f"lora {chain.lora[0]} at {chain.lora[1]}"] if chain.lora else []
    words += [f"salt {chain.salt}"] if chain.salt else []
    words += [f"image {i.identifier} at {i.offset}+{i.length}" for i in chain.images]
    return ", ".join(words)


def _tokens(tokens: Sequence[int]) -> str:
    if len(tokens) > 4 and len(set(tokens)) == 1:
        return f"[{tokens[0]} x {len(tokens)}]"
    if len(tokens) > _MOST_TOKENS:
        head, tail = (" ".join(map(str, part)) for part in (tokens[:8], tokens[-4:]))
        return f"[{head} .. {tail} ({len(tokens)})]"
    return f"[{' '.join(map(str, tokens))}]"


def _tables(held: Sequence[Held], before: Sequence[Held]) -> str:
    """Every table, or of many those that are not as they were before the command."""
    if len(held) <= _MOST_TABLES:
        return "; ".join(map(_table, held)) or "-"
    known = set(before)
    shown = [one for one in held if one not in known][:_MOST_TABLES]
    return "; ".join([*map(_table, shown), f".. {len(held) - len(shown):,} more"])


def _table(held: Held) -> str:
    groups = " | ".join(shortened(table) for table in held.tables)
    place = " host" if held.place == "host" else ""
    return f"{sequence_name(held.seq_id)}:{place} {groups}"


def _index(seen: Seen, letters: KeyLetters) -> str:
    def words(entry: tuple[Prefix, tuple[int, ...]]) -> str:
        return f"{letters.letter(entry[0])}->{first_of(entry[1], _MOST_CARRIERS)}"

    return shortened(seen.index, words)


def _notes(
    state: ShownState,
    command: Command | None,
    seen: Seen | None,
    before: Seen | None,
    letters: KeyLetters,
) -> str:
    """The answer, and the keys that were dropped."""
    kept = dict(seen.index) if seen is not None else {}
    known = before.index if seen is not None and before is not None else ()
    gone = [key for key, _ in known if key not in kept]
    notes = [
        _answer(state.answer, command),
        f"{shortened(gone, letters.letter)} gone" if gone else "",
    ]
    return "; ".join(filter(None, notes))


def _answer(answer: Answer, command: Command | None) -> str:
    if isinstance(answer, str | bool):
        return str(answer)
    if isinstance(answer, int):
        is_told = answer or isinstance(command, LookupPrefix)
        return f"{answer} tokens reported as cached" if is_told else ""
    if answer:
        return "copies " + copy_list(answer)
    return ""


def _setting(trace: Trace) -> str:
    null = trace.profile.null_block
    parts = [num_blocks_of(trace)]
    parts += [f"{null} is null"] if null is not None else []
    parts += [] if trace.enable_caching else ["caching off"]
    return ", ".join(parts)
