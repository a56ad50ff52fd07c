"""The verdict: which findings fail a run, and whether the rest counts as a pass.

A finding fails the run unless its severity is not asked for (`--fail-on`), it is listed as known,
or the baseline showed it already. Each of its forms is judged by itself, and accepted forms are
listed separately. An entry of the known list that no longer fails is an error as well, so that the
list cannot rot. A violation beats an inconclusive run, and that beats a pass.

Certificates of allocators and of kernels are judged by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from poolproof.certification.baseline import Baseline, promises_of
from poolproof.certification.certificate import (
    THE_REST,
    Certificate,
    Finding,
    FindingStatus,
    StageOutcome,
    Verdict,
)
from poolproof.certification.finding import Identity
from poolproof.certification.finding_groups import worst_first
from poolproof.certification.kernel_certificate import JudgedKernelFinding, KernelCertificate
from poolproof.certification.known_findings import KnownFindings
from poolproof.contract.violation import Severity
from poolproof.harness.failure_kind import FailureKind

__all__ = ["JudgedCertificate", "Rules", "failing", "judge", "judge_kernel", "reasons_inconclusive"]

AnyCertificate = TypeVar("AnyCertificate", Certificate, KernelCertificate)


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


class JudgedFinding(Protocol):
    """What a verdict asks of a finding."""

    @property
    def status(self) -> FindingStatus: ...
    @property
    def severities(self) -> frozenset[Severity]: ...


Found_co = TypeVar("Found_co", bound=JudgedFinding, covariant=True)


class JudgedCertificate(Protocol[Found_co]):
    """What certificates of allocators and of kernels have in common once they are judged."""

    @property
    def target(self) -> str: ...
    @property
    def findings(self) -> tuple[Found_co, ...]: ...
    @property
    def canaries_caught(self) -> tuple[str, ...]: ...
    @property
    def canaries_missed(self) -> tuple[str, ...]: ...
    @property
    def fixed_known(self) -> tuple[str, ...]: ...
    @property
    def expired_known(self) -> tuple[str, ...]: ...
    @property
    def fail_on(self) -> tuple[Severity, ...]: ...
    @property
    def verdict(self) -> Verdict | None: ...


def judge(certificate: Certificate, rules: Rules) -> Certificate:
    """The certificate with the status of each finding and the verdict filled in."""
    target, baseline = certificate.target, rules.baseline

    def status_of(form: Finding) -> FindingStatus:
        is_old = baseline.accepts(target, form.identity, promises_of(form))
        return _status(rules, target, form.identity, is_old=is_old)

    findings = _by_status(certificate.findings, status_of)
    notes = (*certificate.notes, *baseline.notes(target))
    return _concluded(replace(certificate, findings=findings, notes=notes), rules, target)


def judge_kernel(certificate: KernelCertificate, rules: Rules) -> KernelCertificate:
    """The same for a kernel. An entry of the known file may name its rows, a baseline does not."""
    baseline, named = rules.baseline, certificate.named

    def judged(finding: JudgedKernelFinding) -> JudgedKernelFinding:
        (identity,) = finding.identities
        is_old = baseline.accepts(certificate.target, identity)
        return replace(finding, status=_status(rules, named, identity, is_old=is_old))

    findings = tuple(map(judged, certificate.findings))
    return _concluded(replace(certificate, findings=findings), rules, named)


def _status(rules: Rules, target: str, identity: Identity, *, is_old: bool) -> FindingStatus:
    """Whether one form of a finding is accepted; `is_old` says that the baseline has it."""
    known, expired = rules.known.valid_for(target), rules.known.expired_for(target)
    if any(entry.accepts(identity) for entry in known):
        return FindingStatus.KNOWN
    # Its entry has a last day; an older certificate does not postpone that.
    is_over = any(entry.accepts(identity) for entry in expired)
    return FindingStatus.BASELINE if is_old and not is_over else FindingStatus.NEW


def _concluded(certificate: AnyCertificate, rules: Rules, target: str) -> AnyCertificate:
    """The certificate, whose findings have their status, with all that follows from these."""
    found = frozenset[Identity]().union(*(f.identities for f in certificate.findings))
    known = rules.known
    fixed = (e.fingerprint for e in known.valid_for(target) if not any(map(e.accepts, found)))
    judged = replace(
        certificate,
        # A run that could not see everything cannot say that something is gone.
        fixed_known=() if _sees_too_little(certificate) else tuple(sorted(fixed)),
        expired_known=tuple(entry.fingerprint for entry in known.expired_for(target)),
        fail_on=tuple(severity for severity in Severity if severity in rules.fail_on),
    )
    return replace(judged, verdict=_verdict(judged))


def _sees_too_little(certificate: Certificate | KernelCertificate) -> bool:
    one_case = isinstance(certificate, KernelCertificate) and certificate.one_case
    return one_case or bool(reasons_inconclusive(certificate))


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


def failing(certificate: JudgedCertificate[Found_co]) -> tuple[Found_co, ...]:
    """The findings of a judged certificate that fail the run."""
    return tuple(
        finding
        for finding in certificate.findings
        if finding.status is FindingStatus.NEW
        and not finding.severities.isdisjoint(certificate.fail_on)
    )


def reasons_inconclusive(certificate: Certificate | KernelCertificate) -> tuple[str, ...]:
    """Why the run says less than it should, in words; empty if it says all."""
    if isinstance(certificate, KernelCertificate):
        return certificate.run.reasons_inconclusive
    cut_short = tuple(stage.note for stage in certificate.stages if stage.stage == THE_REST)
    if cut_short:
        return cut_short  # What such a run did not come to says nothing of the target.
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


def _verdict(certificate: AnyCertificate) -> Verdict:
    if failing(certificate) or certificate.fixed_known:
        return Verdict.REFUSED
    if reasons_inconclusive(certificate):
        return Verdict.INCONCLUSIVE
    return Verdict.HOLDS
