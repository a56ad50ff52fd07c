"""Certifies a target with a patch beside the one without, and says what the patch does.

Both are certified in full. What was found of either is then replayed on the other, because a search
that did not find something again proves little: a finding is repaired if its commands show nothing
any more and nothing of its kind is found; it is broken by the patch if its commands show nothing
without it. In between are findings that the unpatched target shows too, in another form, and those
whose commands it does not survive for another reason.

Last, both are given the same commands, and what they find in their caches is compared
(`hits.py`): a repair may be right and cost all hits.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poolproof.certification.certificate import Certificate, StageOutcome
from poolproof.certification.certify import certify
from poolproof.certification.driving import described, kinds_of
from poolproof.certification.finding import Finding
from poolproof.certification.hits import (
    HitComparison,
    Hits,
    compared,
    count_hits,
    has_hits,
    recorded_runs,
)
from poolproof.certification.isolated_trace import replay_each
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import StageProgress
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.depth import Depth
from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.failure_kind import EVERY_KIND, FailureKind, failure_kind
from poolproof.harness.isolation import Finished, ImporterError, Isolation
from poolproof.harness.replay import Replay
from poolproof.targets.target import Target

__all__ = ["PatchEffect", "RepairFinding", "RepairReport", "judge_repair"]

_RUNS = {Depth.QUICK: 240, Depth.STANDARD: 960, Depth.DEEP: 4_800}
"""Runs over which hits are compared, all kinds together."""
_ENGINE_COST = 4
"""How many times fewer they are of engines, whose commands cost more."""
_FEWEST_RUNS = 8
"""And of each kind at least."""
_RUNS_PER_CHUNK = 8


class PatchEffect(enum.Enum):
    """What a patch does to a finding."""

    REPAIRS = "repairs"
    LEAVES = "leaves"
    BREAKS = "breaks"
    UNCOVERS = "uncovers"
    """It is found with the patch; without it the same commands show something else, and earlier."""


@dataclass(frozen=True, slots=True)
class RepairFinding:
    """A finding, what the patch does to it, and how that is known, in words."""

    effect: PatchEffect
    finding: Finding
    why: str

    def to_json(self) -> dict[str, Any]:
        """The finding as plain JSON values."""
        return {"effect": self.effect.value, "why": self.why, "finding": self.finding.to_json()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """Both certificates (not judged), each finding, and what the patch costs in hits.

    `hits` has a comparison for each level that was compared.
    """

    patch: str
    before: Certificate
    after: Certificate
    findings: tuple[RepairFinding, ...]
    hits: tuple[HitComparison, ...]

    def of(self, effect: PatchEffect) -> tuple[RepairFinding, ...]:
        """The findings to which the patch does that."""
        return tuple(judged for judged in self.findings if judged.effect is effect)

    @property
    def unconcluded(self) -> tuple[str, ...]:
        """Why one of the certifications says less than it should, in words."""
        return tuple(
            f"{name}: {stage.level}, {stage.stage}: {stage.note or 'inconclusive'}"
            for name, certificate in (("without it", self.before), ("with it", self.after))
            for stage in certificate.stages
            if stage.outcome is StageOutcome.INCONCLUSIVE and not certificate.findings
        )

    @property
    def exit_status(self) -> int:
        """0: it breaks nothing, and repairs something if there is anything; 1; 2 not concluded."""
        if self.of(PatchEffect.BREAKS):
            return 1
        if self.unconcluded:
            return 2
        return int(bool(self.of(PatchEffect.LEAVES)) and not self.of(PatchEffect.REPAIRS))

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "format": "poolproof-repair",
            "version": 1,
            "patch": self.patch,
            "target": self.before.target,
            "patched": self.after.target,
            "status": self.exit_status,
            "findings": [judged.to_json() for judged in self.findings],
            "hits": [hits.to_json() for hits in self.hits],
            "unconcluded": list(self.unconcluded),
            "notes": list(self.after.notes),
            "certificates": [self.before.to_json(), self.after.to_json()],
        }


def judge_repair(
    patch: str,
    load: tuple[Callable[[], Target], Callable[[], Target]],
    options: CertifyOptions,
    progress: StageProgress,
) -> RepairReport:
    """What `patch` does; `load` are what loads the target without it, and with it.

    Raises TargetError where either cannot be run, and InterruptedCertification.
    """
    options = replace(options, accepted=EVERY_KIND)
    # The patched one first: a diff that does not apply is said before minutes of work.
    after = certify(load[1], options, progress)
    before = certify(load[0], options, progress)
    progress.begin("replaying what was found")
    found = _judged(before, after, load, options)
    progress.begin("comparing hits")
    hits = _hits(load, options)
    progress.end()
    return RepairReport(patch=patch, before=before, after=after, findings=found, hits=hits)


def _judged(
    before: Certificate,
    after: Certificate,
    load: tuple[Callable[[], Target], Callable[[], Target]],
    options: CertifyOptions,
) -> tuple[RepairFinding, ...]:
    known = {identity for finding in before.findings for identity in finding.identities}
    found = {identity for finding in after.findings for identity in finding.identities}
    mine, theirs = _forms(before), _forms(after)
    strange = [form for form in theirs if form.identity not in known]
    patched = _replays(mine, load[1], options)
    unpatched = _replays(strange, load[0], options)
    # What is found with the patch alone.
    added = {form.identity: _effect_of_added(form, unpatched) for form in strange}
    others = [f for f in after.findings if not f.identities & known]
    judged_others = [_judged_added(finding, added) for finding in others]
    left_kinds = {
        form.kind: form
        for judged in judged_others
        if judged.effect is PatchEffect.LEAVES
        for form in judged.finding.each_form
    }
    judged = [
        _judged_known(finding, patched, {i.fingerprint for i in found}, left_kinds)
        for finding in before.findings
    ]
    return (*judged, *judged_others)


def _forms(certificate: Certificate) -> list[Finding]:
    return [form for finding in certificate.findings for form in finding.each_form]


def _replays(
    forms: Sequence[Finding], load: Callable[[], Target], options: CertifyOptions
) -> dict[str, Replay]:
    """What each form shows on that target, by its fingerprint."""
    if not forms:
        return {}
    shown = replay_each([form.trace for form in forms], load, options.limits)
    return {form.fingerprint: replay for form, replay in zip(forms, shown, strict=True)}


def _kind(replay: Replay, violation: Violation) -> FailureKind:
    return failure_kind(violation, replay.applied)


def _effect_of_added(form: Finding, unpatched: dict[str, Replay]) -> tuple[PatchEffect, str]:
    replay = unpatched[form.fingerprint]
    violation = replay.violation
    if violation is None:
        gaps = f", {replay.num_left_out} of them left out" if replay.num_left_out else ""
        return PatchEffect.BREAKS, f"without the patch its commands show nothing{gaps}"
    if _kind(replay, violation) == form.kind:
        return PatchEffect.LEAVES, "without the patch its commands show the same"
    first = f"without the patch its commands show {violation.invariant} first"
    return PatchEffect.UNCOVERS, f"{first}, so that it may have been there"


def _judged_added(finding: Finding, added: dict[Any, tuple[PatchEffect, str]]) -> RepairFinding:
    """A finding of the patched target alone, by the worst of its forms."""
    order = (PatchEffect.BREAKS, PatchEffect.UNCOVERS, PatchEffect.LEAVES)
    effects = [added[form.identity] for form in finding.each_form]
    effect, why = min(effects, key=lambda each: order.index(each[0]))
    return RepairFinding(effect, finding, why)


def _judged_known(
    finding: Finding,
    patched: dict[str, Replay],
    found: set[str],
    left_kinds: dict[FailureKind, Finding],
) -> RepairFinding:
    for form in finding.each_form:
        violation = patched[form.fingerprint].violation
        name = "it" if form.fingerprint == finding.fingerprint else f"its form {form.fingerprint}"
        if violation is not None:
            what = "still shows" if violation.invariant == form.violation.invariant else "now shows"
            why = f"the replay of {name} {what} {violation.invariant}"
            return RepairFinding(PatchEffect.LEAVES, finding, why)
        if form.fingerprint in found:
            why = f"{name} was found with the patch as well"
            return RepairFinding(PatchEffect.LEAVES, finding, why)
    for form in finding.each_form:
        other = left_kinds.get(form.kind)
        if other is not None:
            why = f"its commands show nothing, but {other.fingerprint} is of its kind"
            return RepairFinding(PatchEffect.LEAVES, finding, why)
    gaps = sum(patched[form.fingerprint].num_left_out for form in finding.each_form)
    why = "its commands show nothing with the patch, and nothing of its kind was found"
    if gaps:
        why += f"; {gaps} of them mean nothing any more"
    return RepairFinding(PatchEffect.REPAIRS, finding, why)


def _hits(
    load: tuple[Callable[[], Target], Callable[[], Target]], options: CertifyOptions
) -> tuple[HitComparison, ...]:
    """A comparison for each level with a cache."""
    try:
        with Isolation(load[0], options.limits, workers=options.workers) as unpatched:
            kinds = [k for k in kinds_of(described(unpatched), options) if has_hits(k)]
            each = _RUNS[options.depth] // max(len(kinds), 1)
            chunks = [
                Chunk(kind, options.seed, first, _RUNS_PER_CHUNK)
                for kind in kinds
                for first in range(0, _runs_of(kind, each), _RUNS_PER_CHUNK)
            ]
            outcomes = unpatched.map(recorded_runs, chunks)
            traces = [t for o in outcomes if isinstance(o, Finished) for t in o.value]
            before = _counted(unpatched, traces)
        with Isolation(load[1], options.limits, workers=options.workers) as patched:
            after = _counted(patched, traces)
    except ImporterError as error:
        raise error.as_known() from error
    found = []
    for level in dict.fromkeys(trace.level for trace in traces):
        places = [place for place, trace in enumerate(traces) if trace.level is level]
        found.append(
            compared(
                [traces[place] for place in places],
                [before[place] for place in places],
                [after[place] for place in places],
            )
        )
    return tuple(found)


def _runs_of(kind: RunKind, share: int) -> int:
    cost = _ENGINE_COST if kind.level is Level.ENGINE else 1
    return max(_FEWEST_RUNS, share // cost)


def _counted(executor: Isolation[Target], traces: Sequence[Trace]) -> list[Hits | None]:
    """What the target finds in each run; None where it broke something, or cost its worker."""
    groups = [traces[first : first + _GROUP] for first in range(0, len(traces), _GROUP)]
    counted: list[Hits | None] = []
    for group, outcome in zip(groups, executor.map(_count_each, groups), strict=True):
        counted += outcome.value if isinstance(outcome, Finished) else [None] * len(group)
    return counted


_GROUP = 16
"""Runs that one worker counts: a worker costs a fork, and a lost one its group."""


def _count_each(target: Target, traces: Sequence[Trace], beacon: Any) -> list[Hits | None]:
    """The job."""
    return [count_hits(target, trace, beacon) for trace in traces]
