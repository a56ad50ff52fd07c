"""The certificate as a person reads it in a terminal or in the log of a CI run.

Laid out for 100 columns; without colours if the output is not a terminal. The reports of the
findings are between the table and the verdict, which comes last because that is where readers of a
log look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from poolproof.certification.certificate import Certificate, StageOutcome, StageResult, Verdict
from poolproof.certification.finding import Finding, FindingStatus
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.certification.known_findings import ENTRIES_FILE
from poolproof.certification.lab import UNFINISHED
from poolproof.certification.verdict import (
    JudgedCertificate,
    JudgedFinding,
    failing,
    reasons_inconclusive,
)
from poolproof.contract.outside import printable
from poolproof.report.finding_report import finding_report
from poolproof.report.wording import shell_line
from poolproof.targets.target_spec import profile_words

__all__ = ["known_file_lines", "pairs", "result_lines", "text_certificate", "verdict_line"]

MOST_REPORTS = 5
"""So many findings are drawn step by step; the others get their line alone."""

_LABEL_WIDTH = 12

_STYLES = {
    StageOutcome.HOLDS: "green",
    StageOutcome.REFUSED: "bold red",
    StageOutcome.INCONCLUSIVE: "yellow",
    StageOutcome.NOT_RUN: "dim",
}


def text_certificate(
    certificate: Certificate, trace_files: Mapping[str, str] | None = None
) -> RenderableType:
    """A judged certificate, to be printed by rich.

    `trace_files` says where the trace of each fingerprint was written.
    """
    files = trace_files or {}
    parts: list[RenderableType] = [
        Text(_first_line(certificate), style="bold"),
        pairs(_head(certificate)),
        Padding(_stages(certificate), (1, 0)),
        pairs(_tail(certificate)),
    ]
    fails = failing(certificate)
    for finding in _reported_first(certificate.findings, fails)[:MOST_REPORTS]:
        report = finding_report(finding, files.get(finding.fingerprint))
        parts += [Text(), report]
    for finding in certificate.hardening[:MOST_REPORTS]:
        report = finding_report(finding, files.get(finding.fingerprint))
        parts.append(Padding(Text("hardening, never a failure:", style="dim"), (1, 0, 0, 0)))
        parts.append(report)
    parts.append(Padding(pairs(_end(certificate)), (1, 0, 0, 0)))
    if fails and not _unfinished(certificate):
        name = files.get(fails[0].fingerprint, fails[0].fingerprint)
        if fails[0].fingerprint in files:
            entries = Path(name).with_name(ENTRIES_FILE)
            parts.append(pairs(iter([("accept", f"{entries} has the entries for --known")])))
        parts.append(shell_line("next", f"poolproof show {name}", _LABEL_WIDTH))
    return Group(*parts)


def _reported_first(findings: Iterable[Finding], fails: Sequence[Finding]) -> list[Finding]:
    """What fails the run, then the rest, each the worst first."""
    return sorted(findings, key=lambda f: (f not in fails, f.violation.severity.rank))


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


def known_file_lines(certificate: JudgedCertificate[JudgedFinding]) -> Iterator[tuple[str, str]]:
    """The entries of the known file that must be removed."""
    for fingerprint in certificate.fixed_known:
        yield "fixed", f"{fingerprint} no longer fails: take it out of the known file"
    for fingerprint in certificate.expired_known:
        yield "expired", f"{fingerprint}: its entry in the known file counts no longer"


def _first_line(certificate: Certificate) -> str:
    workers = "1 worker" if certificate.workers == 1 else f"{certificate.workers} workers"
    return (
        f"poolproof {certificate.poolproof_version}, contract {certificate.contract_version}, "
        f"depth {certificate.depth}, seed {certificate.seed}, {workers}"
    )


def _head(certificate: Certificate) -> Iterator[tuple[str, str]]:
    version = f" {certificate.target_version}" if certificate.target_version else ""
    yield "target", f"{certificate.target}{version} ({certificate.shape}), {certificate.source}"
    yield "profile", profile_words(certificate.profile) or "nothing declared"
    if certificate.assumed:
        yield "assumed", profile_words(certificate.profile, certificate.assumed)
    if certificate.limits:
        yield "limits", ", ".join(certificate.limits)
    yield "ran on", f"Python {certificate.python}, {certificate.platform}"
    for note in certificate.notes:
        yield "note", note


def _stages(certificate: Certificate) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("level", "stage", "steps", "runs", "facts", "result"):
        number = heading in ("steps", "runs", "facts")
        table.add_column(
            heading, justify="right" if number else "left", no_wrap=heading != "result",
            overflow="fold",
        )  # fmt: skip
    for stage in certificate.stages:
        required = len(stage.facts_required)
        table.add_row(
            stage.level,
            stage.stage,
            f"{stage.steps:,}" if stage.steps else "-",
            f"{stage.runs:,}" if stage.runs else "-",
            f"{required - len(stage.missing_facts)}/{required}" if required else "-",
            _result(certificate, stage),
        )
    return table


def _result(certificate: Certificate, stage: StageResult) -> Text:
    lines = "\n".join(result_lines(certificate, stage))
    return Text(printable(lines), style=_STYLES[stage.outcome])


def result_lines(certificate: Certificate, stage: StageResult) -> list[str]:
    """The outcome of a stage or each of its findings, then what there is to say of it."""
    shown = [found for found in certificate.findings if _is_of(found, stage)]
    lines = [_in_short(certificate, finding) for finding in shown[:MOST_REPORTS]]
    if len(shown) > MOST_REPORTS:
        lines.append(f"and {len(shown) - MOST_REPORTS} more")
    if stage.outcome is not StageOutcome.REFUSED or not lines:
        lines.insert(0, stage.outcome.value)
    if stage.missing_facts:
        lines.append(f"never happened: {', '.join(stage.missing_facts)}")
    if stage.note and stage.stage != UNFINISHED:
        lines.append(stage.note)
    return lines


def _is_of(finding: Finding, stage: StageResult) -> bool:
    return finding.level == stage.level and any(
        stage.stage in form.stages for form in finding.each_form
    )


def _in_short(certificate: Certificate, finding: Finding) -> str:
    passes = finding not in failing(certificate)
    word = finding.status.value if finding.status is not FindingStatus.NEW else "below --fail-on"
    invariant = finding.violation.invariant
    forms = f", {len(finding.forms) + 1} forms" if finding.forms else ""
    return f"{word if passes else 'REFUSED'} {finding.fingerprint} ({invariant}{forms})"


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


def _end(certificate: Certificate) -> Iterator[tuple[str, str]]:
    yield from known_file_lines(certificate)
    hidden = len(certificate.findings) - MOST_REPORTS
    if hidden > 0:
        yield "more", f"{hidden} findings are not drawn here; --report DIR writes all of them"
    yield "verdict", f"{verdict_line(certificate)}  ({certificate.seconds:.0f} s)"
    for stage in _unfinished(certificate)[:1]:
        yield "next", stage.note


def _unfinished(certificate: Certificate) -> list[StageResult]:
    return [stage for stage in certificate.stages if stage.stage == UNFINISHED]


def pairs(rows: Iterator[tuple[str, str]], label_width: int = _LABEL_WIDTH) -> Table:
    """Labels, each with its text; a repeated label is printed once."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=label_width)
    table.add_column(overflow="fold")
    last = ""
    for label, value in rows:
        style = "bold red" if value.startswith("REFUSED") else ""
        table.add_row(label if label != last else "", Text(printable(value), style=style))
        last = label
    return table
