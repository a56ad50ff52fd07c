"""The verdict: which findings fail a run, and whether what is left may be called a pass.

A finding fails the run unless its severity is not asked for (`--fail-on`), it is listed as known,
or the baseline showed it already. Each of its forms is asked for by itself, and what is accepted is
listed apart from what is not. An entry of the known list that no longer fails is an error as well,
so that the list cannot rot. A violation beats an inconclusive run, and that beats a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from poolproof.certification.baseline import Baseline
from poolproof.certification.certificate import (
    Certificate,
    Finding,
    FindingStatus,
    StageOutcome,
    Verdict,
)
from poolproof.certification.finding_groups import worst_first
from poolproof.certification.known_findings import KnownFindings
from poolproof.contract.violation import Severity
from poolproof.harness.failure_kind import FailureKind

__all__ = ["Rules", "failing", "judge", "reasons_inconclusive"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the user lets pass: severities that fail, accepted findings, the baseline's findings."""

    fail_on: Collection[Severity] = tuple(Severity)
    known: KnownFindings = field(default_factory=KnownFindings)
    baseline: Baseline = field(default_factory=Baseline)

    @property
    def accepted_kinds(self) -> frozenset[FailureKind]:
        """The kinds of failures of which something is accepted, for whichever target."""
        of_known = (identity for entry in self.known.live for identity in entry.accepted)
        return frozenset(identity.kind for identity in (*of_known, *self.baseline.forms))


def judge(certificate: Certificate, rules: Rules) -> Certificate:
    """The certificate with the status of each finding and the verdict filled in."""
    target = certificate.target
    live, expired = rules.known.valid_for(target), rules.known.expired_for(target)
    known = {identity for entry in live for identity in entry.accepted}
    over = {identity for entry in expired for identity in entry.accepted} - known
    found = {form.identity for finding in certificate.findings for form in finding.each_form}

    def status_of(form: Finding) -> FindingStatus:
        if form.identity in known:
            return FindingStatus.KNOWN
        # Somebody has set it an end; an older certificate does not put that off.
        if form.identity not in over and rules.baseline.accepts(form, target):
            return FindingStatus.BASELINE
        return FindingStatus.NEW

    fixed = tuple(e.fingerprint for e in live if not found.intersection(e.accepted))
    judged = replace(
        certificate,
        findings=_by_status(certificate.findings, status_of),
        notes=(*certificate.notes, *rules.baseline.notes(target)),
        # A run that could not see everything cannot say that something is gone.
        fixed_known=() if reasons_inconclusive(certificate) else tuple(sorted(fixed)),
        expired_known=tuple(entry.fingerprint for entry in expired),
        fail_on=tuple(severity for severity in Severity if severity in rules.fail_on),
    )
    return replace(judged, verdict=_verdict(judged))


def _by_status(
    findings: Iterable[Finding], status_of: Callable[[Finding], FindingStatus]
) -> tuple[Finding, ...]:
    """The findings, those in two that are accepted in some of their forms and not in others."""
    judged = []
    for finding in findings:
        forms = [replace(form, status=status_of(form)) for form in finding.each_form]
        for status in FindingStatus:
            of_status = [form for form in forms if form.status is status]
            if of_status:
                judged.append(replace(of_status[0], forms=tuple(of_status[1:])))
    return tuple(sorted(judged, key=worst_first))


def failing(certificate: Certificate) -> tuple[Finding, ...]:
    """The findings of a judged certificate that fail the run."""
    return tuple(
        finding
        for finding in certificate.findings
        if finding.status is FindingStatus.NEW
        and any(form.violation.severity in certificate.fail_on for form in finding.each_form)
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
        if stage.outcome is StageOutcome.INCONCLUSIVE and not stage.missing_facts
    ]
    explained = {
        stage for finding in certificate.findings for form in finding.each_form
        for stage in form.stages
    }  # fmt: skip
    reasons += [
        f"{stage.level}, {stage.stage}: refused, but no finding says why"
        for stage in certificate.stages
        if stage.outcome is StageOutcome.REFUSED and stage.stage not in explained
    ]
    if all(stage.outcome is StageOutcome.NOT_RUN for stage in certificate.stages):
        reasons.append("no stage was run")
    return tuple(reasons)


def _verdict(certificate: Certificate) -> Verdict:
    if failing(certificate) or certificate.fixed_known:
        return Verdict.REFUSED
    if reasons_inconclusive(certificate):
        return Verdict.INCONCLUSIVE
    return Verdict.HOLDS
