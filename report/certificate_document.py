"""The certificate of an allocator as a report, and as tests.

On a terminal the reports of the findings are between the table and the verdict, which comes last
because that is where readers of a log look.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from poolproof.certification.certificate import Certificate, StageOutcome, StageResult, Verdict
from poolproof.certification.finding import Finding, FindingStatus
from poolproof.certification.kernel_certificate import JudgedKernelFinding, KernelCertificate
from poolproof.certification.known_findings import ENTRIES_FILE
from poolproof.certification.lab import UNFINISHED
from poolproof.certification.verdict import (
    JudgedCertificate,
    JudgedFinding,
    failing,
    reasons_inconclusive,
)
from poolproof.contract.violation import Severity
from poolproof.report.document import (
    BREAK,
    Block,
    DataTable,
    Document,
    Drawn,
    Fact,
    Gap,
    Narrow,
    Paragraph,
    ReportPart,
    ShellLine,
    Span,
    TableCell,
    TableColumn,
    TableRow,
    Tone,
    Wide,
    facts,
)
from poolproof.report.finding_report import (
    consequence_words,
    finding_blocks,
    finding_report,
    harm_of,
)
from poolproof.report.forms import ReportKind, json_text
from poolproof.report.junit_form import CaseOutcome, JunitCase, JunitSuite
from poolproof.report.text_form import plain_text
from poolproof.targets.target_spec import profile_words

__all__ = [
    "CERTIFICATE",
    "certificate_document",
    "finding_case",
    "known_file_facts",
    "suites_of_judging",
    "verdict_fact",
    "verdict_line",
]

MOST_REPORTS = 5
"""So many findings are drawn on a terminal; the others get their line alone."""

_TONES = {
    StageOutcome.HOLDS: Tone.GOOD,
    StageOutcome.REFUSED: Tone.BAD,
    StageOutcome.INCONCLUSIVE: Tone.WARNING,
    StageOutcome.NOT_RUN: Tone.DIM,
}


def certificate_document(
    certificate: Certificate, trace_files: Mapping[str, str] | None = None
) -> Document:
    """A judged certificate. `trace_files` says where the trace of each fingerprint was written."""
    files = trace_files or {}
    blocks = (
        Paragraph(_first_line(certificate), Tone.STRONG),
        Narrow((facts(*_head(certificate), *_rows_in_words(certificate), *_around(certificate)),)),
        Wide((facts(*_head(certificate), *_around(certificate)),)),
        Gap(),
        _part("What was checked", _stages(certificate)),
        Gap(),
        _part("The ruler, and what was not checked", facts(*_tail(certificate), is_list=True)),
        *_findings(certificate, files),
        Gap(),
        *_known_file(certificate),
        Wide((
            ReportPart("The profile", (_profile_table(certificate),)),
            ReportPart("Run again", (
                ShellLine("", _command(certificate)),
                facts(("took", f"{certificate.seconds:.0f} s"), is_list=True),
            )),
        )),
        Narrow(tuple(_end(certificate, files))),
    )  # fmt: skip
    return Document(
        f"Certificate of {certificate.target}",
        verdict_line(certificate),
        blocks,
        is_broken=certificate.verdict is Verdict.REFUSED,
    )


def verdict_line(certificate: Certificate | KernelCertificate) -> str:
    """The verdict with its counts, in one line."""
    assert certificate.verdict is not None, "judge the certificate first"
    if certificate.verdict is Verdict.INCONCLUSIVE:
        return f"INCONCLUSIVE: {'; '.join(reasons_inconclusive(certificate))}"
    statuses = [finding.status for finding in certificate.findings]
    num_failing = len(failing(certificate))
    counts = [f"{num_failing} new"]
    for status in (FindingStatus.KNOWN, FindingStatus.BASELINE):
        number = statuses.count(status)
        counts += [f"{number} {status.value}"] if number else []
    passed = statuses.count(FindingStatus.NEW) - num_failing
    counts += [f"{passed} below --fail-on"] if passed else []
    fixed = len(certificate.fixed_known)
    counts += [f"{fixed} in the known file but fixed"] if fixed else []
    if certificate.verdict is Verdict.REFUSED:
        return f"REFUSED: {', '.join(counts)}"
    return "HOLDS" + (f": {', '.join(counts)}" if certificate.findings else "")


def verdict_fact(words: str) -> Fact:
    """The verdict where a terminal has it; a refusal stands out."""
    return Fact("verdict", words, Tone.BAD if words.startswith("REFUSED") else Tone.PLAIN)


def known_file_facts(certificate: JudgedCertificate[JudgedFinding]) -> Iterator[Fact]:
    """The entries of the known file that must be removed."""
    for fingerprint in certificate.fixed_known:
        yield Fact("fixed", f"{fingerprint} no longer fails: take it out of the known file")
    for fingerprint in certificate.expired_known:
        yield Fact("expired", f"{fingerprint}: its entry in the known file counts no longer")


def _first_line(certificate: Certificate) -> str:
    workers = "1 worker" if certificate.workers == 1 else f"{certificate.workers} workers"
    return (
        f"poolproof {certificate.poolproof_version}, contract {certificate.contract_version}, "
        f"depth {certificate.depth}, seed {certificate.seed}, {workers}"
    )


def _head(certificate: Certificate) -> Iterator[Fact]:
    version = f" {certificate.target_version}" if certificate.target_version else ""
    yield Fact("target", f"{certificate.target}{version} ({certificate.shape})")
    yield Fact("source", certificate.source, is_joined=True)


def _rows_in_words(certificate: Certificate) -> Iterator[Fact]:
    yield Fact("profile", profile_words(certificate.profile) or "nothing declared")
    if certificate.assumed:
        yield Fact("assumed", profile_words(certificate.profile, certificate.assumed))


def _around(certificate: Certificate) -> Iterator[Fact]:
    if certificate.limits:
        yield Fact("limits", ", ".join(certificate.limits))
    yield Fact("ran on", f"Python {certificate.python}, {certificate.platform}")
    for note in certificate.notes:
        yield Fact("note", note)


def _part(title: str, block: Block) -> ReportPart:
    """A part whose title a terminal leaves out."""
    return ReportPart(title, (block,), is_titled=False)


def _profile_table(certificate: Certificate) -> DataTable:
    """Each row of the profile, and whether the target declared it."""
    columns = (TableColumn("row"), TableColumn("value"), TableColumn("declared"))
    assumed = certificate.assumed
    rows = []
    for name in certificate.profile.to_json():
        _, _, value = profile_words(certificate.profile, (name,)).partition(" ")
        rows.append(TableRow.of(name, value, "no, assumed" if name in assumed else "yes"))
    return DataTable(columns, tuple(rows))


def _command(certificate: Certificate) -> str:
    """The line that certifies the same target with the same seed."""
    depth, seed = certificate.depth, certificate.seed
    return f"poolproof certify {shlex.quote(certificate.target)} --depth {depth} --seed {seed}"


def _stages(certificate: Certificate) -> DataTable:
    columns = tuple(
        TableColumn(
            heading, is_number=heading in ("steps", "runs", "facts"), wraps=heading == "result"
        )
        for heading in ("level", "stage", "steps", "runs", "facts", "result")
    )
    rows = []
    for stage in certificate.stages:
        required = len(stage.facts_required)
        reached = f"{required - len(stage.missing_facts)}/{required}" if required else None
        rows.append(
            TableRow((
                TableCell(stage.level),
                TableCell(stage.stage),
                TableCell(stage.steps or None),
                TableCell(stage.runs or None),
                TableCell(reached),
                TableCell(_result_words(certificate, stage), _TONES[stage.outcome]),
            ))
        )  # fmt: skip
    return DataTable(columns, tuple(rows))


def _result_words(certificate: Certificate, stage: StageResult) -> tuple[Span, ...]:
    """The outcome of a stage or each of its findings, then what there is to say of it."""
    shown = [found for found in certificate.findings if _is_of(found, stage)]
    said = [
        Span(_in_short(certificate, finding), link=f"#{finding.fingerprint}")
        for finding in shown[:MOST_REPORTS]
    ]
    if len(shown) > MOST_REPORTS:
        said.append(Span(f"and {len(shown) - MOST_REPORTS} more"))
    if stage.outcome is not StageOutcome.REFUSED or not said:
        said.insert(0, Span(stage.outcome.value))
    if stage.missing_facts:
        said.append(Span(f"never happened: {', '.join(stage.missing_facts)}"))
    if stage.note and stage.stage != UNFINISHED:
        said.append(Span(stage.note))
    return tuple(span for one in said for span in (BREAK, one))[1:]


def _is_of(finding: Finding, stage: StageResult) -> bool:
    return finding.level == stage.level and any(
        stage.stage in form.stages for form in finding.each_form
    )


def _in_short(certificate: Certificate, finding: Finding) -> str:
    passes = finding not in failing(certificate)
    word = finding.status.value if finding.status is not FindingStatus.NEW else "below --fail-on"
    invariants = dict.fromkeys(form.violation.invariant for form in finding.each_form)
    forms = f", {len(finding.forms) + 1} forms" if finding.forms else ""
    words = f"{', '.join(invariants)}{forms}"
    return f"{word if passes else 'REFUSED'} {finding.fingerprint} ({words})"


def _tail(certificate: Certificate) -> Iterator[tuple[str, str]]:
    if _unfinished(certificate):
        yield "not run", "everything else, until the methods are written"
        return
    ruler = f"{len(certificate.canaries_caught)}/{certificate.num_canaries} canaries caught"
    missed = certificate.canaries_missed
    yield "ruler", f"{ruler}, NOT {', '.join(missed)}" if missed else ruler
    if certificate.behaves_as:
        yield "behaves as", f"{certificate.behaves_as}: with that in its profile nothing fails"
    if certificate.never_called:
        yield "never called", ", ".join(certificate.never_called)
    for skipped in certificate.not_run:
        yield "not run", f"{skipped.what}: {skipped.why}"
    for gap in certificate.not_covered:
        yield "not covered", gap


def _findings(certificate: Certificate, files: Mapping[str, str]) -> Iterator[Block]:
    """A section each; where there is no room, of the first few."""
    for number, finding in enumerate(_reported_first(certificate)):
        section = _section("Finding", finding, files)
        yield from (Gap(), section) if number < MOST_REPORTS else (Wide((section,)),)
    for number, finding in enumerate(certificate.hardening):
        section = _section("Hardening", finding, files)
        if number < MOST_REPORTS:
            yield Gap()
            yield Narrow((Paragraph("hardening, never a failure:", Tone.DIM),))
            yield section
        else:
            yield Wide((section,))


def _section(what: str, finding: Finding, files: Mapping[str, str]) -> ReportPart:
    title = f"{what} {finding.fingerprint}: {finding.violation.sentence}"
    blocks = finding_blocks(finding, files.get(finding.fingerprint))
    name = finding.fingerprint if what == "Finding" else ""
    return ReportPart(title, (Drawn(blocks),), is_titled=False, name=name)


def _reported_first(certificate: Certificate) -> list[Finding]:
    """What fails the run, then the rest, each the worst first."""
    fails = failing(certificate)
    return sorted(certificate.findings, key=lambda f: (f not in fails, f.severity.rank))


def _known_file(certificate: Certificate) -> Iterator[Block]:
    entries = tuple(known_file_facts(certificate))
    if entries:
        yield facts(*entries, is_list=True)


def _end(certificate: Certificate, files: Mapping[str, str]) -> Iterator[Block]:
    yield facts(*_last_facts(certificate))
    fails = failing(certificate)
    if fails and not _unfinished(certificate):
        name = files.get(fails[0].fingerprint, fails[0].fingerprint)
        if fails[0].fingerprint in files:
            entries = Path(name).with_name(ENTRIES_FILE)
            yield facts(("accept", f"{entries} has the entries for --known"))
        yield ShellLine("next", f"poolproof show {name}")


def _last_facts(certificate: Certificate) -> Iterator[Fact]:
    hidden = len(certificate.findings) - MOST_REPORTS
    if hidden > 0:
        yield Fact("more", f"{hidden} findings are not drawn here; --report DIR writes all of them")
    yield verdict_fact(f"{verdict_line(certificate)}  ({certificate.seconds:.0f} s)")
    for stage in _unfinished(certificate)[:1]:
        yield Fact("next", stage.note)


def _unfinished(certificate: Certificate) -> list[StageResult]:
    return [stage for stage in certificate.stages if stage.stage == UNFINISHED]


def _suites(certificate: Certificate) -> Iterator[JunitSuite]:
    """A suite for each level with a case for each stage and finding; then how it was judged."""
    levels = [stage.level for stage in certificate.stages]
    levels += [finding.level for finding in certificate.findings]
    for level in dict.fromkeys(levels):
        findings = [finding for finding in certificate.findings if finding.level == level]
        stages = [stage for stage in certificate.stages if stage.level == level]
        cases = [_stage_case(stage, explained=bool(findings)) for stage in stages]
        cases += [_finding_case(certificate, finding) for finding in findings]
        yield JunitSuite(level, tuple(cases))
    yield from suites_of_judging(certificate)


def _stage_case(stage: StageResult, *, explained: bool) -> JunitCase:
    outcome, message = CaseOutcome.PASSED, ""
    if stage.outcome is StageOutcome.NOT_RUN:
        outcome, message = CaseOutcome.SKIPPED, stage.note or "not run"
    elif stage.outcome is StageOutcome.INCONCLUSIVE:
        missing = ", ".join(stage.missing_facts)
        outcome = CaseOutcome.ERROR
        message = f"never happened: {missing}" if missing else stage.note
    elif stage.outcome is StageOutcome.REFUSED and not explained:
        outcome, message = CaseOutcome.FAILURE, stage.note or "refused"
    done = f"{stage.steps:,} steps, {stage.runs:,} runs"
    return JunitCase(
        name=stage.stage,
        seconds=stage.seconds,
        outcome=outcome,
        message=message,
        output=f"{done}, {stage.note}" if stage.note else done,
    )


def _finding_case(certificate: Certificate, finding: Finding) -> JunitCase:
    violation = finding.violation
    sentence = violation.sentence
    for label, text in consequence_words(finding):
        sentence += f" ({label} {text})" if label == "leads to" else ""
    if finding.forms:
        sentence += f" (met in {len(finding.forms) + 1} forms)"
    report = plain_text(finding_report(finding)) if finding in failing(certificate) else None
    message = f"{harm_of(finding)}: {sentence}"
    return finding_case(finding, violation.invariant, finding.severity, message, report)


def finding_case(
    finding: Finding | JudgedKernelFinding,
    broken: str,
    severity: Severity,
    message: str,
    report: str | None,
) -> JunitCase:
    """A finding as a case; one that fails the run comes with its report."""
    name = f"{finding.fingerprint} {broken}"
    if report is None:
        message = f"{finding.status.value}, does not fail the run: {message}"
        return JunitCase(name=name, outcome=CaseOutcome.SKIPPED, message=message)
    return JunitCase(
        name=name,
        outcome=CaseOutcome.FAILURE,
        message=message,
        report=report,
        kind=severity.value,
    )


def suites_of_judging(certificate: JudgedCertificate[JudgedFinding]) -> Iterator[JunitSuite]:
    """The suites that every certificate has: the ruler's; the known file's where it is wrong."""
    missed = "this planted bug was not caught"
    yield JunitSuite(
        "ruler",
        (
            *(JunitCase(name=name) for name in certificate.canaries_caught),
            *(
                JunitCase(name=name, outcome=CaseOutcome.ERROR, message=missed)
                for name in certificate.canaries_missed
            ),
        ),
    )
    if certificate.fixed_known:
        fixed = "no longer fails: take it out of the known file"
        cases = (
            JunitCase(name=name, outcome=CaseOutcome.FAILURE, message=fixed)
            for name in certificate.fixed_known
        )
        yield JunitSuite("known file", tuple(cases))


def _json(certificate: Certificate) -> str:
    return json_text(certificate.to_json())


CERTIFICATE: ReportKind[Certificate] = ReportKind(
    document_of=certificate_document,
    json_of=_json,
    name_of=lambda certificate: certificate.target,
    suites_of=lambda certificate: tuple(_suites(certificate)),
)
