"""How a finding reads: the sentence, the steps, what is known around it, what to run.

Also draws a bare trace, for `poolproof show`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from poolproof.certification.consequence import Consequence, read_name
from poolproof.certification.finding import Finding, FindingStatus
from poolproof.contract.trace import Trace
from poolproof.contract.trace_harm import TraceHarm
from poolproof.contract.violation import Severity, Violation
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Facts,
    Indented,
    Narrow,
    Paragraph,
    ReportPart,
    ShellLine,
    Span,
    TableColumn,
    TableRow,
    Tone,
    Wide,
    facts,
)
from poolproof.report.drawing import Drawing
from poolproof.report.glossary import meanings_of
from poolproof.report.level_views import VIEWS, sentence_of
from poolproof.report.manager_drawing import command_words
from poolproof.report.source_lines import line_of
from poolproof.report.step_drawing import steps_of
from poolproof.report.wording import harm_of_trace, num_blocks_of, set_up_of, severity_words
from poolproof.targets.target_spec import profile_words

__all__ = [
    "consequence_words",
    "drawing_of",
    "finding_blocks",
    "finding_report",
    "form_words",
    "harm_of",
    "trace_report",
]

_MOST_LETTERS = 26

MOST_COMMANDS = 12
"""So many commands that lead to a wrong read are written out."""

MOST_FORMS = 8
"""So many of the other forms of a finding are listed, unless more invariants were broken."""

_LABEL_WIDTH = len("as a test")


def finding_report(finding: Finding, trace_file: str | None = None) -> Document:
    """The whole report of one finding; `trace_file` is where its trace was written."""
    trace = finding.whole_trace()
    blocks = (*finding_blocks(finding, trace_file), *_explained(trace))
    return Document(_title(trace), "", blocks, is_broken=True)


def trace_report(trace: Trace) -> Document:
    """The violation on top, the steps below it."""
    around: list[Block] = [Paragraph(profile_words(trace.profile, tuple(trace.profile.to_json())))]
    if trace.violation is not None and trace.violation.frames:
        around.append(Paragraph(f"In the target's code: {' <- '.join(trace.violation.frames)}"))
    blocks: list[Block] = list(_trace_blocks(trace, harm_of_trace(trace)))
    if trace.violation is not None and trace.harm is not None:
        known = list(_recorded_harm(trace, trace.violation, trace.harm))
        blocks += [Indented((_facts(iter(known)),))] if known else []
    blocks += [Wide(tuple(around)), *_explained(trace)]
    return Document(_title(trace), "", tuple(blocks), is_broken=trace.violation is not None)


def _recorded_harm(
    trace: Trace, violation: Violation, harm: TraceHarm
) -> Iterator[tuple[str, str]]:
    """What the file says of the harm, without a run: what it leads to, and where that shows."""
    if not harm.was_tried:
        return
    if harm.sentence:
        yield "leads to", f"{harm.invariant} at {harm.operation}: {harm.sentence}"
        if trace.fingerprint is not None:
            yield "by", f"the trace {read_name(trace.fingerprint)}, which lies beside this one"
    else:
        yield "leads to", _not_read(violation.severity, harm)


def _not_read(feared: Severity, tried: TraceHarm | Consequence) -> str:
    """That no wrong read was seen, and how much was tried."""
    words = severity_words(feared).partition(",")[0]
    count = f"nobody read any in {tried.num_continuations:,} continuations"
    rest = f"; {tried.remark}" if tried.remark else ""
    return f"{words} is feared and not shown: {count} ({tried.num_commands:,} commands){rest}"


def _explained(trace: Trace) -> tuple[Block, ...]:
    """Where there is room: the line of the target's own source, and what the invariant means."""
    if trace.violation is None:
        return ()
    rows: list[tuple[str, str]] = []
    for entry in meanings_of(trace.violation.invariant):
        rows += [(entry.name, entry.meaning)] + [("usually", entry.causes)] * bool(entry.causes)
    place = line_of(trace)
    if place is not None:
        rows.append(("source", f"{place.path}:{place.line}: {place.text}"))
    return (Wide((ReportPart("What it means", (facts(*rows),)),)),) if rows else ()


def finding_blocks(finding: Finding, trace_file: str | None = None) -> tuple[Block, ...]:
    """What `finding_report` says, for a report with several findings."""
    name = trace_file or finding.fingerprint
    blocks: list[Block] = list(_trace_blocks(finding.whole_trace(), harm_of(finding)))
    if finding.forms:
        blocks.append(Indented((_facts(_forms(finding)),)))
    blocks.append(Indented((_facts(_surroundings(finding)),)))
    commands = [("replay", f"poolproof replay {name}")]
    commands.append(("as a test", f"poolproof show {name} --as pytest"))
    if finding.consequence is not None and finding.consequence.trace is not None:
        read = read_name(finding.fingerprint)
        where = str(Path(trace_file).with_name(f"{read}.jsonl")) if trace_file else read
        commands.append(("the read", f"poolproof show {where}"))
    commands.append(("meaning", f"poolproof explain {name}"))
    for label, line in commands:
        blocks.append(ShellLine(label, line, _LABEL_WIDTH, indent=2))
    return tuple(blocks)


def drawing_of(trace: Trace) -> Drawing:
    """The steps of a trace as the specification takes them, and what a manager showed."""
    return VIEWS[trace.level].draw(trace)


def harm_of(finding: Finding) -> str:
    """What the finding was shown to do, in words, or where nobody looked, what is feared."""
    return harm_of_trace(finding.whole_trace())


