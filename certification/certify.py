"""Certifies one target: runs the stages, collects what broke, and states what was done.

The order is fixed and so are the budgets (`depths.py`): look at the target, check the ruler, drive
every level that it has (Hypothesis's machines first, then the plain driver), visit every state of
small scopes, then see which methods were never called. `verdict.py` decides whether the findings
fail the run.

It also states what the certificate does not cover, so that a pass is never read as more than it
is.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from poolproof import __version__
from poolproof.certification.attention_stage import STAGE as ATTENTION
from poolproof.certification.attention_stage import attention_stage, why_no_attention
from poolproof.certification.certificate import (
    THE_REST,
    Certificate,
    NotRun,
    StageOutcome,
    StageResult,
)
from poolproof.certification.depths import BUDGETS
from poolproof.certification.description import Description, before_any_command
from poolproof.certification.driving import Driving, described, kinds_of, layout_notes
from poolproof.certification.exploration import Exploring
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.jobs import methods_entered
from poolproof.certification.lab import lead_on
from poolproof.certification.levels import LEVELS
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import StageProgress
from poolproof.certification.ruler import check_ruler
from poolproof.certification.run_kinds import POOL, Chunk, RunKind, manager_kind
from poolproof.certification.second_look import PATIENCE, SecondLook
from poolproof.contract.profile_costs import alternatives, with_changes
from poolproof.contract.target import CONTRACT_VERSION
from poolproof.contract.trace import Trace
from poolproof.harness.extent import Extent
from poolproof.harness.isolation import Executor, Finished, ImporterError, InProcess, Isolation
from poolproof.stateful_tests.warm_up import warmed_up
from poolproof.targets.target import Target

__all__ = ["NEVER_TRIED", "InterruptedCertification", "certify", "not_covered", "not_run"]


NEVER_TRIED = (
    "calls from several threads or processes",
    "a call that is interrupted",
    "time (clocks, entries that expire)",
    "instances that are copied, pickled or restarted",
    "more than two instances at once",
    "a machine out of memory",
)
"""What no stage does at any depth, whatever the target is."""


def not_covered(
    about: Description, options: CertifyOptions, stages: Sequence[StageResult]
) -> tuple[str, ...]:
    """What a pass at this depth leaves open, in whole sentences.

    How far runs went is taken from the `stages` that ran, and from nothing else.
    """
    if about.can is None:
        return ("nothing was driven: the target could not be constructed",)
    never = f"what no stage tries: {', '.join(NEVER_TRIED)}"
    return (*LEVELS[about.level].open_points(about, options), *beyond(stages), never)


def beyond(stages: Sequence[StageResult]) -> Iterator[str]:
    """For each level, the sizes that some stage reached: nothing was tried beyond them."""
    for level in dict.fromkeys(stage.level for stage in stages):
        tried = Extent()
        for stage in stages:
            if stage.level == level:
                tried.take_in(stage.extent)
        sizes = [_range(name, low, high) for name, (low, high) in tried]
        if sizes:
            yield f"at {level} level, whatever is beyond: {'; '.join(sizes)}"


def _range(name: str, low: int, high: int) -> str:
    return f"{name} {low:,}" if low == high else f"{name} {low:,} to {high:,}"


def not_run(about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
    """Stages that this certification left out, each with the reason."""
    left_out = [("kernel level", "kernels are certified by `poolproof kernels`")]
    if not about.level.has_layouts:
        left_out = [("manager and kernel levels", "the target is none of a manager or kernel")]
    no_attention = why_no_attention(about, options)
    if not about.level.is_part and no_attention is not None:
        left_out.append((ATTENTION, no_attention))
    left_out += LEVELS[about.level].left_out(about, options)
    if options.in_process:
        left_out.append(("isolation", "turned off (--in-process): no limits were enforced"))
    return left_out


_SAMPLE_RUNS = 20
"""Runs that are profiled to see which methods are entered; profiling is slow."""


class InterruptedCertification(KeyboardInterrupt):
    """A signal ended the run; `certificate` holds what was found until then, and no verdict."""

    def __init__(self, certificate: Certificate) -> None:
        super().__init__()
        self.certificate = certificate


def certify(
    load: Callable[[], Target], options: CertifyOptions, progress: StageProgress
) -> Certificate:
    """The certificate of the target that `load` loads, without a verdict yet.

    `load` is called in a child process unless `options.in_process`. Raises TargetError when the
    target cannot be run at all, and InterruptedCertification when a signal ends the run.
    """
    executor: Isolation[Target] | InProcess[Target] = (
        InProcess(load)
        if options.in_process
        else Isolation(warmed_up(load), options.limits, workers=options.workers)
    )
    began = time.monotonic()
    certification = _Certification(executor, options, progress)
    try:
        with executor:
            certificate = certification.run()
    except ImporterError as error:
        raise error.as_known() from error
    seconds = time.monotonic() - began
    certificate = replace(certificate, limits=(executor.statement,), seconds=seconds)
    if certification.was_interrupted:
        raise InterruptedCertification(certificate)
    return certificate


class _Certification:
    """One certification in progress."""

    def __init__(
        self, executor: Executor[Target], options: CertifyOptions, progress: StageProgress
    ) -> None:
        self._executor = SecondLook(executor)
        self._options = options
        self._progress = progress
        self._canaries: tuple[tuple[str, ...], tuple[str, ...]] = (), ()
        self.was_interrupted = False

    def run(self) -> Certificate:
        self._progress.begin("looking at the target")
        about = described(self._executor)
        kinds = kinds_of(about, self._options)
        driving = Driving(self._executor, about, self._options, self._progress)
        try:
            return self._drive(about, driving, kinds)
        except KeyboardInterrupt as interrupt:
            self.was_interrupted = True
            by = f" by {interrupt}" if str(interrupt) else ""
            return self._cut_short(about, driving, f"interrupted{by}")
        except ImporterError as error:
            # A hostile target can end any process between it and us.
            return self._cut_short(about, driving, str(error))

    def _drive(self, about: Description, driving: Driving, kinds: list[RunKind]) -> Certificate:
        if about.unbuilt is not None:
            driving.collector.add_lost("construction", _unbuilt(about))
            return self._certificate(about, driving)
        if about.may_be_unfinished and lead_on(driving, kinds, self._options.seed):
            self._progress.end()
            return self._certificate(about, driving)
        self._progress.begin("checking the ruler")
        self._canaries = caught, missed = check_ruler(about, kinds)
        driving.drive(kinds)
        self._explore(about, driving, kinds)
        driving.stages += attention_stage(
            self._executor,
            about,
            driving,
            options=self._options,
            progress=self._progress,
            kinds=kinds,
        )
        certificate = replace(
            self._certificate(about, driving),
            canaries_caught=caught,
            canaries_missed=missed,
            never_called=self._never_called(about, driving),
            behaves_as=self._behaves_as(about, driving),
            hardening=self._harden(about, driving).findings if self._options.hardening else (),
        )
        self._progress.end()
        return certificate

    def _cut_short(self, about: Description, driving: Driving, why: str) -> Certificate:
        """What was found before the run ended too early; it concludes nothing."""
        self._progress.end()
        number = len(driving.collector.findings)
        rest = StageResult(
            level=about.level,
            stage=THE_REST,
            outcome=StageOutcome.INCONCLUSIVE,
            note=f"{why}, {number} finding{'s' * (number != 1)} until then",
        )
        so_far, (caught, missed) = self._certificate(about, driving), self._canaries
        return replace(
            so_far,
            stages=(*so_far.stages, rest),
            canaries_caught=caught,
            canaries_missed=missed,
        )

    def _explore(self, about: Description, driving: Driving, kinds: list[RunKind]) -> None:
        """Every state or workload of small scopes, where no worker was lost."""
        exploring = Exploring(
            self._executor,
            about,
            driving.collector,
            self._progress,
            self._options.seed,
            accepted=self._options.accepted,
        )
        exploring.explore(BUDGETS[self._options.depth], driving.lost, kinds)
        driving.stages += exploring.stages

    def _stood_still(self, about: Description) -> list[StageResult]:
        """A stage that concludes nothing, if calls stood still and then did not."""
        calls = self._executor.stood_still
        if not calls:
            return []
        note = (
            f"{calls[0]}, and the same run ended when it was repeated"
            f"{f'; so did {len(calls) - 1} more' if len(calls) > 1 else ''}. Certify again on a "
            "quiet machine or with a larger --call-timeout; if it comes again there, the target "
            "waits for something that does not always come"
        )
        return [
            StageResult(
                level=about.level,
                stage="calls that stood still",
                outcome=StageOutcome.INCONCLUSIVE,
                note=note,
            )
        ]

    def _slow(self) -> list[str]:
        """Notes, if calls took longer than the time limit where they may, and ended."""
        where = {
            "slow at the sizes of servers": self._executor.slow,
            "slow to begin": self._executor.slow_to_begin,
        }
        limit = f"{PATIENCE:g} times the limit"
        return [
            f"{what}, and not wrong: {calls[0]}, and ended within {limit}"
            + (f"; so did {len(calls) - 1} more" if len(calls) > 1 else "")
            for what, calls in where.items()
            if calls
        ]

    def _certificate(self, about: Description, driving: Driving) -> Certificate:
        options = self._options
        return Certificate(
            poolproof_version=__version__,
            contract_version=CONTRACT_VERSION,
            target=about.name,
            target_version=about.version,
            source=about.source,
            shape=about.shape,
            profile=about.profile,
            depth=options.depth,
            seed=options.seed,
            workers=1 if options.in_process else options.workers,
            limits=(),
            python=f"{platform.python_implementation()} {platform.python_version()}",
            platform=platform.platform(terse=True),
            stages=(*driving.stages, *self._stood_still(about)),
            findings=driving.collector.findings,
            notes=(*about.notes, *layout_notes(about), *sorted(driving.remarks), *self._slow()),
            not_run=tuple(NotRun(what, why) for what, why in not_run(about, options)),
            not_covered=not_covered(about, options, driving.stages),
        )

    def _never_called(self, about: Description, driving: Driving) -> tuple[str, ...]:
        """Public methods of the class that none of a sample of runs entered."""
        if about.level.is_part or not about.public_methods or driving.lost:
            return ()
        self._progress.begin("methods never called")
        entered: set[str] = set()
        for kind in kinds_of(about, self._options):
            if kind.level.is_part:
                continue
            outcome = driving.one(methods_entered, Chunk(kind, self._options.seed, 0, _SAMPLE_RUNS))
            if isinstance(outcome, Finished):
                entered |= outcome.value
        return tuple(name for name in about.public_methods if name not in entered)

    def _behaves_as(self, about: Description, driving: Driving) -> str | None:
        """The eviction profile under which a target that breaks nothing but ORD holds."""
        findings = driving.collector.findings
        broken = {form.violation.invariant for found in findings for form in found.each_form}
        if broken != {"ORD"}:
            return None
        # Of a manager the layout whose order is broken; "pool" at the other levels.
        layout = next((f.trace.options.get("layout") for f in findings), None)
        kind = POOL if layout is None else manager_kind(str(layout))
        profile = getattr(about.layout_of_kind(kind), "profile", about.profile)
        for change in alternatives(profile, ("eviction",)):
            other = with_changes(profile, (change,))
            self._progress.begin(f"trying {change}")
            if not any(result.num_failing_runs for result in driving.chunks(kind, 3, other)):
                return str(change)
        return None

    def _harden(self, about: Description, driving: Driving) -> FindingCollector:
        """Drive the misuse that the profile leaves undefined, as if it had to be refused."""
        found = driving.new_collector()
        if not about.level.has_misuse or about.profile.misuse != "undefined":
            return found
        stage = "misuse that the profile leaves undefined"
        self._progress.begin(stage)
        profile = replace(about.profile, misuse="raises")
        for result in driving.chunks(POOL, 4, profile):
            for trace in result.failures.values():
                found.add(stage, trace)
        return found


def _unbuilt(about: Description) -> Trace:
    return replace(before_any_command(about), violation=about.unbuilt)
