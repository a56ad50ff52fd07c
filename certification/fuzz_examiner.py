"""Asks the target about a campaign's failing run: which command did it, and the smallest trace.

It works like a certification, but in pieces that end by the clock, since a campaign has a time
budget; every attempt runs in a worker that may be lost.

If a worker was lost, its tape is run again with a journal, which shows the command that did it.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace

from poolproof.certification.consequence import (
    ReadSearch,
    consequence_of,
    fears_wrong_data,
    harm_of,
    read_name,
    search_read,
    shorten_read,
)
from poolproof.certification.finding_collector import Search, search_shortest
from poolproof.certification.jobs import make_for, replay_trace, watch_trace
from poolproof.certification.levels import LEVELS
from poolproof.certification.losses import confirmed_lost, improved_lost
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.exploration.shortest import ShortestResult
from poolproof.fuzz.findings import Examination, text_of
from poolproof.fuzz.level_runs import runs_of
from poolproof.fuzz.recorded_choices import RecordedChoices, answers_of, new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import LoadedTarget, subject_of
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.isolation import Beacon, Executor, Finished, Lost, raise_if_ours
from poolproof.harness.lost_run import Again, Journal, find_culprit
from poolproof.harness.minimise import Minimisation, improved, run_candidate
from poolproof.targets.target import Target

__all__ = ["TargetExaminer"]


@dataclass(frozen=True, slots=True)
class LostTape:
    """What has to be run again."""

    settings: CampaignSettings
    tape: bytes


def culprit_of(executor: Executor[LoadedTarget], lost_tape: LostTape, lost: Lost) -> Trace:
    """The trace of the lost run, ending in the violation that represents the loss."""
    settings = lost_tape.settings
    setup = Trace(
        target=settings.target,
        level=settings.driven_level,
        profile=settings.driven_level.profile_class(),
        num_blocks=settings.num_blocks,
        enable_caching=True,
        commands=(),
        options={"layout": settings.layout} if settings.layout else {},
    )
    return find_culprit(executor, _repeat, lost_tape, lost, setup)


def _repeat(target: LoadedTarget, again: Again[LostTape], beacon: Beacon) -> None:
    """The job: the tape once more, each command in the journal before it is applied."""
    settings = again.run.settings
    with Journal(again.journal, beacon) as journal:
        beacon.bump()
        runs = runs_of(subject_of(target, settings), set(), random.Random(0))
        choices = RecordedChoices(new_cells(), None, answers_of(again.run.tape))
        runs.run(
            choices,
            runs.visits(set()),
            journal.announce,
            max_steps=runs.longest_run,
            begin=journal.begin,
        )


_MOST_STATES = 5_000
"""States of the breadth-first search for a shorter trace."""


_MOST_SEARCHES = 3
"""So often a search is begun that never came to its end; then the trace is what it is."""


@dataclass(frozen=True, slots=True)
class _Further:
    """A minimisation to go on with for so many seconds."""

    progress: Minimisation
    seconds: float


@dataclass(frozen=True, slots=True)
class _Within:
    """A search that may take so many seconds."""

    search: Search
    seconds: float


class _OutOfTimeError(BaseException):
    """No code of a target may catch it."""


class _Clocked:
    """A beacon that says when the time is over."""

    def __init__(self, beacon: Beacon, seconds: float) -> None:
        self._beacon = beacon
        self._until = time.monotonic() + seconds

    def bump(self) -> None:
        if time.monotonic() >= self._until:
            raise _OutOfTimeError
        self._beacon.bump()


def _shrink_further(target: Target, task: _Further, beacon: Beacon) -> Minimisation:
    """The job: go on until the time is over."""
    make = make_for(target, task.progress.trace)
    until = time.monotonic() + task.seconds
    return improved(
        task.progress,
        lambda trace, candidate: run_candidate(trace, candidate, make, beacon.bump),
        go_on=lambda: time.monotonic() < until,
    )


def _search_within(target: Target, task: _Within, beacon: Beacon) -> ShortestResult | None:
    """The job: None where the time is over first."""
    try:
        return search_shortest(target, task.search, _Clocked(beacon, task.seconds))
    except _OutOfTimeError:
        return None


class TargetExaminer:
    """Examines failing runs on the target of an executor."""

    def __init__(self, executor: Executor[Target], settings: CampaignSettings) -> None:
        self._executor = executor
        self._settings = settings

    def culprit(self, tape: bytes, lost: Lost) -> Trace:
        return self._named(culprit_of(self._executor, LostTape(self._settings, tape), lost))

    def examined(self, so_far: Examination, seconds: float) -> Examination:
        further = self._further(so_far, seconds)
        return self._followed(self._watched(further)) if further.is_done else further

    def _further(self, so_far: Examination, seconds: float) -> Examination:
        named = replace(so_far.progress, trace=self._named(so_far.progress.trace))
        so_far = replace(so_far, progress=named)
        if so_far.is_minimised:
            return self._searched(so_far, seconds)
        if so_far.is_apart:
            return self._minimised_apart(so_far, seconds)
        (ended,) = self._executor.map(_shrink_further, [_Further(so_far.progress, seconds)])
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            # Some candidate costs its worker: from here on each gets its own.
            return replace(so_far, progress=Minimisation(so_far.trace), is_apart=True)
        progress = outcome.value
        is_nothing = progress.cursor.is_finished and progress.trace.violation is None
        return replace(so_far, progress=progress, is_done=is_nothing)

    def still_fails(self, trace: Trace) -> bool:
        assert trace.violation is not None
        (ended,) = self._executor.map(replay_trace, [trace])
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            return True
        again = outcome.value
        if again.violation is None:
            return False
        promise = failure_kind(trace.violation, trace.commands).promise
        return failure_kind(again.violation, again.applied).promise == promise

    def _searched(self, so_far: Examination, seconds: float) -> Examination:
        """The first of the shortest traces, where breadth-first search gets there.

        This gives the same bug the same fingerprint in every campaign and certificate.
        """
        trace, done = so_far.trace, replace(so_far, is_done=True)
        level = LEVELS[trace.level]
        if so_far.is_apart or not level.is_searched_in_campaigns or level.why_not_searched(trace):
            return done
        if not trace.commands or so_far.num_searches > _MOST_SEARCHES:
            return done
        task = _Within(Search(trace, _MOST_STATES), seconds)
        (ended,) = self._executor.map(_search_within, [task])
        outcome = raise_if_ours(ended)
        if not isinstance(outcome, Finished):
            return done
        found = outcome.value
        if found is None:
            return so_far
        if found.commands is None or found.violation is None:
            return done
        shorter = replace(trace, commands=found.commands, violation=found.violation)
        return replace(done, progress=replace(so_far.progress, trace=shorter))

    def _minimised_apart(self, so_far: Examination, seconds: float) -> Examination:
        """Each candidate in a worker of its own."""
        trace = so_far.trace
        if not trace.commands:
            return replace(so_far, is_done=True)
        assert trace.violation is not None
        is_hang = trace.violation.severity is Severity.STALL
        until = time.monotonic() + seconds
        progress = improved_lost(
            self._executor,
            so_far.progress,
            is_hang=is_hang,
            go_on=lambda: time.monotonic() < until,
        )
        if progress.cursor.is_finished:
            last = confirmed_lost(self._executor, trace, progress.trace)
            progress = replace(progress, trace=last, attempt=None)
        return replace(so_far, progress=progress, is_done=progress.cursor.is_finished)

    def _watched(self, so_far: Examination) -> Examination:
        """The trace with what a manager showed, as in a certification, if that is available.

        If each attempt costs a worker, there is nothing to watch.
        """
        trace = so_far.trace
        if not trace.level.has_layouts or trace.violation is None or so_far.is_apart:
            return so_far
        (outcome,) = self._executor.map(watch_trace, [trace])
        if not isinstance(outcome, Finished):
            return so_far
        shown = replace(trace, shown=outcome.value.shown)
        return replace(so_far, progress=replace(so_far.progress, trace=shown))

    def _followed(self, so_far: Examination) -> Examination:
        """With what a manager's finding leads to, as in a certification."""
        trace = so_far.trace
        is_silent = trace.violation is None or not trace.level.has_sequences or so_far.is_apart
        if is_silent or not fears_wrong_data(trace):
            return so_far
        task = ReadSearch(trace, trace, is_further_form=False)
        (ended,) = self._executor.map(search_read, [task])
        found = consequence_of(task, raise_if_ours(ended))
        read = ""
        if found.trace is not None:
            (shorter,) = self._executor.map(shorten_read, [(trace, found.trace)])
            whole = shorter.value if isinstance(shorter, Finished) else found.trace
            assert whole.violation is not None
            found = replace(found, severity=whole.violation.severity, trace=whole)
            named = replace(whole, fingerprint=read_name(fingerprint_of(trace)))
            read = text_of(self._named(named))
        return replace(so_far, harm=replace(harm_of(trace, found), read=read))

    def _named(self, trace: Trace) -> Trace:
        """With the name by which the target is found again."""
        settings = self._settings
        options = dict(trace.options)
        if settings.api is not None:
            options["api"] = settings.api
        return replace(trace, target=settings.target, options=options)
