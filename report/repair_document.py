"""What a patch does to a target, as a report and as tests.

First what it repairs, leaves and breaks, each finding in a line; then the findings that are new
with it, step by step, because they are what its author has to look at; the verdict comes last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from poolproof import __version__
from poolproof.certification.certificate import Certificate
from poolproof.certification.repair import PatchEffect, RepairFinding, RepairReport
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Fact,
    Gap,
    Paragraph,
    ReportPart,
    TableColumn,
    TableRow,
    Tone,
    facts,
)
from poolproof.report.finding_report import finding_blocks, finding_report
from poolproof.report.forms import ReportKind
from poolproof.report.junit_form import CaseOutcome, JunitCase, JunitSuite
from poolproof.report.text_form import plain_text

__all__ = ["REPAIR", "repair_document", "repair_verdict"]

_MEANINGS = {
    PatchEffect.REPAIRS: "found without the patch, gone with it",
    PatchEffect.LEAVES: "found without the patch, and there with it",
    PatchEffect.BREAKS: "found with the patch alone",
    PatchEffect.UNCOVERS: "found with the patch; without it something else came first",
}


def repair_document(report: RepairReport, trace_files: Mapping[str, str] | None = None) -> Document:
    """The report. `trace_files` says where the trace of each fingerprint was written."""
    files = trace_files or {}
    blocks: list[Block] = [
        Paragraph(f"poolproof {__version__}, judging a patch", Tone.STRONG),
        facts(*_head(report)),
        Gap(),
    ]
    if report.findings:
        blocks += [ReportPart("What the patch does", (_table(report),), is_titled=False), Gap()]
    for judged in (*report.of(PatchEffect.BREAKS), *report.of(PatchEffect.UNCOVERS)):
        finding = judged.finding
        blocks += [*finding_blocks(finding, files.get(finding.fingerprint)), Gap()]
    blocks.append(facts(*_tail(report)))
    return Document(
        f"{report.patch} on {report.before.target}",
        repair_verdict(report),
        tuple(blocks),
        is_broken=report.exit_status == 1,
    )


def repair_verdict(report: RepairReport) -> str:
    """What the patch does, with its counts, in one line."""
    counted = filter(_counts, PatchEffect)
    counts = [f"{effect.value} {len(report.of(effect))}" for effect in counted]
    uncovered = len(report.of(PatchEffect.UNCOVERS))
    words = ", ".join([*counts, *([f"uncovers {uncovered}"] if uncovered else [])])
    if report.unconcluded:
        return f"INCONCLUSIVE: {words}; {'; '.join(report.unconcluded)}"
    if not report.findings:
        return "BREAKS NOTHING: nothing was found, without the patch or with it"
    if report.of(PatchEffect.BREAKS):
        return f"BREAKS: {words}"
    return f"REPAIRS: {words}" if report.of(PatchEffect.REPAIRS) else f"CHANGES NOTHING: {words}"


def _counts(effect: PatchEffect) -> bool:
    return effect is not PatchEffect.UNCOVERS


def _head(report: RepairReport) -> Iterator[tuple[str, str]]:
    before, after = report.before, report.after
    version = f" {before.target_version}" if before.target_version else ""
    yield "target", f"{before.target}{version} ({before.shape})"
    yield "patched", after.source
    yield "depth", f"{before.depth}, seed {before.seed}, for both"
    for note in after.notes:
        if note not in before.notes:
            yield "note", note
    if before.profile != after.profile:
        yield (
            "note",
            "the patch changes the profile that the target declares; each is judged by its own",
        )


def _table(report: RepairReport) -> DataTable:
    columns = (
        TableColumn("the patch"),
        TableColumn("finding"),
        TableColumn("breaks"),
        TableColumn("harm"),
        TableColumn("known by", wraps=True),
    )
    rows = [
        TableRow.of(
            judged.effect.value,
            judged.finding.fingerprint,
            judged.finding.violation.invariant,
            judged.finding.severity.value,
            judged.why,
        )
        for effect in PatchEffect
        for judged in report.of(effect)
    ]
    return DataTable(columns, tuple(rows))


def _tail(report: RepairReport) -> Iterator[Fact | tuple[str, str]]:
    for hits in report.hits:
        yield "hits", hits.words
    if not report.hits:
        yield "hits", "not measured: this level asks no cache"
    yield "steps", f"{_steps(report.before):,} without the patch, {_steps(report.after):,} with it"
    words = repair_verdict(report)
    is_bad = report.exit_status == 1
    yield Fact("verdict", words, Tone.BAD if is_bad else Tone.PLAIN)


def _steps(certificate: Certificate) -> int:
    return sum(stage.steps for stage in certificate.stages)


_OUTCOMES = {
    PatchEffect.REPAIRS: CaseOutcome.PASSED,
    PatchEffect.LEAVES: CaseOutcome.SKIPPED,
    PatchEffect.BREAKS: CaseOutcome.FAILURE,
    PatchEffect.UNCOVERS: CaseOutcome.ERROR,
}


def _suites(report: RepairReport) -> tuple[JunitSuite, ...]:
    """A case for each finding: it fails where the patch breaks something."""
    cases = [_case(judged) for judged in report.findings]
    cases.append(
        JunitCase(
            name="the patch as a whole",
            outcome=CaseOutcome.ERROR
            if report.exit_status == 2
            else CaseOutcome.FAILURE
            if report.exit_status
            else CaseOutcome.PASSED,
            message=repair_verdict(report),
        )
    )
    return (JunitSuite(f"{report.patch} on {report.before.target}", tuple(cases)),)


def _case(judged: RepairFinding) -> JunitCase:
    outcome = _OUTCOMES[judged.effect]
    return JunitCase(
        name=f"{judged.finding.fingerprint} {judged.finding.violation.invariant}",
        outcome=outcome,
        message=f"{judged.effect.value}: {judged.why}",
        report=None
        if outcome is CaseOutcome.PASSED
        else plain_text(finding_report(judged.finding)),
        kind=judged.finding.violation.invariant,
    )


REPAIR: ReportKind[RepairReport] = ReportKind(
    document_of=repair_document,
    json_of=lambda report: json.dumps(report.to_json(), indent=2) + "\n",
    name_of=lambda report: f"{report.patch} on {report.before.target}",
    suites_of=_suites,
)
"""What a patch does."""
