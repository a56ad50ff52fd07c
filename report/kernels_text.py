"""The report on a kernel as a person reads it: a line for each check, findings, verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from poolproof.contract.outside import printable
from poolproof.kernels.report import (
    HOLDS,
    NOT_RUN,
    UNSEEN,
    VIOLATED,
    KernelFinding,
    KernelReport,
)
from poolproof.report.wording import severity_words, shell_line

__all__ = ["faulty_text", "kernels_text", "kernels_verdict_line"]

_LABEL_WIDTH = len("verdict")

_STYLES = {HOLDS: "green", VIOLATED: "bold red", NOT_RUN: "yellow", UNSEEN: "yellow"}


def kernels_text(report: KernelReport, json_file: str | None = None) -> RenderableType:
    """A report, to be printed by rich."""
    first = (
        f"poolproof {report.poolproof_version}, kernels, level {report.level}, seed {report.seed}"
    )
    parts: list[RenderableType] = [
        Text(first, style="bold"),
        _pairs(_head(report)),
        Padding(_lines(report), (1, 0)),
        _pairs(_tail(report)),
    ]
    worst_first = sorted(report.findings, key=lambda f: f.severity.rank)
    parts += [Padding(_finding(report, finding), (1, 0, 0, 0)) for finding in worst_first]
    parts.append(Text())
    if report.findings:
        where = json_file or "report.json"
        how = "" if json_file else f"--json {where}, then "
        again = f"{how}poolproof kernels {report.target} --case {where}"
        parts.append(shell_line("again", again, _LABEL_WIDTH))
    parts.append(_pairs(_end(report)))
    return Group(*parts)


def _head(report: KernelReport) -> Iterator[tuple[str, str]]:
    version = f", {report.version}" if report.version else ""
    yield "target", f"{report.target}{version}, {report.source}"
    how = "interpreted on the CPU" if report.device == "cpu" and report.triton else report.device
    versions = ", ".join(
        f"{name} {text}"
        for name, text in (("torch", report.torch), ("triton", report.triton))
        if text
    )
    yield "ran on", f"{report.device_name}, {how}; {versions}, Python {report.python}"
    promises = [
        f"{key} {value}" for key, value in report.declaration.items() if isinstance(value, str)
    ]
    yield "promises", ", ".join(promises)
    supports = [
        f"{key} {'+'.join(map(str, value)) or 'none'}"
        for key, value in report.declaration.items()
        if isinstance(value, list)
    ]
    yield "supports", ", ".join(supports)
    if report.assumed:
        yield "assumed", ", ".join(report.assumed)


def _lines(report: KernelReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("check", "examples", "outputs", "error/bound", "result"):
        number = heading in ("examples", "outputs", "error/bound")
        table.add_column(
            heading, justify="right" if number else "left", no_wrap=heading != "result",
            overflow="fold",
        )  # fmt: skip
    for line in report.lines:
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


def _tail(report: KernelReport) -> Iterator[tuple[str, str]]:
    for precision, ratios in report.ratios.items():
        yield (
            "precision",
            f"{precision}: {len(ratios)} outputs, worst {_ratio(max(ratios))} of bound",
        )
    total = len(report.canaries_caught) + len(report.canaries_missed)
    if total:
        yield "ruler", f"{len(report.canaries_caught)} of {total} faulty kernels caught first"
    else:
        yield "ruler", "not checked here: faulty kernels run in the interpreter alone"
    for line in report.not_covered:
        yield "not covered", line


def _finding(report: KernelReport, finding: KernelFinding) -> RenderableType:
    severity = severity_words(finding.severity)
    lines = [
        Text(f"{finding.check}: {severity}", style="bold red").append(
            f"  {finding.fingerprint}{_status(report, finding)}", style="not bold"
        ),
        Text(f"  {printable(finding.sentence)}"),
        Text(f"  smallest case: {finding.words}"),
    ]
    if finding.example > 0:
        lines.append(Text(f"  seen in example {finding.example}", style="dim"))
    lines += [Text(f"  {printable(frame)}", style="dim") for frame in finding.frames]
    return Group(*lines)


def _end(report: KernelReport) -> Iterator[tuple[str, str]]:
    for fingerprint in report.fixed_known:
        yield "fixed", f"{fingerprint} no longer fails: take it out of the known file"
    for fingerprint in report.expired_known:
        yield "expired", f"{fingerprint}: its entry in the known file counts no longer"
    yield "time", f"{report.seconds:.0f} s"
    yield "verdict", kernels_verdict_line(report)


def kernels_verdict_line(report: KernelReport) -> str:
    """The verdict with its counts, in one line."""
    if report.verdict == "INCONCLUSIVE":
        return f"INCONCLUSIVE: {'; '.join(report.reasons_inconclusive())}"
    num_failing = len(report.failing)
    counts = [f"{num_failing} finding{'s' * (num_failing > 1)}"] if num_failing else []
    for status in ("known", "baseline"):
        number = sum(finding.status == status for finding in report.findings)
        counts += [f"{number} {status}"] if number else []
    passed = sum(finding.status == "new" for finding in report.findings) - len(report.failing)
    counts += [f"{passed} below --fail-on"] if passed else []
    fixed = len(report.fixed_known)
    counts += [f"{fixed} in the known file but fixed"] if fixed else []
    return f"{report.verdict}: {', '.join(counts)}" if counts else report.verdict


def _status(report: KernelReport, finding: KernelFinding) -> str:
    if finding.status != "new":
        return f", {finding.status}"
    return "" if finding in report.failing else ", below --fail-on"


def _pairs(rows: Iterator[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim", min_width=_LABEL_WIDTH)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(name, printable(text))
    return table


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
