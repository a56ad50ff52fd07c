"""The verdict: which findings fail a run, and whether what is left may be called a pass.

A finding fails the run unless its severity is not asked for (`--fail-on`), it is listed as known,
or the baseline showed it already. An entry of the known list that no longer fails is an error as
well, so that the list cannot rot. A violation beats an inconclusive run, and that beats a pass.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from poolproof.certificate import Certificate, Finding, FindingStatus, Outcome, Verdict
from poolproof.contract.violation import Severity
from poolproof.known_findings import KnownFindings

__all__ = ["Rules", "failing", "judge", "reasons_inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the user lets pass: severities that fail, accepted findings, the baseline's findings."""

    fail_on: Collection[Severity] = tuple(Severity)
    known: KnownFindings = field(default_factory=KnownFindings)
    baseline: frozenset[str] = frozenset()


def judge(certificate: Certificate, rules: Rules) -> Certificate:
    """The certificate with the status of each finding and the verdict filled in."""
    live = {entry.fingerprint for entry in rules.known.valid_for(certificate.target)}
    found = {finding.fingerprint for finding in certificate.findings}

    def status_of(finding: Finding) -> FindingStatus:
        if finding.fingerprint in live:
            return FindingStatus.KNOWN
        if finding.fingerprint in rules.baseline:
            return FindingStatus.BASELINE
        return FindingStatus.NEW

    judged = replace(
        certificate.with_status(status_of),
        # A run that could not see everything cannot say that something is gone.
        fixed_known=() if reasons_inconclusive(certificate) else tuple(sorted(live - found)),
        expired_known=tuple(
            entry.fingerprint for entry in rules.known.expired_for(certificate.target)
        ),
        fail_on=tuple(severity for severity in Severity if severity in rules.fail_on),
    )
    return replace(judged, verdict=_verdict(judged))


def failing(certificate: Certificate) -> tuple[Finding, ...]:
    """The findings of a judged certificate that fail the run."""
    return tuple(
        finding
        for finding in certificate.findings
        if finding.status is FindingStatus.NEW and finding.violation.severity in certificate.fail_on
    )


def reasons_inconclusive(certificate: Certificate) -> tuple[str, ...]:
    """Why the run says less than it should, in words; empty if it says all."""
    reasons = [f"canary not caught: {name}" for name in certificate.canaries_missed]
    if not certificate.num_canaries:
        reasons.append("no canary was run, so nothing shows that the checks catch anything")
    reasons += [f"never happened: {fact}" for fact in certificate.missing_facts]
    reasons += [
        f"{stage.level}, {stage.stage}: {stage.note or 'inconclusive'}"
        for stage in certificate.stages
        if stage.outcome is Outcome.INCONCLUSIVE and not stage.missing_facts
    ]
    if all(stage.outcome is Outcome.NOT_RUN for stage in certificate.stages):
        reasons.append("no stage was run")
    return tuple(reasons)


def _verdict(certificate: Certificate) -> Verdict:
    if failing(certificate) or certificate.fixed_known:
        return Verdict.REFUSED
    if reasons_inconclusive(certificate):
        return Verdict.INCONCLUSIVE
    return Verdict.HOLDS
