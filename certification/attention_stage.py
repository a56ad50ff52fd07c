"""The stage "paged attention" of a certification: an allocator under a small transformer.

Requests are served through its block tables by the torch reference kernel, and every output is
compared with dense attention over the request's own tokens. Only outputs are judged, so this
sees nothing that the other stages do not; it shows that a violation is a wrong answer, and would
reveal a hole in the harness. It needs torch, which is imported only in the worker.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from poolproof.certification.certificate import StageOutcome, StageResult
from poolproof.certification.description import Description
from poolproof.certification.driving import Driving
from poolproof.certification.levels import LEVELS
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import StageProgress
from poolproof.certification.run_kinds import POOL, RunKind
from poolproof.contract.depth import Depth
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon, Executor, Finished, raise_if_ours
from poolproof.kernels.interpreter import missing_packages
from poolproof.targets.target import Target

__all__ = ["STAGE", "attention_stage", "why_no_attention"]

STAGE = "paged attention"
RUNS = {Depth.QUICK: 40, Depth.STANDARD: 400, Depth.DEEP: 6_000}
FEWEST_RUNS = 10
"""Of each layout, however many there are."""
MOST_RUNS_OF_A_TASK = 200
"""More are shared between workers. Each has to import torch, so fewer are not."""
LEAST_MEMORY_MIB = 1024


@dataclass(frozen=True, slots=True)
class Serve:
    """Runs of one kind (`run_kinds.py`)."""

    kind: RunKind
    seed: int
    numbers: range


@dataclass(slots=True)
class Served:
    """What the runs of one kind did; `trace` is the first that broke something."""

    runs: int = 0
    steps: int = 0
    compared: int = 0
    shared: int = 0
    trace: Trace | None = None


def why_no_attention(about: Description, options: CertifyOptions) -> str | None:
    """Why the stage is left out; None if it runs."""
    if about.can is None:
        return "the target could not be constructed"
    reason = LEVELS[about.level].why_no_attention(about)
    if reason is not None:
        return reason
    if "torch" in missing_packages():
        return "torch is not installed"
    if not options.in_process and options.limits.memory_mib < LEAST_MEMORY_MIB:
        return f"torch needs --memory-limit {LEAST_MEMORY_MIB}"
    return None


def attention_stage(
    executor: Executor[Target],
    about: Description,
    driving: Driving,
    *,
    options: CertifyOptions,
    progress: StageProgress,
    kinds: list[RunKind],
) -> list[StageResult]:
    """Run the stage, unless it is left out; violations go to the collector."""
    able = [kind for kind in kinds if kind not in driving.lost and _can_be_served(about, kind)]
    if why_no_attention(about, options) is not None or not able:
        return []
    progress.begin(STAGE)
    began = time.monotonic()
    runs = max(FEWEST_RUNS, RUNS[options.depth] // len(able))
    tasks = [
        Serve(kind, options.seed, range(first, min(first + MOST_RUNS_OF_A_TASK, runs)))
        for kind in able
        for first in range(0, runs, MOST_RUNS_OF_A_TASK)
    ]
    total = Served()
    notes, failed = [], False
    for ended in executor.map(serve_attention, tasks):
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            notes.append(outcome.sentence("a command"))
            continue
        served = outcome.value
        total.runs += served.runs
        total.steps += served.steps
        total.compared += served.compared
        total.shared += served.shared
        if served.trace is not None:
            failed = True
            driving.collector.add(STAGE, served.trace)
    notes.insert(0, f"{total.compared:,} outputs compared, {total.shared:,} prefixes shared")
    concluded = total.compared > 0 and len(notes) == 1
    return [
        StageResult(
            level=about.level,
            stage=STAGE,
            outcome=StageOutcome.REFUSED if failed
            else StageOutcome.HOLDS if concluded else StageOutcome.INCONCLUSIVE,
            steps=total.steps,
            runs=total.runs,
            seconds=time.monotonic() - began,
            note="; ".join(notes),
        )
    ]  # fmt: skip


def _can_be_served(about: Description, kind: RunKind) -> bool:
    if kind == POOL:
        return True
    layout = about.layout_of_kind(kind)
    if layout is None or layout.can is None or not kind.level.has_sequences:
        return False
    return _has_paged_groups(layout.manager_profile)


def _has_paged_groups(profile: ManagerProfile) -> bool:
    """No paged kernel reads chunked attention or recurrent states."""
    return all(group.is_full or group.is_sliding for group in profile.groups)


def serve_attention(target: Target, task: Serve, beacon: Beacon) -> Served:
    """The worker's job: runs until one breaks something."""
    # Torch may take longer to import than a target has for a call.
    with beacon.bumping():
        from poolproof.kernels.serving.allocator_runs import serve_manager, serve_pool
    layout_name = task.kind.layout
    layout = None if layout_name is None else target.layout(layout_name)
    profile = target.profile if layout is None else layout.profile
    make = target.make if layout is None else layout.make
    assert make is not None
    options = {} if layout is None else {"layout": layout.name, "block_size": layout.block_size}
    setup = Trace(
        target=target.name,
        level=target.level,
        profile=profile,
        num_blocks=1,
        enable_caching=True,
        commands=(),
        options=options,
    )
    serve = serve_pool if layout is None else serve_manager
    total = Served()
    for number in task.numbers:
        beacon.mark(number + 1)
        run = serve(setup, make, f"attention {task.seed}/{number}", beacon.bump)
        total.runs += 1
        total.steps += len(run.trace.commands)
        total.compared += run.compared
        total.shared += run.shared
        if run.trace.violation is not None:
            total.trace = run.trace
            break
    return total
