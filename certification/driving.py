"""Drives one target at every level that it has, and collects what breaks.

First Hypothesis's state machines, in parallel, then the plain driver in chunks. A worker that is
lost on the way is a finding like any other. `certify.py` decides which stages there are and what a
certificate says about them.

The kinds of runs, and the layouts that are left out, follow from what was seen of the target and
from what the user asked for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import TypeVar

from poolproof.certification.certificate import StageOutcome, StageResult
from poolproof.certification.depths import BUDGETS, RUNS_PER_CHUNK
from poolproof.certification.description import Description, describe
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.jobs import (
    ChunkResult,
    Machine,
    TimedMachine,
    effort_to_read,
    run_chunk,
    run_hypothesis,
)
from poolproof.certification.levels import LEVELS
from poolproof.certification.losses import (
    minimise_lost,
    trace_of_lost_chunk,
    trace_of_lost_machine,
)
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import StageProgress
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.misuse import MisuseFailure
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.harness.engine_production import EngineSizes
from poolproof.harness.extent import Extent
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.isolation import Executor, Finished, Job, Lost, Outcome, raise_if_ours
from poolproof.harness.manager_production import ManagerSizes
from poolproof.targets.target import Target
from poolproof.targets.target_spec import profile_words

__all__ = ["Driving", "described", "kinds_of", "layout_notes", "value_of"]


def kinds_of(about: Description, options: CertifyOptions) -> list[RunKind]:
    """The kinds of runs, in the order in which they are driven.

    Raises TargetError for a layout that the target does not have, or that cannot be run.
    """
    _check_layouts(about, options.layouts)
    kinds = [kind for level in LEVELS.values() for kind in level.kinds(about)]
    return [kind for kind in kinds if not options.layouts or kind.layout in options.layouts]


def layout_notes(about: Description) -> list[str]:
    """How the profiles of layouts differ from the one printed, and block sizes that they refuse."""
    first = about.profile.to_json()
    notes = []
    for layout in about.layouts:
        rows = layout.profile.to_json()
        differ = tuple(name for name in rows if rows[name] != first[name])
        if differ and not layout.why_not:
            notes.append(f"layout {layout.name}: {profile_words(layout.profile, differ)}")
        if layout.refused_block_sizes:
            sizes = ", ".join(map(str, layout.refused_block_sizes))
            notes.append(f"layout {layout.name}: not built with {sizes} tokens a block, it raised")
    return notes


def _check_layouts(about: Description, asked: tuple[str, ...]) -> None:
    if asked and not about.level.has_layouts:
        raise TargetError(f"{about.name} is {about.level.with_article} target; leave out --layout")
    reasons = {layout.name: layout.why_not for layout in about.layouts}
    for name in asked:
        if name not in reasons:
            raise TargetError(f"{about.name} has no layout {name!r}; it has {', '.join(reasons)}")
        if reasons[name]:
            raise TargetError(f"layout {name} of {about.name} is not run: {reasons[name]}")


A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R")

_BRIEF_RUNS_PER_CHUNK = 24

_BLOCK_SIZE_SHARE = 10
"""Runs with blocks of the usual size for one with others: most bugs have nothing to do with it."""

_ENGINE_BLOCK_SIZE_SHARE = 20
"""The same for engines, whose long blocks take many steps to fill."""

_MOST_ACCEPTED_LOSSES = 2
"""So many workers a stage may lose to what is accepted, and go on."""

_MOST_OF_AN_ACCEPTED_KIND = 8


def value_of(executor: Executor[C], job: Job[C, A, R], argument: A) -> R:
    """The value of one job. Raises TargetError when it raised one or cost its worker."""
    (ended,) = executor.map(job, [argument])
    outcome = raise_if_ours(ended)
    if isinstance(outcome, Finished):
        return outcome.value
    raise TargetError(outcome.sentence("looking at the target"))


def described(executor: Executor[Target]) -> Description:
    """What is known of the target before it is driven; a loss on construction is part of it."""
    (ended,) = executor.map(describe, [None])
    outcome = raise_if_ours(ended)
    return value_of(executor, describe, outcome) if isinstance(outcome, Lost) else outcome.value


class Driving:
    """The stages of one certification; `stages` and `collector` hold what they showed.

    `lost` are the kinds of runs that cost a worker: each further run could cost another time
    limit, so they are not continued.
    """

    def __init__(
        self,
        executor: Executor[Target],
        about: Description,
        options: CertifyOptions,
        progress: StageProgress,
    ) -> None:
        self._executor = executor
        self._about = about
        self._options = options
        self._progress = progress
        self._budget = BUDGETS[options.depth]
        self.stages: list[StageResult] = []
        self.lost: set[RunKind] = set()
        self.remarks: set[str] = set()
        self._kinds: list[RunKind] = []
        self.collector = self.new_collector()

    def drive(self, kinds: list[RunKind]) -> None:
        """All stages of these kinds (`run_kinds.py`)."""
        self._kinds = kinds
        self._drive_machines(kinds)
        for kind in kinds:
            if kind not in self.lost:
                self._drive_randomly(kind)
        for kind in kinds:
            sizes = self._budget.production_of(kind, kinds)
            if sizes is not None and kind not in self.lost:
                self._drive_randomly(kind.at_production_sizes(sizes))
        if any(kind not in self._options.accepted for kind in self.collector.kinds):
            return  # it would be found again, beside collisions that say nothing new
        for kind in kinds:
            layout = self._about.layout_of_kind(kind)
            if layout is not None and layout.takes_hash:
                self._drive_randomly(kind.weakened())
        for kind in kinds:
            layout = self._about.layout_of_kind(kind)
            if layout is not None and layout.block_sizes:
                self._drive_randomly(kind.with_block_sizes(layout.block_sizes))

    def one(self, job: Job[Target, A, R], argument: A) -> Finished[R] | Lost:
        """Run one job in a worker and return its outcome."""
        (outcome,) = self._executor.map(job, [argument])
        return raise_if_ours(outcome)

    def chunks(
        self, kind: RunKind, count: int, profile: Profile | None = None
    ) -> Iterator[ChunkResult]:
        """The results of `count` chunks in order; a lost worker becomes a failing run."""
        seed = self._options.seed
        firsts = range(0, count * RUNS_PER_CHUNK, RUNS_PER_CHUNK)
        return self.run([Chunk(kind, seed, first, RUNS_PER_CHUNK, profile) for first in firsts])

    def run(self, arguments: Sequence[Chunk]) -> Iterator[ChunkResult]:
        """The results of these chunks in order; a lost worker becomes a failing run."""
        for chunk, ended in zip(arguments, self._executor.map(run_chunk, arguments), strict=True):
            outcome = raise_if_ours(ended)
            if isinstance(outcome, Finished):
                yield outcome.value
                continue
            trace = trace_of_lost_chunk(self._executor, chunk, outcome, self._about)
            lost = ChunkResult(num_runs=1, num_failing_runs=1, num_steps=len(trace.commands))
            lost.lost = self._minimised_lost(trace, outcome)
            yield lost

    def new_collector(self) -> FindingCollector:
        """An empty collector that works on this certification's target."""
        api = self._options.api
        return FindingCollector(
            self.one,
            lambda trace, lost: minimise_lost(self._executor, trace, lost),
            self._budget.shortest_states,
            {} if api is None else {"api": api},
        )

    def _minimised_lost(self, trace: Trace, outcome: Lost) -> Trace:
        if not trace.commands:
            return trace
        return minimise_lost(self._executor, trace, outcome)

    def _drive_machines(self, kinds: list[RunKind]) -> None:
        """Hypothesis's state machines, side by side; each is one long job."""
        self._progress.begin("state machines")
        share = self._budget.machine_share(len(kinds))
        machines = [Machine(kind, self._options.depth, self._options.seed, share) for kind in kinds]
        for machine, outcome in zip(
            machines, self._executor.map(run_hypothesis, machines), strict=True
        ):
            self._note_machine(machine, outcome)

    def _note_machine(self, machine: Machine, ended: Outcome[TimedMachine]) -> None:
        stage = f"{machine.kind.stage}, state machine"
        outcome = raise_if_ours(ended)
        if isinstance(outcome, Finished):
            timed = outcome.value
            result = timed.result
            if result.trace is not None:
                self.collector.add(stage, result.trace)
            note = "the target answered the same commands differently"
            stage_result = StageResult(
                level=machine.kind.level,
                stage=stage,
                outcome=StageOutcome.HOLDS if result.trace is None else StageOutcome.REFUSED,
                steps=result.num_steps,
                runs=result.num_examples,
                seconds=timed.seconds,
                note=note if result.nondeterministic else "",
                extent=result.extent,
            )
        else:
            lost = trace_of_lost_machine(self._executor, machine, outcome, self._about)
            minimal = self._minimised_lost(lost, outcome)
            self.collector.add_lost(stage, minimal)
            if _kind_of(minimal) not in self._options.accepted:
                self.lost.add(machine.kind)
            stage_result = StageResult(
                level=machine.kind.level,
                stage=stage,
                outcome=StageOutcome.REFUSED,
                note=outcome.sentence("a command"),
            )
        self.stages.append(stage_result)

    def _chunks_of(self, kind: RunKind) -> list[Chunk]:
        seed = self._options.seed
        if isinstance(kind.production, ManagerSizes | EngineSizes):
            layout = self._about.layout_of_kind(kind)
            assert layout is not None
            if isinstance(kind.production, ManagerSizes):
                numbers = kind.production.runs(layout.manager_profile)
            else:
                assert isinstance(layout.profile, EngineProfile)
                numbers = kind.production.runs(layout.profile)
            return [Chunk(kind, seed, number, 1) for number in numbers]
        if kind.production is not None:
            groups = kind.production.groups(_BRIEF_RUNS_PER_CHUNK)
            return [Chunk(kind, seed, numbers.start, len(numbers)) for numbers in groups]
        if kind.block_sizes and kind.level is Level.ENGINE:
            numbers = self._engine_runs_with_block_sizes(kind)
            return [
                Chunk(kind, seed, number, min(RUNS_PER_CHUNK, numbers.stop - number))
                for number in numbers[::RUNS_PER_CHUNK]
            ]
        firsts = range(0, self._num_chunks(kind) * RUNS_PER_CHUNK, RUNS_PER_CHUNK)
        return [Chunk(kind, seed, first, RUNS_PER_CHUNK) for first in firsts]

    def _engine_runs_with_block_sizes(self, kind: RunKind) -> range:
        """The numbers of the runs: set-ups play different ones, so that they share the sizes."""
        chunks = self._budget.chunks_of_layout(kind, len(self._kinds))
        count = chunks * RUNS_PER_CHUNK // _ENGINE_BLOCK_SIZE_SHARE
        layouts = [each.layout for each in self._kinds]
        first = count * layouts.index(kind.layout)
        return range(first, first + count)

    def _num_chunks(self, kind: RunKind) -> int:
        if kind.layout is None:
            return self._budget.chunks[kind]
        if kind.hash_bits:
            # Collisions come in every run: where they are not seen in a hundred, they never are.
            return 1
        chunks = self._budget.chunks_of_layout(kind, len(self._kinds))
        return -(-chunks // _BLOCK_SIZE_SHARE) if kind.block_sizes else chunks

    def _drive_randomly(self, kind: RunKind) -> None:
        """The plain driver; a few more chunks after the first failure, then it stops.

        A failure that may be accepted does not stop it: something else may be broken as well.
        """
        chunks, required = self._chunks_of(kind), _required(kind, self._about)
        stage = kind.stage if kind.production else f"{kind.stage}, plain driver"
        # How many commands the runs have is not known before.
        self._progress.begin(stage, sum(chunk.count for chunk in chunks), "runs")
        began = time.monotonic()
        total = Tally(self._options.accepted)
        left = len(chunks)
        for result in self.run(chunks):
            self._progress.advance(result.num_runs)
            total.add(result)
            left -= 1
            if result.lost is not None:
                self.collector.add_lost(stage, result.lost)
            # Each lost worker costs a time limit or a minimisation, and so does a program that
            # breaks off each conversation; one is enough to refuse.
            if (result.lost is not None or result.in_vain) and (
                total.is_refused or total.num_lost > _MOST_ACCEPTED_LOSSES
            ):
                self.lost.add(kind)
                break
            if total.is_refused:
                left = min(left, self._budget.more_chunks_after_failure)
            if not left:
                break
        self.remarks |= total.remarks
        large, found = kind.production is not None, self.collector.kinds_of(kind.level)
        traces = list(total.large_traces(found) if large else total.traces())
        if traces:
            # A program is started anew after each run that fails: this can take minutes.
            self._progress.begin(f"{stage}, making traces smaller")
        for trace, num_runs in traces:
            self.collector.add(stage, trace, num_runs)
        self.stages.append(
            StageResult(
                level=kind.level,
                stage=stage,
                outcome=StageOutcome.REFUSED if total.failed
                else StageOutcome.INCONCLUSIVE if set(required) - total.facts
                else StageOutcome.HOLDS,
                steps=total.num_steps,
                runs=total.num_runs,
                seconds=time.monotonic() - began,
                facts_reached=tuple(fact for fact in required if fact in total.facts),
                # A campaign that stopped at a violation has not had the time to reach them. One
                # that may be accepted is no reason to ask for less.
                facts_required=() if total.is_refused else tuple(required),
                note=total.note(kind, time.monotonic() - began),
                extent=total.extent,
            )
        )  # fmt: skip


class Tally:
    """What the chunks of one stage have done so far; `accepted` are kinds that may be accepted."""

    def __init__(self, accepted: Container[FailureKind]) -> None:
        self._accepted = accepted
        self._shortest: dict[FailureKind, list[Trace]] = {}
        self._runs_of_kind: Counter[FailureKind] = Counter()
        self.num_steps = self.num_runs = self.num_failing_runs = self.num_collisions = 0
        self.num_lost = 0
        self.facts: set[str] = set()
        self.remarks: set[str] = set()
        self.extent = Extent()
        self.is_refused = False

    @property
    def failed(self) -> bool:
        """Whether anything broke, accepted or not."""
        return bool(self._shortest) or self.num_lost > 0

    def accepts(self, trace: Trace) -> bool:
        """Whether a failure of this kind may be accepted."""
        return _kind_of(trace) in self._accepted

    def add(self, result: ChunkResult) -> None:
        """Add what a chunk did."""
        self.num_steps += result.num_steps
        self.num_runs += result.num_runs
        self.num_failing_runs += result.num_failing_runs
        self.num_collisions += result.num_collisions
        self.facts |= result.facts
        self.remarks |= result.remarks
        self.extent.take_in(result.extent)
        self._runs_of_kind += result.runs_of_kind
        self.num_lost += result.lost is not None or result.in_vain
        if result.lost is not None:
            self.is_refused |= not self.accepts(result.lost)
        for kind, trace in result.failures.items():
            self._shortest.setdefault(kind, []).append(trace)
            self.is_refused |= kind not in self._accepted

    def traces(self) -> Iterator[tuple[Trace, int]]:
        """The traces to look into, each with the number of runs that it stands for.

        The shortest of each kind. A failure that may be accepted can hide another bug of its kind,
        so such a kind gets the shortest of several chunks.
        """
        for kind, traces in self._shortest.items():
            most = _MOST_OF_AN_ACCEPTED_KIND if kind in self._accepted else 1
            for place, trace in enumerate(sorted(traces, key=effort_to_read)[:most]):
                yield trace, self._runs_of_kind[kind] if place == 0 else 1

    def large_traces(self, found: Iterable[FailureKind]) -> Iterator[tuple[Trace, int]]:
        """The same for runs at production sizes, whose traces take long to minimise.

        Much is read seldom there, so the operation that shows something says little: of one
        promise that is broken as badly the shortest trace will do, and none where what was `found`
        before refuses the target for it already. Where something may be accepted, each kind is
        looked into.
        """
        refused = {_without_operation(kind) for kind in found if kind not in self._accepted}
        shortest: dict[object, tuple[FailureKind, Trace]] = {}
        for kind, traces in self._shortest.items():
            trace, alike = min(traces, key=effort_to_read), _without_operation(kind)
            if kind in self._accepted:
                yield trace, self._runs_of_kind[kind]
            elif alike not in refused:
                _, known = shortest.get(alike, (kind, trace))
                if effort_to_read(trace) <= effort_to_read(known):
                    shortest[alike] = kind, trace
        for kind, trace in shortest.values():
            yield trace, self._runs_of_kind[kind]

    def note(self, kind: RunKind, seconds: float) -> str:
        """The note for the certificate."""
        if self.failed:
            note = f"{self.num_failing_runs} of {self.num_runs} runs failed"
            return f"{note}; stopped early" if self.is_refused else note
        if self.num_collisions:
            return (
                f"hashes are trusted: with {kind.hash_bits} bits, {self.num_collisions} of "
                f"{self.num_runs} runs went wrong by a collision"
            )
        if kind.production is not None:
            return f"{self.num_steps / max(seconds, 0.001):,.0f} steps/s"
        return ""


def _without_operation(kind: FailureKind) -> tuple[str, Severity, MisuseFailure | None]:
    return kind.promise, kind.severity, kind.misuse


def _kind_of(trace: Trace) -> FailureKind:
    assert trace.violation is not None
    return failure_kind(trace.violation, trace.commands)


def _required(kind: RunKind, about: Description) -> list[str]:
    if kind.hash_bits or kind.block_sizes:
        return []
    return LEVELS[kind.level].required_facts(about, kind)
