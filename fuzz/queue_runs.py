"""Runs of a campaign at queue level. A state is the order of the queue, block ids included.

Which blocks are outside follows from the order, so that there are N!/(N-k)! states of k queued
blocks. Ids are not erased: the links of a queue are all that there is to it, and few states remain
where they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import perm

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.fuzz.recorded_choices import RecordedChoices
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import number_of
from poolproof.fuzz.subject import CampaignSubject
from poolproof.fuzz.tape_run import Announce, LevelRuns, TapeRun, Visits
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.queue_workload import QueueWorkload, required_queue_facts
from poolproof.harness.target_call import constructing, crash

__all__ = ["QueueRuns"]


class QueueRuns(LevelRuns):
    """Runs against the queues that one subject builds."""

    usual_blocks = 5

    @staticmethod
    def scope_of(settings: CampaignSettings) -> str:
        """The bounds of what counts as a state."""
        return f"{settings.num_blocks} blocks"

    def __init__(self, subject: CampaignSubject, known: set[int], source: random.Random) -> None:
        del known, source  # nothing is guided here
        super().__init__(subject)
        blocks = subject.num_blocks
        self.num_possible = sum(perm(blocks, queued) for queued in range(blocks + 1))

    def run(
        self,
        choices: RecordedChoices,
        visits: Visits,
        announce: Announce,
        *,
        max_steps: int,
        guided: bool = False,
        begin: Callable[[Trace], None] | None = None,
    ) -> TapeRun:
        del guided
        subject = self.subject
        setup = Trace(subject.name, Level.QUEUE, subject.profile, subject.num_blocks, True, ())
        if begin is not None:
            begin(setup)
        try:
            session = QueueSession(subject.make(subject.num_blocks, True), subject.num_blocks)
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("queue", subject.num_blocks), error)
            return TapeRun(0, set(), replace(setup, violation=unbuilt))
        self.facts_required = frozenset(required_queue_facts(session.can))
        workload = QueueWorkload(choices, session.reference, session.can)
        workload.bias()
        commands: list[Command] = []
        violation = session.first_look()
        order = session.reference.order
        while violation is None and len(commands) < max_steps and not choices.is_over():
            visits.visit(number_of(bytes(order)), len(commands), choices)
            command = workload.next()
            if command is None:
                break
            commands.append(command)
            announce(command)
            violation = session.step(command)
        trace = None
        if violation is not None:
            trace = replace(setup, commands=tuple(commands), violation=violation)
        return TapeRun(session.num_commands, session.facts, trace)
