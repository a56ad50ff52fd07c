"""The certificate of a kernel as a report and as tests: checks, findings, verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from poolproof.certification.certificate import Verdict
from poolproof.certification.finding import FindingStatus
from poolproof.certification.kernel_certificate import JudgedKernelFinding, KernelCertificate
from poolproof.certification.verdict import failing
from poolproof.kernels.findings import (
    HOLDS,
    NOT_APPLICABLE,
    NOT_RUN,
    UNSEEN,
    VIOLATED,
    WEAKER,
    CheckLine,
    KernelRun,
)
from poolproof.report.certificate_document import (
    finding_case,
    known_file_facts,
    suites_of_judging,
    verdict_fact,
    verdict_line,
)
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Fact,
    Figure,
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
    Words,
    facts,
)
from poolproof.report.forms import ReportKind, json_text
from poolproof.report.junit_form import CaseOutcome, JunitCase, JunitSuite
from poolproof.report.kernels_picture import errors_picture
from poolproof.report.wording import severity_words

__all__ = ["KERNEL_CERTIFICATE", "faulty_document", "kernel_document"]

_LABEL_WIDTH = len("verdict")

_TONES = {
    HOLDS: Tone.GOOD,
    VIOLATED: Tone.BAD,
    NOT_RUN: Tone.WARNING,
    UNSEEN: Tone.WARNING,
}


def kernel_document(certificate: KernelCertificate, json_file: str | None = None) -> Document:
    """A judged certificate of a kernel; `json_file` is where its JSON was written."""
    run = certificate.run
    worst_first = sorted(certificate.findings, key=lambda f: f.seen.severity.rank)
    entries = tuple(known_file_facts(certificate))
    blocks: list[Block] = [
        Paragraph(
            f"poolproof {certificate.poolproof_version}, kernels, depth {run.depth}, seed "
            f"{run.seed}",
            Tone.STRONG,
        ),
        facts(*_head(run), label_width=_LABEL_WIDTH),
        Gap(),
        _checks(run),
        Gap(),
        facts(*_tail(run), label_width=_LABEL_WIDTH, is_list=True),
    ]
    for finding in worst_first:
        blocks += [Gap(), _finding(certificate, finding)]
    blocks += [Gap(), *([_again(run, json_file)] if certificate.findings else [])]
    if entries:
        blocks.append(facts(*entries, label_width=_LABEL_WIDTH, is_list=True))
    end = (Fact("time", f"{run.seconds:.0f} s"), verdict_fact(verdict_line(certificate)))
    blocks.append(Narrow((facts(*end, label_width=_LABEL_WIDTH),)))
    blocks.append(Wide((facts(("took", f"{run.seconds:.0f} s"), is_list=True),)))
    if any(run.ratios.values()):
        blocks.append(Wide((_errors(run),)))
    return Document(
        f"Certificate of {certificate.target}",
        verdict_line(certificate),
        tuple(blocks),
        is_broken=certificate.verdict is Verdict.REFUSED,
    )


def _head(run: KernelRun) -> Iterator[Fact]:
    yield Fact("target", f"{run.target}{f', {run.version}' if run.version else ''}")
    yield Fact("source", run.source, is_joined=True)
    how = "interpreted on the CPU" if run.device == "cpu" and run.triton else run.device
    versions = ", ".join(
        f"{name} {text}" for name, text in (("torch", run.torch), ("triton", run.triton)) if text
    )
    yield Fact("ran on", f"{run.device_name}, {how}; {versions}, Python {run.python}")
    promises = [
        f"{key} {value}" for key, value in run.declaration.items() if isinstance(value, str)
    ]
    yield Fact("promises", ", ".join(promises))
    supports = [
        f"{key} {'+'.join(map(str, value)) or 'none'}"
        for key, value in run.declaration.items()
        if isinstance(value, list)
    ]
    yield Fact("supports", ", ".join(supports))
    if run.assumed:
        yield Fact("assumed", ", ".join(run.assumed))


def _checks(run: KernelRun) -> DataTable:
    columns = tuple(
        TableColumn(
            heading,
            is_number=heading in ("examples", "outputs", "error/bound"),
            wraps=heading == "result",
        )
        for heading in ("check", "examples", "outputs", "error/bound", "result")
    )
    rows = tuple(
        TableRow((
            TableCell(line.name),
            TableCell(line.examples or None),
            TableCell(line.compared or None),
            TableCell(None if line.max_ratio is None else _ratio(line.max_ratio)),
            TableCell(_result(line), _TONES.get(line.result, Tone.DIM)),
        ))
        for line in run.lines
    )  # fmt: skip
    return DataTable(columns, rows)


def _result(line: CheckLine) -> Words:
    if line.note and line.note != line.result:
        return (Span(line.result), Span(f": {line.note}", Tone.DIM))
    if line.result == HOLDS:
        return (Span(line.result), Span(f": {line.sentence}", Tone.DIM))
    return line.result


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:.2g}"


def _tail(run: KernelRun) -> Iterator[tuple[str, str]]:
    for precision, ratios in run.ratios.items():
        yield (
            "precision",
            f"{precision}: {len(ratios)} outputs, worst {_ratio(max(ratios))} of bound",
        )
    total = len(run.canaries_caught) + len(run.canaries_missed)
    if total:
        yield "ruler", f"{len(run.canaries_caught)} of {total} faulty kernels caught first"
    else:
        yield "ruler", "not checked here: faulty kernels run in the interpreter alone"
    for line in run.not_covered:
        yield "not covered", line


def _finding(certificate: KernelCertificate, finding: JudgedKernelFinding) -> ReportPart:
    seen = finding.seen
    lines: list[Block] = [
        Paragraph((
            Span(f"{seen.check}: {severity_words(seen.severity)}", Tone.BAD),
            Span(f"  {finding.fingerprint}{_status(certificate, finding)}", Tone.ALARM),
        )),
        Paragraph(f"  {seen.sentence}"),
        Paragraph(f"  smallest case: {seen.words}"),
    ]  # fmt: skip
    if seen.example > 0:
        lines.append(Paragraph(f"  seen in example {seen.example}", Tone.DIM))
    lines += [Paragraph(f"  {frame}", Tone.DIM) for frame in seen.frames]
    title = f"Finding {finding.fingerprint}, {seen.check}"
    return ReportPart(title, tuple(lines), is_titled=False)


def _status(certificate: KernelCertificate, finding: JudgedKernelFinding) -> str:
    if finding.status is not FindingStatus.NEW:
        return f", {finding.status.value}"
    return "" if finding in failing(certificate) else ", below --fail-on"


def _again(run: KernelRun, json_file: str | None) -> ShellLine:
    where = json_file or "report.json"
    how = "" if json_file else f"--json {where}, then "
    return ShellLine("again", f"{how}poolproof kernels {run.target} --case {where}", _LABEL_WIDTH)


def _errors(run: KernelRun) -> Figure:
    columns = (
        TableColumn("precision"),
        TableColumn("batches", is_number=True),
        TableColumn("worst error/bound", is_number=True),
    )
    rows = tuple(
        TableRow.of(name, len(ratios), _ratio(max(ratios)))
        for name, ratios in sorted(run.ratios.items())
        if ratios
    )
    what = "The error of each output over the bound that a correct kernel keeps, log axis."
    return Figure("Errors over bounds", what, errors_picture(run), DataTable(columns, rows))


def faulty_document(rows: Sequence[Mapping[str, Any]]) -> Document:
    """The faulty kernels, and after how many examples which check saw them."""
    made = []
    missed = 0
    for row in rows:
        seen = [f"{name} {count}" for name, count in row["examples"].items()]
        unseen = [name for name in row["checks"] if name not in row["examples"]]
        missed += bool(unseen)
        words = [Span(", ".join(seen))]
        if unseen:
            words.append(Span(f"{', ' if seen else ''}NOT by {', '.join(unseen)}", Tone.BAD))
        made.append(TableRow.of(row["id"], row["title"], tuple(words)))
    columns = (
        TableColumn("id", wraps=False),
        TableColumn("fault"),
        TableColumn("seen by, after examples"),
    )
    verdict = f"{len(rows) - missed} of {len(rows)} faulty kernels are seen"
    blocks = (DataTable(columns, tuple(made)), Gap(), Narrow((Paragraph(verdict),)))
    return Document("Faulty kernels", verdict, blocks, is_broken=bool(missed))


def _suites(certificate: KernelCertificate) -> Iterator[JunitSuite]:
    """A suite with a case for each check and finding; then how the certificate was judged."""
    cases = [_check_case(line) for line in certificate.run.lines]
    for finding in certificate.findings:
        seen = finding.seen
        message = f"{severity_words(seen.severity)}: {seen.sentence}"
        report = "\n".join((message, seen.words, *seen.frames))
        cases.append(
            finding_case(
                finding,
                seen.check,
                seen.severity,
                message,
                report if finding in failing(certificate) else None,
            )
        )
    yield JunitSuite("kernel", tuple(cases))
    yield from suites_of_judging(certificate)


def _check_case(line: CheckLine) -> JunitCase:
    outcome = CaseOutcome.PASSED
    if line.result in {NOT_APPLICABLE, WEAKER}:
        outcome = CaseOutcome.SKIPPED
    elif line.result in {NOT_RUN, UNSEEN}:
        outcome = CaseOutcome.ERROR
    return JunitCase(
        name=line.name,
        outcome=outcome,
        message=line.note or line.result,
        output=f"{line.examples:,} examples, {line.compared:,} outputs",
    )


KERNEL_CERTIFICATE: ReportKind[KernelCertificate] = ReportKind(
    document_of=kernel_document,
    json_of=lambda certificate: json_text(certificate.to_json(), indent=1),
    name_of=lambda certificate: certificate.target,
    suites_of=lambda certificate: tuple(_suites(certificate)),
)