def _trace_blocks(trace: Trace, harm: str) -> Iterator[Block]:
    drawing = drawing_of(trace)
    version = f" {trace.target_version}" if trace.target_version else ""
    target = f"{trace.target}, {set_up_of(trace)}"
    if trace.violation is None:
        yield Paragraph(f"{target}: no violation recorded")
    else:
        yield _headline(trace, harm)
        yield Narrow((Indented((Paragraph(target),)),))
        yield Wide((Paragraph(f"{trace.target}{version}, {set_up_of(trace)}"),))
        yield Indented((Paragraph(_sentence(trace)),))
    yield Indented((_steps(drawing),))
    if VIEWS[trace.level].has_caption:
        yield Narrow((Indented((Paragraph(drawing.caption, Tone.DIM),)),))
    if drawing.lost_track:
        yield Indented((Paragraph(drawing.lost_track, Tone.WARNING),))
    yield Wide((Paragraph(f"After each command: {drawing.caption}.", Tone.DIM),))
    steps = steps_of(trace, drawing)
    if steps is not None:
        yield Wide((steps,))
    if drawing.legend:
        yield Narrow((Indented((_legend(drawing),)),))
        yield Wide((facts(*drawing.legend),))


def _title(trace: Trace) -> str:
    return f"{trace.fingerprint or 'trace'}: {trace.target}"


def _headline(trace: Trace, harm: str) -> Paragraph:
    violation = trace.violation
    assert violation is not None
    spans = (
        Span(trace.fingerprint or "no fingerprint"),
        Span(f"  {violation.invariant}", Tone.BAD),
        Span(f"  {harm}", Tone.ALARM),
    )
    return Paragraph(spans, Tone.STRONG)


def _sentence(trace: Trace) -> str:
    """The violation's sentence, with what was wanted above what was found."""
    assert trace.violation is not None
    text = sentence_of(trace, trace.violation)
    what, wanted, rest = text.partition("; wanted <")
    if not wanted:
        return text
    read, found, where = rest.partition(", found <")
    lines = [what, f"  wanted  <{read}"]
    return "\n".join([*lines, f"  found   <{where}"] if found else lines)


def _steps(drawing: Drawing) -> DataTable:
    shown = [
        place
        for place in range(len(drawing.headings))
        if place < 3 or any(row.cells()[place] not in ("", "-") for row in drawing.rows)
    ]
    columns = tuple(
        TableColumn(drawing.headings[place], is_number=place == 0, wraps=place != 0)
        for place in shown
    )
    rows = []
    for row in drawing.rows:
        cells = row.cells()
        tone = Tone.BAD if row.violating else Tone.GOOD if row.expected else Tone.PLAIN
        rows.append(TableRow.of(*(cells[place] for place in shown), tone=tone))
    return DataTable(columns, tuple(rows), gap=2)


def _legend(drawing: Drawing) -> Paragraph:
    shown = [
        f"{letter} = {_clipped(meaning)}" for letter, meaning in drawing.legend[:_MOST_LETTERS]
    ]
    left_out = len(drawing.legend) - _MOST_LETTERS
    shown += [f".. {left_out:,} more"] if left_out > 0 else []
    return Paragraph(", ".join(shown), Tone.DIM)


def _clipped(meaning: str) -> str:
    return meaning if len(meaning) <= 40 else f"{meaning[:37]}..."


def _forms(finding: Finding) -> Iterator[tuple[str, str]]:
    """The other forms of the same bug, a line each; of many at least one of each invariant.

    What is taken for a form may be another bug, and an invariant of its own is the best hint.
    """
    met = {finding.violation.invariant}
    first_of_each: list[Finding] = []
    for form in finding.forms:
        if form.violation.invariant not in met:
            met.add(form.violation.invariant)
            first_of_each.append(form)
    others = [form for form in finding.forms if form not in first_of_each]
    left_out = others[max(0, MOST_FORMS - len(first_of_each)) :]
    for form in finding.forms:
        if form not in left_out:
            yield "also met", form_words(form)
    if left_out:
        counts = Counter(form.violation.invariant for form in left_out)
        of_each = ", ".join(f"{count} {invariant}" for invariant, count in counts.items())
        forms = "form" if len(left_out) == 1 else "forms"
        yield "also met", f"and in {len(left_out)} more {forms}: {of_each}"


def form_words(form: Finding) -> str:
    """One form of a finding in one line."""
    commands = "1 command" if form.num_commands == 1 else f"{form.num_commands} commands"
    words = f"{form.fingerprint}  {form.violation.invariant}, {harm_of(form)}"
    return f"{words}, {form.kind.operation}, {commands}: {form.violation.sentence}"


def consequence_words(finding: Finding) -> Iterator[tuple[str, str]]:
    """The wrong read to which a finding leads, and how; or that none was seen. Label and text."""
    consequence = finding.consequence
    if consequence is None:
        return
    if consequence.trace is None or consequence.read is None:
        yield "leads to", _not_read(finding.violation.severity, consequence)
        return
    trace = consequence.trace
    yield "leads to", sentence_of(trace, consequence.read)
    words = list(map(command_words, trace.commands))
    left_out = len(words) - MOST_COMMANDS
    if left_out > 0:
        words[MOST_COMMANDS // 2 : -MOST_COMMANDS // 2] = [f".. {left_out:,} more .."]
    yield "by", f"with {num_blocks_of(trace)}: {'; '.join(words)}"


def _surroundings(finding: Finding) -> Iterator[tuple[str, str]]:
    yield from consequence_words(finding)
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


def _facts(pairs: Iterator[tuple[str, str]]) -> Facts:
    return facts(*pairs, label_width=_LABEL_WIDTH)
