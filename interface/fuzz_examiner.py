"""What a campaign learns about a failing run from the target: the culprit, and the smallest trace.

The same jobs as a certification's; every attempt runs in a worker that may be lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from poolproof.certify_jobs import Shrink, replay_trace, shrink_trace
from poolproof.certify_losses import minimise_lost
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.driving import raise_if_ours
from poolproof.finding_collector import MOST_BLOCKS_TO_SEARCH, Search, search_shortest
from poolproof.fuzz.lost_tapes import LostTape, culprit_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.isolation import Died, Finished, Hung, Lost
from poolproof.harness.replay import Replay

__all__ = ["TargetExaminer"]

_MOST_STATES = 5_000
"""States of the breadth-first search for a shorter trace."""


class TargetExaminer:
    """Examines failing runs beside the target of an isolation."""

    def __init__(self, isolation: Any, settings: CampaignSettings) -> None:
        self._isolation = isolation
        self._settings = settings

    def culprit(self, tape: bytes, lost: Lost) -> Trace:
        return self._named(culprit_of(self._isolation, LostTape(self._settings, tape), lost))

    def minimised(self, trace: Trace, *, was_lost: bool) -> Trace:
        trace = self._named(trace)
        if was_lost:
            return self._minimised_apart(trace)
        (outcome,) = self._isolation.map(shrink_trace, [Shrink(trace)])
        raise_if_ours(outcome)
        if not isinstance(outcome, Finished):
            return self._minimised_apart(trace)
        minimal: Trace = outcome.value
        return trace if minimal.violation is None else self._shortest(minimal)

    def still_fails(self, trace: Trace) -> bool:
        assert trace.violation is not None
        (outcome,) = self._isolation.map(replay_trace, [trace])
        raise_if_ours(outcome)
        if not isinstance(outcome, Finished):
            return True
        again: Replay = outcome.value
        if again.violation is None:
            return False
        kind = failure_kind(trace.violation, trace.commands)
        return failure_kind(again.violation, again.applied) == kind

    def _shortest(self, trace: Trace) -> Trace:
        """The first of the shortest traces, where breadth-first search gets there.

        So that the same bug has the same fingerprint whoever finds it, and in a certificate.
        """
        usable = trace.num_blocks - (trace.profile.null_block is not None)
        if trace.level == "manager" or usable > MOST_BLOCKS_TO_SEARCH or not trace.commands:
            return trace
        (outcome,) = self._isolation.map(search_shortest, [Search(trace, _MOST_STATES)])
        raise_if_ours(outcome)
        if not isinstance(outcome, Finished):
            return trace
        found = outcome.value
        if found.commands is None or found.violation is None:
            return trace
        return replace(trace, commands=found.commands, violation=found.violation)

    def _minimised_apart(self, trace: Trace) -> Trace:
        """Each candidate in a worker of its own."""
        if not trace.commands:
            return trace
        assert trace.violation is not None
        is_stall = trace.violation.severity is Severity.STALL
        lost = Hung(seconds=0.0) if is_stall else Died(status=1)
        return minimise_lost(self._isolation, trace, lost)

    def _named(self, trace: Trace) -> Trace:
        """With the name by which the target is found again."""
        settings = self._settings
        options = dict(trace.options)
        if settings.api is not None:
            options["api"] = settings.api
        return replace(trace, target=settings.target, options=options)
