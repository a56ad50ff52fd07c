"""The steps of a trace as boxes: each block with who has it, the queue in its order, the index.

Made of the rows of a drawing (`drawing.py` and those of managers and engines), so that pictures and
table cannot say different things. What a step has changed is marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from poolproof.contract.trace import Trace
from poolproof.report.document import DrawnStep, Span, StepRow, Steps, Tone
from poolproof.report.drawing import HEADINGS, Drawing, Row
from poolproof.report.level_views import sentence_of

__all__ = ["steps_of"]

_MOST_BLOCKS = 32
"""In larger pools the blocks are not drawn one by one."""

_MOST_STEPS = 80
_STATES = slice(2, 5)
"""The cells of a row that say what the state is."""


def steps_of(trace: Trace, drawing: Drawing) -> Steps | None:
    """The steps of a drawing; None where there are too many, or no command at all."""
    if not 1 < len(drawing.rows) <= _MOST_STEPS:
        return None
    name = re.sub(r"[^a-z0-9-]", "", trace.fingerprint or "trace")
    return Steps(name, tuple(_steps(trace, drawing)))


def _steps(trace: Trace, drawing: Drawing) -> Iterator[DrawnStep]:
    before: tuple[StepRow, ...] = ()
    rows = list(drawing.rows)
    for place, row in enumerate(rows):
        if row.expected:
            continue  # belongs to the row above it
        shown = _state(trace, drawing, row)
        marked = _marked(shown, before)
        title = row.command or "before any command"
        below = rows[place + 1] if place + 1 < len(rows) else None
        if below is not None and below.expected:
            # What a manager or engine showed stands in the row, what was right below it.
            right = _marked(_state(trace, drawing, below), before)
            if row.note != below.note:
                right, marked = _with_answer(right, below), _with_answer(marked, row)
            found = "" if trace.violation is None else sentence_of(trace, trace.violation)
            yield DrawnStep(title, row.note, right, marked, is_broken=row.violating, found=found)
        elif row.violating and trace.violation is not None:
            found = sentence_of(trace, trace.violation)
            yield DrawnStep(title, row.note, marked, found, is_broken=True)
        else:
            yield DrawnStep(title, row.note, marked)
        before = shown


def _with_answer(rows: tuple[StepRow, ...], row: Row) -> tuple[StepRow, ...]:
    """The state with what was answered: often that alone is wrong, and the pictures are equal."""
    return (*rows, StepRow("answer", (Span(row.note or "none", Tone.STRONG),)))


def _state(trace: Trace, drawing: Drawing, row: Row) -> tuple[StepRow, ...]:
    rows = []
    if drawing.headings[2] == HEADINGS[2] and trace.num_blocks <= _MOST_BLOCKS:
        who_has = _owners(drawing.headings[3], row.held)
        blocks = tuple(Span(text) for text in _blocks(trace, row, who_has))
        rows += [StepRow("blocks", blocks)] if blocks else []
    cells = zip(drawing.headings[_STATES], row.cells()[_STATES], strict=True)
    for heading, cell in cells:
        if heading:
            items = tuple(Span(item) for item in cell.split() if item != "-")
            rows.append(StepRow(heading, items))
    return tuple(rows)


def _owners(heading: str, cell: str) -> dict[str, str]:
    """Who has each block, by its number, from the cell of a pool, a queue or a manager."""
    owners: dict[str, str] = {}
    if heading == "tables":
        for table in filter(None, cell.split("; ")):
            name, _, blocks = table.partition(":")
            if not blocks.startswith(" host"):
                for block in dict.fromkeys(blocks.replace("|", " ").split()):
                    owners[block] = f"{owners[block]} {name}" if block in owners else name
        return owners
    for item in cell.split():
        block, _, count = item.partition("x")
        word = "held" if heading == HEADINGS[3] else heading
        owners[block] = f"{word} x{count}" if count not in ("", "1") else word
    return owners


def _blocks(trace: Trace, row: Row, owners: Mapping[str, str]) -> Iterator[str]:
    """Each block with its owners and hashes: `0: free, a`; none where the state is not known."""
    if "?" in (row.free_queue, row.held) or ".." in (*row.free_queue.split(), *owners):
        return
    free = row.free_queue.split()
    for number in range(trace.num_blocks):
        block = str(number)
        pairs = (item.partition("->") for item in row.index.split())
        hashes = [letter for letter, _, blocks in pairs if block in blocks.split(",")]
        if number == trace.profile.null_block:
            state = "null"
        else:
            state = owners.get(block, "free" if block in free else "-")
        yield ", ".join([f"{block}: {state}", *hashes])


def _marked(now: tuple[StepRow, ...], before: tuple[StepRow, ...]) -> tuple[StepRow, ...]:
    """The rows, in which what was not there before is strong."""
    known = {row.label: {item.text for item in row.items} for row in before}
    return tuple(
        StepRow(
            row.label,
            tuple(
                Span(item.text, Tone.STRONG)
                if row.label in known and item.text not in known[row.label]
                else item
                for item in row.items
            ),
        )
        for row in now
    )
