"""What the children of a certification have told so far, put together into one report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.kernels.job import Job
from poolproof.kernels.report import NOT_RUN, VIOLATED, CheckLine, KernelFinding, KernelReport

__all__ = ["CANARIES", "Collected", "Example"]

CANARIES = "canaries"


@dataclass(frozen=True, slots=True)
class Example:
    """An example that was announced: its check, its case, the case in words."""

    check: str
    case: Mapping[str, Any]
    words: str


@dataclass(slots=True)
class Collected:
    """Lines, findings and errors by check; `left` are the checks that nobody has begun."""

    job: Job
    head: KernelReport | None = None
    order: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lines: dict[str, CheckLine] = field(default_factory=dict)
    findings: dict[str, KernelFinding] = field(default_factory=dict)
    ratios: dict[str, Mapping[str, list[float]]] = field(default_factory=dict)
    canaries: tuple[list[str], list[str]] = ([], [])

    def begin(self, head: Mapping[str, Any], known: list[str]) -> None:
        """A child has loaded the target; the first one says which checks there are."""
        if self.head is not None:
            return
        for name in self.job.checks:
            if name not in known:
                raise TargetError(f"unknown check {name!r}; known are {', '.join(known)}")
        self.head = KernelReport.from_json(head)
        self.order = [name for name in known if not self.job.checks or name in self.job.checks]
        self.left = [CANARIES, *self.order]

    def take_result(self, line: Mapping[str, Any], finding: Any, ratios: Any) -> None:
        """One check is done."""
        name = line["name"]
        self.lines[name] = CheckLine(**line)
        self.ratios[name] = ratios
        if finding is not None:
            self.findings[name] = KernelFinding.from_json(finding)

    def lost(self, example: Example | None, sentence: str, severity: Severity) -> None:
        """A child is gone: what it was at is the finding. Raises TargetError if it was at none."""
        if example is None:
            raise TargetError(f"the target cannot be run: {sentence}, before its first example")
        self.findings[example.check] = KernelFinding(
            check=example.check, severity=severity, sentence=sentence, case=example.case,
            words=example.words, example=0,
        )  # fmt: skip
        self.lines[example.check] = CheckLine(
            name=example.check, sentence=sentence, result=VIOLATED, note=sentence
        )

    def report(self, most_crashes: int) -> KernelReport:
        """Everything in the order of the checks."""
        assert self.head is not None
        report = self.head
        report.canaries_caught, report.canaries_missed = self.canaries
        report.lines = [self.lines[name] for name in self.order if name in self.lines]
        report.findings = [self.findings[name] for name in self.order if name in self.findings]
        report.ratios = {}
        for name in self.order:
            for precision, found in self.ratios.get(name, {}).items():
                report.ratios.setdefault(precision, []).extend(found)
        if len(report.lines) < len(self.order):
            report.lines.append(
                CheckLine(
                    name="the checks that are left",
                    sentence=f"not run after {most_crashes} crashes",
                    result=NOT_RUN,
                )
            )
        return report
