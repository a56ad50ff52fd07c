"""The steps of a trace as boxes: each block with who has it, the queue in its order, the index.

Made of the rows of a drawing (`drawing.py` and those of managers and engines), so that pictures and
table cannot say different things. What a step has changed is marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
            yield DrawnStep(title, row.note, right, marked, is_broken=row.violating)
        elif row.violating and trace.violation is not None:
            found = sentence_of(trace, trace.violation)
            yield DrawnStep(title, row.note, marked, found, is_broken=True)
        else:
            yield DrawnStep(title, row.note, marked)
        before = shown


def _state(trace: Trace, drawing: Drawing, row: Row) -> tuple[StepRow, ...]:
    rows = []
    if drawing.headings == HEADINGS and trace.num_blocks <= _MOST_BLOCKS:
        blocks = tuple(Span(text) for text in _blocks(trace, row))
        rows.append(StepRow("blocks", blocks))
    cells = zip(drawing.headings[_STATES], row.cells()[_STATES], strict=True)
    for heading, cell in cells:
        if heading:
            items = tuple(Span(item) for item in cell.split() if item != "-")
            rows.append(StepRow(heading, items))
    return tuple(rows)


def _blocks(trace: Trace, row: Row) -> Iterator[str]:
    """Each block of a pool with its owners and hashes: `0: free, a`."""
    if "?" in (row.free_queue, row.held):
        return
    free = row.free_queue.split()
    held = {item.partition("x")[0]: item.partition("x")[2] or "1" for item in row.held.split()}
    for number in range(trace.num_blocks):
        block = str(number)
        pairs = (item.partition("->") for item in row.index.split())
        hashes = [letter for letter, _, blocks in pairs if block in blocks.split(",")]
        if number == trace.profile.null_block:
            state = "null"
        elif block in held:
            state = f"held x{held[block]}" if held[block] != "1" else "held"
        else:
            state = "free" if block in free else "-"
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
