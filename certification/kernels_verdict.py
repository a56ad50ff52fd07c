"""Accepted findings of a kernel: the known file, the baseline, the severities that fail a run.

The rules are those of `verdict.py`; a kernel's report has a form of its own, which the baseline is
read back from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from poolproof.certification.baseline import BaselineError
from poolproof.certification.finding import Identity
from poolproof.certification.known_findings import KnownFindings
from poolproof.contract.violation import Severity
from poolproof.harness.failure_kind import FailureKind
from poolproof.kernels.report import FORMAT, KernelFinding, KernelReport

__all__ = ["KernelRules", "judge_kernel", "read_kernel_baseline"]


KERNEL = "kernel"
"""The operation of every finding about a kernel."""


@dataclass(frozen=True, slots=True)
class KernelBaseline:
    """What an earlier report shows, and of which kernel."""

    target: str | None = None
    fingerprints: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRules:
    """What the user lets pass."""

    fail_on: tuple[Severity, ...] = tuple(Severity)
    known: KnownFindings = field(default_factory=KnownFindings)
    baseline: KernelBaseline = field(default_factory=KernelBaseline)


def judge_kernel(report: KernelReport, target: str, rules: KernelRules) -> None:
    """Fill in the status of each finding, and which entries of the known file no longer fail.

    `target` is what the user named, with its rows in brackets.
    """
    live = rules.known.valid_for(target)
    # One of another kernel accepts nothing.
    is_of_it = rules.baseline.target == report.target
    before = rules.baseline.fingerprints if is_of_it else frozenset()
    known = {identity for entry in live for identity in entry.accepted}

    def judged(finding: KernelFinding) -> KernelFinding:
        if _identity(finding) in known:
            return replace(finding, status="known")
        return replace(finding, status="baseline" if finding.fingerprint in before else "new")

    report.findings = [judged(finding) for finding in report.findings]
    found = {_identity(finding) for finding in report.findings}
    fixed = (entry.fingerprint for entry in live if not found.intersection(entry.accepted))
    # A run that could not see everything cannot say that something is gone.
    report.fixed_known = [] if report.reasons_inconclusive() else sorted(fixed)
    report.expired_known = [entry.fingerprint for entry in rules.known.expired_for(target)]
    report.fail_on = [severity.value for severity in Severity if severity in rules.fail_on]


def _identity(finding: KernelFinding) -> Identity:
    """What an entry of the known file has to agree with; its `invariant` is the check."""
    kind = FailureKind(finding.check, finding.severity, KERNEL)
    return Identity(finding.fingerprint, kind)


def read_kernel_baseline(path: Path) -> KernelBaseline:
    """What a report shows that `--json` wrote. Raises BaselineError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BaselineError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise BaselineError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise BaselineError(f'{path} is no report on a kernel: it lacks "format": "{FORMAT}"')
    try:
        findings = [KernelFinding.from_json(item) for item in value["findings"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BaselineError(f"{path}: a finding cannot be read ({error})") from error
    names = frozenset(finding.fingerprint for finding in findings)
    return KernelBaseline(str(value.get("target")), names)
