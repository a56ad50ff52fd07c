"""The exhaustive stages of a manager: every workload of up to so many commands, layout by layout.

Two searches per layout, both breadth first over a tiny alphabet
(`exploration/grammars.py`): one with every verb, one over prompts that differ in what tells
prompts apart. Every read is compared with shadow memory. A bound on states ends a search; what it
had covered by then is stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from poolproof.certification.certificate import StageOutcome, StageResult
from poolproof.certification.description import LayoutDescription
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.losses import minimise_lost
from poolproof.certification.progress import StageProgress
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.exploration.shortest import ShortestResult, shortest_manager_failure
from poolproof.exploration.watch import Watch
from poolproof.harness.isolation import Beacon, Executor, Finished, Outcome, raise_if_ours
from poolproof.harness.lost_run import Again, Journal, find_culprit
from poolproof.targets.target import Target

__all__ = ["ExploringManager", "WorkloadJob", "blocks_to_explore", "try_workloads"]

MOST_COMMANDS_OF_IDENTITIES = 4
"""Longer workloads repeat what four commands show: computed, met, looked up, ended."""

_LEAST_STATES_OF_IDENTITIES = 100
"""Enough to meet each prompt with every other one."""

_USABLE_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    """Workloads of one layout on so many blocks, the null block included."""

    layout: str
    num_blocks: int
    max_commands: int
    max_states: int
    identities: bool = False

    def trace(self, name: str, profile: ManagerProfile, block_size: int) -> Trace:
        """The trace of a workload without commands yet."""
        options = {"block_size": block_size, "layout": self.layout}
        return Trace(name, Level.MANAGER, profile, self.num_blocks, True, (), options=options)


def blocks_to_explore(profile: ManagerProfile, usable: int | None = None) -> int:
    """Blocks for `usable` (3) in each cache group, besides what admissions leave free or null.

    As many at least as there must be for a null block of that number to exist.
    """
    kept = profile.watermark_blocks + profile.proof_blocks
    null = -1 if profile.null_block is None else profile.null_block
    wanted = (usable or _USABLE_BLOCKS) * len(profile.groups) + kept + (null >= 0)
    return max(wanted, null + 1)


def try_workloads(target: Target, job: WorkloadJob, beacon: Beacon) -> ShortestResult:
    """Try all workloads, the shortest first, up to the first that fails."""
    return _try(target, job, Watch(beacon.bump, beacon.bump))


def _repeat(target: Target, again: Again[WorkloadJob], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        _try(target, again.run, Watch(journal.begin, journal.announce))


def _try(target: Target, job: WorkloadJob, watch: Watch) -> ShortestResult:
    layout = target.layout(job.layout)
    build = layout.make
    assert build is not None
    assert isinstance(layout.profile, ManagerProfile)
    setup = job.trace(target.name, layout.profile, layout.block_size)

    def make(num_blocks: int, enable_caching: bool) -> Any:
        watch.begin(setup)
        return build(num_blocks, enable_caching)

    return shortest_manager_failure(
        make,
        layout.profile,
        job.num_blocks,
        layout.block_size,
        max_commands=job.max_commands,
        max_states=job.max_states,
        identities=job.identities,
        announce=watch.announce,
    )


class ExploringManager:
    """Runs the stages of the layouts of one target, and adds to `stages` what they showed."""

    def __init__(
        self,
        executor: Executor[Target],
        name: str,
        collector: FindingCollector,
        progress: StageProgress,
        stages: list[StageResult],
    ) -> None:
        self.stages = stages
        self._executor = executor
        self._name = name
        self._collector = collector
        self._progress = progress

    def explore(
        self,
        layouts: Sequence[LayoutDescription],
        *,
        max_commands: int,
        max_states: int,
        usable_blocks: int | None = None,
    ) -> None:
        """All workloads of these layouts, side by side, in one stage for each.

        `max_states` bounds the search over every verb, a quarter of it the one over identities.
        """
        jobs = [
            WorkloadJob(
                layout.name,
                blocks_to_explore(layout.profile, usable_blocks),
                max_commands,
                max_states,
            )
            for layout in layouts
        ]
        others = [
            replace(
                job,
                max_commands=min(max_commands, MOST_COMMANDS_OF_IDENTITIES),
                max_states=max(_LEAST_STATES_OF_IDENTITIES, max_states // 4),
                identities=True,
            )
            for job in jobs
        ]
        pairs = [job for pair in zip(jobs, others) for job in pair]
        self._progress.begin("every workload", len(pairs))
        outcomes = self._executor.map(try_workloads, pairs)
        for layout, job, other in zip(layouts, jobs, others, strict=True):
            stage = f"{layout.name}, every workload"
            parts = [self._part(stage, job, layout, next(outcomes))]
            parts.append(self._part(stage, other, layout, next(outcomes)))
            self.stages.append(
                _joined(stage, parts, f"{job.num_blocks} blocks of {layout.block_size} tokens")
            )
        self._progress.end()

    def _part(
        self,
        stage: str,
        job: WorkloadJob,
        layout: LayoutDescription,
        ended: Outcome[ShortestResult],
    ) -> _Part:
        """What one search showed; what broke goes to the collector."""
        self._progress.advance(1)
        setup = job.trace(self._name, layout.profile, layout.block_size)
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            lost = find_culprit(self._executor, _repeat, job, outcome, setup)
            self._collector.add_lost(stage, minimise_lost(self._executor, lost, outcome))
            return _Part(outcome.sentence("a workload"), failed=True)
        found = outcome.value
        if found.violation is not None:
            failed = replace(setup, commands=found.commands or (), violation=found.violation)
            self._collector.add(stage, failed)
        return _Part(
            _covered(job, found), found.violation is not None, found.num_tries, found.num_states,
            found.duration_s,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part:
    """What one of the two searches of a stage did."""

    note: str
    failed: bool
    num_tries: int = 0
    num_states: int = 0
    seconds: float = 0.0


def _joined(stage: str, parts: Sequence[_Part], scope: str) -> StageResult:
    return StageResult(
        level=Level.MANAGER,
        stage=stage,
        outcome=StageOutcome.REFUSED if any(part.failed for part in parts) else StageOutcome.HOLDS,
        steps=sum(part.num_tries for part in parts),
        runs=sum(part.num_states for part in parts),
        seconds=sum(part.seconds for part in parts),
        note="; ".join([*(part.note for part in parts), f"2 sequences at once, {scope}"]),
    )


def _covered(job: WorkloadJob, found: ShortestResult) -> str:
    """How far a search got."""
    depth = max(found.depth, 0)
    what = "prompts with other keys" if job.identities else "every verb"
    length = "any length" if found.exhausted else f"up to {depth} commands"
    is_cut = found.violation is None and not found.exhausted and depth < job.max_commands
    cut = ", truncated there" if is_cut else ""
    return f"{what}: {length}, {found.num_states:,} states{cut}"
