"""How a finding reads in a terminal: the sentence, the steps, what is known around it, what to run.

Also draws a bare trace for `poolproof show`.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from poolproof.certification.finding import Finding, FindingStatus
from poolproof.contract.outside import printable
from poolproof.contract.trace import Trace
from poolproof.report.drawing import Drawing
from poolproof.report.level_views import VIEWS, sentence_of
from poolproof.report.wording import set_up_of, severity_words, shell_line

__all__ = ["drawing_of", "finding_report", "form_words", "plain_text", "trace_report"]

_MOST_LETTERS = 26

PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""

MOST_FORMS = 8
"""So many of the other forms of a finding are listed."""

_LABEL_WIDTH = len("as a test")


def finding_report(finding: Finding, trace_file: str | None = None) -> RenderableType:
    """The whole report of one finding; `trace_file` is where its trace was written."""
    trace = finding.whole_trace()
    drawn = trace_report(trace)
    name = trace_file or finding.fingerprint
    if finding.forms:
        drawn = Group(drawn, Padding(_facts(_forms(finding)), (0, 2)))
    commands = [("replay", f"poolproof replay {name}")]
    commands.append(("as a test", f"poolproof show {name} --as pytest"))
    lines = [shell_line(label, text, _LABEL_WIDTH, indent=2) for label, text in commands]
    return Group(drawn, Padding(_facts(_surroundings(finding)), (0, 2)), *lines)


def drawing_of(trace: Trace) -> Drawing:
    """The steps of a trace as the specification takes them, and what a manager showed."""
    return VIEWS[trace.level].draw(trace)


def trace_report(trace: Trace) -> RenderableType:
    """The violation on top, the steps below it."""
    drawing = drawing_of(trace)
    parts: list[RenderableType] = [_headline(trace)]
    if trace.violation is not None:
        parts.append(Padding(Text(_sentence(trace)), (0, 2)))
    parts.append(Padding(_steps(drawing), (0, 2)))
    if VIEWS[trace.level].has_caption:
        parts.append(Padding(Text(drawing.caption, style="dim"), (0, 2)))
    if drawing.lost_track:
        parts.append(Padding(Text(drawing.lost_track, style="yellow"), (0, 2)))
    if drawing.legend:
        parts.append(Padding(_legend(drawing), (0, 2)))
    return Group(*parts)


def plain_text(content: RenderableType, width: int = PLAIN_WIDTH) -> str:
    """Text for a file: no colours or trailing blanks, `width` columns except for shell lines."""
    console = Console(
        width=width, color_system=None, force_terminal=False, _environ={}, highlight=False
    )
    with console.capture() as captured:
        console.print(content, crop=False)
    lines = (line.rstrip() for line in captured.get().splitlines())
    return "\n".join(lines) + "\n"


def _headline(trace: Trace) -> RenderableType:
    violation = trace.violation
    target = Text(f"{printable(trace.target)}, {set_up_of(trace)}")
    if violation is None:
        return target.append(": no violation recorded")
    line = Text(printable(trace.fingerprint or "no fingerprint"), style="bold")
    line.append(f"  {printable(violation.invariant)}", style="bold red")
    line.append(f"  {severity_words(violation.severity)}", style="red")
    return Group(line, Padding(target, (0, 2)))


def _sentence(trace: Trace) -> str:
    """The violation's sentence, with what was wanted above what was found."""
    assert trace.violation is not None
    text = printable(sentence_of(trace, trace.violation))
    what, wanted, rest = text.partition("; wanted <")
    if not wanted:
        return text
    read, found, where = rest.partition(", found <")
    lines = [what, f"  wanted  <{read}"]
    return "\n".join([*lines, f"  found   <{where}"] if found else lines)


def _steps(drawing: Drawing) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    shown = [
        place
        for place in range(len(drawing.headings))
        if place < 3 or any(row.cells()[place] not in ("", "-") for row in drawing.rows)
    ]
    for place in shown:
        table.add_column(
            drawing.headings[place],
            justify="right" if place == 0 else "left",
            overflow="fold",
            no_wrap=place == 0,
        )
    for row in drawing.rows:
        cells = row.cells()
        style = "bold red" if row.violating else "green" if row.expected else None
        table.add_row(*(Text(printable(cells[place])) for place in shown), style=style)
    return table


def _legend(drawing: Drawing) -> Text:
    shown = [
        f"{letter} = {_clipped(meaning)}" for letter, meaning in drawing.legend[:_MOST_LETTERS]
    ]
    left_out = len(drawing.legend) - _MOST_LETTERS
    shown += [f".. {left_out:,} more"] if left_out > 0 else []
    return Text(printable(", ".join(shown)), style="dim")


def _clipped(meaning: str) -> str:
    return meaning if len(meaning) <= 40 else f"{meaning[:37]}..."


def _forms(finding: Finding) -> Iterator[tuple[str, str]]:
    """The other forms of the same bug, a line each."""
    label = "also met"
    for form in finding.forms[:MOST_FORMS]:
        yield label, form_words(form)
        label = ""
    if len(finding.forms) > MOST_FORMS:
        yield "", f"and in {len(finding.forms) - MOST_FORMS} more forms"


def form_words(form: Finding) -> str:
    """One form of a finding in one line."""
    commands = "1 command" if form.num_commands == 1 else f"{form.num_commands} commands"
    severity = severity_words(form.violation.severity)
    words = f"{form.fingerprint}  {form.violation.invariant}, {severity}"
    return f"{words}, {form.kind.operation}, {commands}: {form.violation.sentence}"


def _surroundings(finding: Finding) -> Iterator[tuple[str, str]]:
    if finding.shortest_known:
        yield "shortest", finding.shortest_known
    if finding.begins_at:
        sizes = (f"{name} {size:,}" for name, size in finding.begins_at.items())
        yield "begins at", ", ".join(sizes)
    times = "in 1 run" if finding.runs_seen == 1 else f"in {finding.runs_seen:,} runs"
    seen = f"{times}, first after {finding.first_seen_steps:,} commands"
    yield "seen", seen + (f" ({'; '.join(finding.stages)})" if finding.stages else "")
    if finding.violation.frames:
        yield "code", " <- ".join(finding.violation.frames)
    if finding.similar:
        yield "like", ", ".join(f"{s.specimen_id} {s.thread}".strip() for s in finding.similar)
    if finding.ruled_out:
        yield "ruled out", ", ".join(finding.ruled_out)
    if finding.status is not FindingStatus.NEW:
        yield "status", finding.status.value
    if finding.remark:
        yield "note", finding.remark


def _facts(pairs: Iterator[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=_LABEL_WIDTH)
    table.add_column(overflow="fold")
    for label, value in pairs:
        table.add_row(label, Text(printable(value)))
    return table
