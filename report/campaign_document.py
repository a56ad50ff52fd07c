"""A campaign as a report and as tests: from its folder, or as the last words of a session.

On a terminal its lines are never broken, so that programs can look for them. A page has tables and
charts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from poolproof.contract.violation import Severity
from poolproof.fuzz.coverage_record import CodeCoverage
from poolproof.fuzz.status import CampaignStatus, FindingLine, WaitingLine
from poolproof.report.campaign_charts import charts_of
from poolproof.report.campaign_lines import waiting_text
from poolproof.report.campaign_record import CampaignRecord
from poolproof.report.campaign_words import (
    commands_words,
    coverage_words,
    duration_words,
    ending_words,
    forms_words,
    mean_rate,
    missing_words,
    reached_words,
    tapes_words,
    verdict_words,
    waiting_words,
)
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Fact,
    Facts,
    Figure,
    Narrow,
    Paragraph,
    ReportPart,
    ShellLine,
    TableColumn,
    TableRow,
    Tone,
    Wide,
    facts,
)
from poolproof.report.forms import ReportKind, json_text
from poolproof.report.junit_form import CaseOutcome, JunitCase, JunitSuite
from poolproof.report.svg_chart import Chart, svg_of
from poolproof.report.wording import harm_words, severity_words

__all__ = ["CAMPAIGN", "campaign_document", "coverage_facts", "session_document"]

_MOST_WAITING = 20
"""So many failing runs that wait are listed on a terminal; the others are counted."""

_LABEL_WIDTH = len("stability")


def session_document(
    status: CampaignStatus, num_earlier: int, coverage: CodeCoverage | None
) -> Document:
    """The last words of a session: how far the campaign is, and what its code coverage is."""
    rows = (*_progress(status, num_earlier), *(coverage_facts(coverage) if coverage else ()))
    return Document(_title(status.target), verdict_words(status, num_earlier), (_lines(rows),))


def campaign_document(record: CampaignRecord) -> Document:
    """A campaign as last recorded, with its charts where there is room."""
    status = record.status
    verdict = "nothing has been driven yet" if status is None else verdict_words(status)
    return Document(
        _title(record.settings.target),
        verdict,
        (Narrow(tuple(_summary(record))), Wide(tuple(_page(record)))),
        is_broken=bool(record.findings or record.waiting),
    )


def coverage_facts(coverage: CodeCoverage) -> Iterator[Fact]:
    """Figures, the curve, and for each file what was never reached."""
    yield Fact("code", coverage_words(coverage))
    if not coverage.files:
        return
    points = [
        f"{point.num_lines:,} lines and {point.num_states:,} states by "
        f"{tapes_words(point.num_tapes)}"
        for point in coverage.curve
    ]
    yield Fact("curve", ", ".join(points))
    for file in coverage.files:
        if file.missing_lines:
            yield Fact("unreached", f"{file.path}: {missing_words(file)}")


def _title(target: str) -> str:
    return f"Campaign against {target}"


def _lines(rows: Sequence[Fact]) -> Facts:
    return Facts(tuple(rows), _LABEL_WIDTH, wraps=False)


def _summary(record: CampaignRecord) -> Iterator[Block]:
    """What a terminal shows of a folder, with a line for each finding."""
    settings, status = record.settings, record.status
    if status is None:
        about = f"{settings.target}, {settings.level} level, {settings.num_blocks} blocks"
        undriven = "nothing has been driven yet: no worker has reported to this folder"
        rows = [Fact("target", about), Fact("state", undriven)]
        rows += [Fact("waiting", waiting_text(line)) for line in record.waiting]
    else:
        rows = [*_progress(status, 0), Fact("state", ending_words(status))]
    if record.coverage is not None:
        rows += coverage_facts(record.coverage)
    yield _lines(rows)
    for line in record.findings:
        yield Facts((Fact(line.fingerprint, _finding_words(line)),), label_width=0, wraps=False)
    yield _lines([Fact("damaged", sentence) for sentence in record.damage])


def _progress(status: CampaignStatus, num_earlier: int) -> Iterator[Fact]:
    yield Fact("target", f"{status.target}, {status.level} level, {status.scope}")
    yield Fact(
        "drove",
        f"{status.num_steps:,} steps in {status.num_runs:,} runs, "
        f"{status.seconds:,.1f} s, {mean_rate(status):,.0f} a second",
    )
    yield Fact("reached", f"{reached_words(status)}; corpus of {status.corpus_size:,} tapes")
    if status.stability is not None:
        yield Fact("stability", _stability_words(status.stability))
    if status.num_workers_lost:
        yield Fact("workers", f"{status.num_workers_lost} lost to the target")
    if status.facts_missing:
        yield Fact("missing", "; ".join(status.facts_missing))
    yield Fact("seeds", ", ".join(status.seeds))
    for line in status.findings:
        if line.forms:
            yield Fact("forms", f"{line.fingerprint} was also met as {forms_words(line)}")
    for waiting in status.waiting[:_MOST_WAITING]:
        yield Fact("waiting", waiting_text(waiting))
    if len(status.waiting) > _MOST_WAITING:
        yield Fact("waiting", f"and {len(status.waiting) - _MOST_WAITING:,} more")
    yield Fact("verdict", verdict_words(status, num_earlier))


def _finding_words(line: FindingLine) -> str:
    leads = f"; leads to: {line.leads_to}" if line.leads_to else ""
    return (
        f"{line.invariant}  {line.severity}, {commands_words(line.num_commands)}, "
        f"after {duration_words(line.seconds)}: {line.sentence}{leads}"
    )


def _harm_of(line: FindingLine, level: str) -> str:
    """What the finding was shown to do, or where nobody looked, what is feared."""
    severity = Severity(line.severity)
    if line.leads_to:
        return severity_words(severity)
    return harm_words(severity, line.invariant, level)


def _stability_words(stability: float) -> str:
    return f"{100 * stability:.1f} % of repeated tapes visited the same states"


def _page(record: CampaignRecord) -> Iterator[Block]:
    """What there is room for on a page: tables, charts, the code that was never reached."""
    settings, status = record.settings, record.status
    if status is None:
        yield Paragraph(
            f"No worker has reported to this folder. The campaign is about {settings.level} level, "
            f"{settings.num_blocks} blocks, seed {settings.seed}."
        )
    rows = [*(_about(status) if status else ())]
    rows += [("damaged", sentence) for sentence in record.damage]
    if rows:
        yield facts(*rows)
    if record.findings:
        yield ReportPart("Findings", tuple(_findings(record.findings, settings.driven_level)))
    if record.waiting:
        title = f"{waiting_words(len(record.waiting))} to be minimised"
        yield ReportPart(title, tuple(_waiting(record.waiting, settings.driven_level)))
    yield from map(_figure, charts_of(record))
    if record.coverage is not None:
        yield ReportPart("Code of the target", tuple(_coverage(record.coverage)))
    yield Paragraph("A state that was reached was reached once, by one way.", Tone.DIM)


def _about(status: CampaignStatus) -> Iterator[tuple[str, str]]:
    drove = (
        f"{status.num_steps:,} steps in {status.num_runs:,} runs, {duration_words(status.seconds)}"
    )
    yield "scope", f"{status.level} level, {status.scope}"
    yield "reached", reached_words(status)
    yield "drove", f"{drove}, {mean_rate(status):,.0f} steps a second"
    yield "last new", f"{status.steps_since_new:,} steps before the end"
    yield "corpus", f"{status.corpus_size:,} tapes"
    if status.stability is not None:
        yield "stability", _stability_words(status.stability)
    yield "workers", f"{status.num_workers:,} at work, {status.num_workers_lost:,} lost over all"
    if status.facts_missing:
        yield "missing", "; ".join(status.facts_missing)
    yield "sessions", ", ".join(status.seeds)
    yield "state", ending_words(status)


def _findings(findings: Sequence[FindingLine], level: str) -> Iterator[Block]:
    columns = (
        *(TableColumn(name) for name in ("finding", "invariant", "severity")),
        *(TableColumn(name, is_number=True) for name in ("commands", "found after")),
        *(TableColumn(name) for name in ("what happened", "leads to", "other forms")),
    )
    rows = tuple(
        TableRow.of(
            line.fingerprint,
            line.invariant,
            _harm_of(line, level),
            line.num_commands,
            duration_words(line.seconds),
            line.sentence,
            line.leads_to,
            forms_words(line),
        )
        for line in findings
    )
    yield DataTable(columns, rows)
    # A fingerprint is found where the campaign ran.
    yield ShellLine("step by step", f"poolproof show {findings[0].fingerprint}")


def _waiting(lines: Sequence[WaitingLine], level: str) -> Iterator[Block]:
    columns = (
        *(TableColumn(name) for name in ("failing run", "invariant", "severity")),
        *(TableColumn(name, is_number=True) for name in ("commands so far", "met after")),
        TableColumn("what happened"),
    )
    rows = tuple(
        TableRow.of(
            line.name,
            line.invariant,
            harm_words(Severity(line.severity), line.invariant, level),
            line.num_commands,
            duration_words(line.seconds),
            line.sentence,
        )
        for line in lines
    )
    yield DataTable(columns, rows)
    yield Paragraph(
        "They count as failures. The next session of the campaign goes on minimising them.",
        Tone.DIM,
    )


def _figure(chart: Chart) -> Figure:
    columns = tuple(TableColumn(heading) for heading in chart.headings)
    rows = tuple(TableRow.of(*row) for row in chart.rows)
    return Figure(chart.title, chart.description, svg_of(chart), DataTable(columns, rows))


def _coverage(coverage: CodeCoverage) -> Iterator[Block]:
    yield Paragraph(coverage_words(coverage))
    if not coverage.files:
        return
    yield Paragraph(
        "Novelty of states guides the campaign, not this: a few tapes run what can be run, and "
        "after them every tape looks the same.",
        Tone.DIM,
    )
    headings = ("first tapes", "lines", "branches", "states")
    yield DataTable(
        tuple(TableColumn(heading, is_number=True) for heading in headings),
        tuple(
            TableRow.of(point.num_tapes, point.num_lines, point.num_branches, point.num_states)
            for point in coverage.curve
        ),
    )
    yield DataTable(
        tuple(
            TableColumn(heading) for heading in ("file", "lines", "branches", "lines never reached")
        ),
        tuple(
            TableRow.of(
                file.path,
                f"{file.num_reached} of {file.num_lines}",
                f"{file.num_taken} of {file.num_branches}",
                missing_words(file),
            )
            for file in coverage.files
        ),
    )


def _suites(record: CampaignRecord) -> Iterator[JunitSuite]:
    """What failed, minimised or not, and whether the campaign as a whole says anything."""
    cases = [
        JunitCase(
            name=f"{line.fingerprint} {line.invariant}",
            outcome=CaseOutcome.FAILURE,
            message=f"{_harm_of(line, record.settings.driven_level)}: {line.sentence}",
            kind=line.severity,
        )
        for line in record.findings
    ]
    cases += [
        JunitCase(
            name=f"{line.name} {line.invariant}",
            outcome=CaseOutcome.FAILURE,
            message=f"not minimal yet: {line.sentence}",
            kind=line.severity,
        )
        for line in record.waiting
    ]
    yield JunitSuite("findings", tuple(cases))
    yield JunitSuite("campaign", (_whole(record),))


def _whole(record: CampaignRecord) -> JunitCase:
    status = record.status
    outcome, message = CaseOutcome.PASSED, ""
    if record.damage:
        outcome = CaseOutcome.FAILURE if record.is_failure_lost else CaseOutcome.ERROR
        message = "; ".join(record.damage)
    elif status is None or (record.exit_status == 2 and not status.is_broken):
        outcome = CaseOutcome.ERROR
        message = "nothing has been driven yet" if status is None else verdict_words(status)
    output = None if status is None else f"{status.num_steps:,} steps, {reached_words(status)}"
    return JunitCase(
        name="concluded",
        seconds=0.0 if status is None else status.seconds,
        outcome=outcome,
        message=message,
        output=output,
    )


def _json(record: CampaignRecord) -> str:
    return json_text(
        {
            "format": "poolproof-campaign",
            "version": 1,
            "exit_status": record.exit_status,
            "settings": record.settings.to_json(),
            "status": None if record.status is None else record.status.to_json(),
            "findings": [asdict(line) for line in record.findings],
            "waiting": [asdict(line) for line in record.waiting],
            "coverage": None if record.coverage is None else record.coverage.to_json(),
            "damage": list(record.damage),
        }
    )


CAMPAIGN: ReportKind[CampaignRecord] = ReportKind(
    document_of=campaign_document,
    json_of=_json,
    name_of=lambda record: record.settings.target,
    suites_of=lambda record: tuple(_suites(record)),
)
