"""The certificate of a kernel as a person reads it: a line for each check, findings, verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from poolproof.certification.finding import FindingStatus
from poolproof.certification.kernel_certificate import JudgedKernelFinding, KernelCertificate
from poolproof.certification.verdict import failing
from poolproof.contract.outside import printable
from poolproof.kernels.findings import HOLDS, NOT_RUN, UNSEEN, VIOLATED, KernelRun
from poolproof.report.text_certificate import known_file_lines, pairs, verdict_line
from poolproof.report.wording import severity_words, shell_line

__all__ = ["faulty_text", "text_kernel_certificate"]

_LABEL_WIDTH = len("verdict")

_STYLES = {HOLDS: "green", VIOLATED: "bold red", NOT_RUN: "yellow", UNSEEN: "yellow"}


def text_kernel_certificate(
    certificate: KernelCertificate, json_file: str | None = None
) -> RenderableType:
    """A judged certificate of a kernel, to be printed by rich."""
    run = certificate.run
    first = (
        f"poolproof {certificate.poolproof_version}, kernels, depth {run.depth}, seed {run.seed}"
    )
    parts: list[RenderableType] = [
        Text(first, style="bold"),
        pairs(_head(run), _LABEL_WIDTH),
        Padding(_lines(run), (1, 0)),
        pairs(_tail(run), _LABEL_WIDTH),
    ]
    worst_first = sorted(certificate.findings, key=lambda f: f.seen.severity.rank)
    parts += [Padding(_finding(certificate, finding), (1, 0, 0, 0)) for finding in worst_first]
    parts.append(Text())
    if certificate.findings:
        where = json_file or "report.json"
        how = "" if json_file else f"--json {where}, then "
        again = f"{how}poolproof kernels {run.target} --case {where}"
        parts.append(shell_line("again", again, _LABEL_WIDTH))
    parts.append(pairs(_end(certificate), _LABEL_WIDTH))
    return Group(*parts)


def _head(run: KernelRun) -> Iterator[tuple[str, str]]:
    version = f", {run.version}" if run.version else ""
    yield "target", f"{run.target}{version}, {run.source}"
    how = "interpreted on the CPU" if run.device == "cpu" and run.triton else run.device
    versions = ", ".join(
        f"{name} {text}" for name, text in (("torch", run.torch), ("triton", run.triton)) if text
    )
    yield "ran on", f"{run.device_name}, {how}; {versions}, Python {run.python}"
    promises = [
        f"{key} {value}" for key, value in run.declaration.items() if isinstance(value, str)
    ]
    yield "promises", ", ".join(promises)
    supports = [
        f"{key} {'+'.join(map(str, value)) or 'none'}"
        for key, value in run.declaration.items()
        if isinstance(value, list)
    ]
    yield "supports", ", ".join(supports)
    if run.assumed:
        yield "assumed", ", ".join(run.assumed)


def _lines(run: KernelRun) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("check", "examples", "outputs", "error/bound", "result"):
        number = heading in ("examples", "outputs", "error/bound")
        table.add_column(
            heading, justify="right" if number else "left", no_wrap=heading != "result",
            overflow="fold",
        )  # fmt: skip
    for line in run.lines:
        result = Text(line.result, style=_STYLES.get(line.result, "dim"))
        if line.note and line.note != line.result:
            result.append(f": {line.note}", style="dim")
        elif line.result == HOLDS:
            result.append(f": {line.sentence}", style="dim")
        table.add_row(
            line.name,
            f"{line.examples:,}" if line.examples else "-",
            f"{line.compared:,}" if line.compared else "-",
            "-" if line.max_ratio is None else _ratio(line.max_ratio),
            result,
        )
    return table


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


def _finding(certificate: KernelCertificate, finding: JudgedKernelFinding) -> RenderableType:
    seen = finding.seen
    lines = [
        Text(f"{seen.check}: {severity_words(seen.severity)}", style="bold red").append(
            f"  {finding.fingerprint}{_status(certificate, finding)}", style="not bold"
        ),
        Text(f"  {printable(seen.sentence)}"),
        Text(f"  smallest case: {seen.words}"),
    ]
    if seen.example > 0:
        lines.append(Text(f"  seen in example {seen.example}", style="dim"))
    lines += [Text(f"  {printable(frame)}", style="dim") for frame in seen.frames]
    return Group(*lines)


def _status(certificate: KernelCertificate, finding: JudgedKernelFinding) -> str:
    if finding.status is not FindingStatus.NEW:
        return f", {finding.status.value}"
    return "" if finding in failing(certificate) else ", below --fail-on"


def _end(certificate: KernelCertificate) -> Iterator[tuple[str, str]]:
    yield from known_file_lines(certificate)
    yield "time", f"{certificate.run.seconds:.0f} s"
    yield "verdict", verdict_line(certificate)


def faulty_text(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The faulty kernels, and after how many examples which check saw them."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("id", "fault", "seen by, after examples"):
        table.add_column(heading, no_wrap=heading == "id", overflow="fold")
    missed = 0
    for row in rows:
        seen = [f"{name} {count}" for name, count in row["examples"].items()]
        unseen = [name for name in row["checks"] if name not in row["examples"]]
        missed += bool(unseen)
        text = Text(", ".join(seen))
        if unseen:
            text.append(f"{', ' if seen else ''}NOT by {', '.join(unseen)}", style="bold red")
        table.add_row(row["id"], row["title"], text)
    return Group(table, Text(f"\n{len(rows) - missed} of {len(rows)} faulty kernels are seen"))
