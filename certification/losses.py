"""Traces of runs that cost their worker: found by running again, minimised one worker each.

A run that hung, died or ate all memory leaves only a number. It is repeated with a journal
(`harness/lost_run.py`), and its trace is minimised with every candidate in a worker that may be
lost as well (`lost_candidates.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from poolproof.certification.description import Description
from poolproof.certification.jobs import (
    Machine,
    campaign_of,
    make_for,
    run_machine_with,
)
from poolproof.certification.lost_candidates import LostCandidates
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon, Died, Executor, Failed, Finished, Lost
from poolproof.harness.lost_run import Again, Journal, as_violation, find_culprit
from poolproof.harness.minimise import Attempt, Effort, Minimisation, improved, run_candidate
from poolproof.harness.relative import RelativeCommand
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.targets.target import Target

__all__ = [
    "confirmed_lost",
    "improved_lost",
    "minimise_lost",
    "trace_of_lost_chunk",
    "trace_of_lost_machine",
]

CANDIDATE_TIMEOUT_S = 1.0
"""A candidate that takes longer counts as hung; the trace itself was given the full limit."""

_ATTEMPTS_AT_DEATHS = 600
_ATTEMPTS_AT_HANGS = 60


@dataclass(frozen=True, slots=True)
class _Candidate:
    trace: Trace
    commands: tuple[RelativeCommand | Command, ...]


def trace_of_lost_chunk(
    executor: Executor[Target], chunk: Chunk, lost: Lost, about: Description
) -> Trace:
    """The trace of the run in which a chunk's worker was lost."""
    number = max(lost.mark - 1, chunk.first)
    again = Chunk(chunk.kind, chunk.seed, number, 1, chunk.profile)
    return find_culprit(executor, _repeat_run, again, lost, _setup(about, chunk.kind))


def trace_of_lost_machine(
    executor: Executor[Target], machine: Machine, lost: Lost, about: Description
) -> Trace:
    """The trace of the example in which a state machine's worker was lost."""
    return find_culprit(executor, _repeat_machine, machine, lost, _setup(about, machine.kind))


def minimise_lost(executor: Executor[Target], trace: Trace, lost: Lost) -> Trace:
    """The smallest trace found, with candidates that may cost their worker, as `lost` says.

    Returns the trace as it is where it has no commands, or does not fail the same way again.
    """
    if not trace.commands:
        return trace
    progress = improved_lost(executor, Minimisation(trace), is_hang=not isinstance(lost, Died))
    return confirmed_lost(executor, trace, progress.trace)


def improved_lost(
    executor: Executor[Target],
    progress: Minimisation,
    *,
    is_hang: bool,
    go_on: Callable[[], bool] = lambda: True,
) -> Minimisation:
    """Go on with a minimisation whose candidates may cost their worker, as `improved` does.

    A hang shows only when the time limit is over, so with `is_hang` fewer candidates are tried.
    """
    losses = LostCandidates()
    with executor.serve(_attempt, call_timeout_s=CANDIDATE_TIMEOUT_S) as server:

        def execute(setup: Trace, candidate: Sequence[RelativeCommand | Command]) -> Attempt:
            foretold = losses.foretold(setup, candidate)
            if foretold is not None:
                return foretold
            outcome = server(_Candidate(setup, tuple(candidate)))
            if isinstance(outcome, Finished):
                return outcome.value
            if isinstance(outcome, Failed):
                raise RuntimeError(f"an attempt failed:\n{outcome.traceback}")
            # The beacon was bumped for each command before it was applied.
            return losses.lost(setup, candidate, outcome.progress, outcome)

        effort = Effort(attempts=_ATTEMPTS_AT_HANGS if is_hang else _ATTEMPTS_AT_DEATHS)
        return improved(progress, execute, effort, go_on)


def confirmed_lost(executor: Executor[Target], trace: Trace, minimal: Trace) -> Trace:
    """The minimised trace with what it shows under the full limits; `trace` if that is nothing.

    A run that was too slow for a candidate's limit may die under the full one.
    """
    if minimal.violation is None:
        return trace
    (last,) = executor.map(_attempt, [_Candidate(minimal, minimal.commands)])
    if isinstance(last, Lost):
        return replace(minimal, violation=as_violation(minimal, last))
    again = last.value.violation if isinstance(last, Finished) else None
    return trace if again is None else replace(minimal, violation=again)


def _repeat_run(target: Target, again: Again[Chunk], beacon: Beacon) -> None:
    campaign = campaign_of(target, again.run)
    with Journal(again.journal, beacon) as journal:
        for number in again.run.numbers:
            journal.begin(campaign.setup(number))
            campaign.run(number, journal.announce)


class _JournalLog(MachineLog):
    """A machine log that keeps the example in progress in a journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def begin(self, trace: Trace) -> None:
        super().begin(trace)
        self._journal.begin(trace)

    def announce(self, command: Command) -> None:
        super().announce(command)
        self._journal.announce(command)


def _repeat_machine(target: Target, again: Again[Machine], beacon: Beacon) -> None:
    with Journal(again.journal, beacon) as journal:
        run_machine_with(target, again.run, _JournalLog(journal))


def _attempt(target: Target, candidate: _Candidate, beacon: Beacon) -> Attempt:
    make = make_for(target, candidate.trace)
    return run_candidate(candidate.trace, candidate.commands, make, beacon.bump)


def _setup(about: Description, kind: RunKind) -> Trace:
    """The header for a run that was lost before it had begun its journal."""
    layout = about.layout_of_kind(kind)
    profile = layout.profile if layout is not None else about.profile_at(kind.level)
    options = {} if layout is None else {"block_size": layout.block_size, "layout": layout.name}
    return Trace(
        target=about.name,
        level=kind.level,
        profile=profile,
        num_blocks=4 + (profile.null_block or 0),
        enable_caching=True,
        commands=(),
        options=options,
    )
