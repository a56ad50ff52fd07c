"""Runs of a campaign at index level. A state is which blocks each key has, in order of arrival.

A campaign takes as many keys as it has hashes. An index may store one block of a key in another
form than several blocks and reach the same blocks in either form; a state does not distinguish the
two.
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
from poolproof.harness.index_session import IndexSession
from poolproof.harness.index_workload import IndexPlan, IndexWorkload, required_index_facts
from poolproof.harness.target_call import constructing, crash

__all__ = ["IndexRuns"]

_BETWEEN_KEYS = b"\xff"


class IndexRuns(LevelRuns):
    """Runs against the indexes that one subject builds."""

    usual_blocks = 3

    @staticmethod
    def scope_of(settings: CampaignSettings) -> str:
        """The bounds of what counts as a state."""
        return f"{settings.num_blocks} blocks, {settings.num_hashes} keys"

    def __init__(self, subject: CampaignSubject, known: set[int], source: random.Random) -> None:
        del known, source  # nothing is guided here
        super().__init__(subject)
        blocks, keys = subject.num_blocks, subject.settings.num_hashes
        most = blocks if subject.profile.duplicates == "kept" else min(blocks, 1)
        of_one_key = sum(perm(blocks, filed) for filed in range(most + 1))
        self.num_possible = of_one_key**keys

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
        num_blocks, profile = subject.num_blocks, subject.profile
        setup = Trace(subject.name, Level.INDEX, profile, num_blocks, True, ())
        if begin is not None:
            begin(setup)
        try:
            session = IndexSession(subject.make(num_blocks, True), num_blocks, profile)
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("index", num_blocks), error)
            return TapeRun(0, set(), replace(setup, violation=unbuilt))
        self.facts_required = frozenset(required_index_facts(profile, session.can))
        plan = IndexPlan(
            num_blocks, subject.settings.num_hashes, max_steps, hash_bytes=profile.fixed_hash_bytes
        )
        workload = IndexWorkload(choices, session.reference, session.can, plan)
        workload.bias()
        commands: list[Command] = []
        violation = session.first_look()
        while violation is None and len(commands) < max_steps and not choices.is_over():
            visits.visit(number_of(_state(workload)), len(commands), choices)
            command = workload.next()
            commands.append(command)
            announce(command)
            violation = session.step(command)
        violation = violation or session.end()
        trace = None
        if violation is not None:
            trace = replace(setup, commands=tuple(commands), violation=violation)
        return TapeRun(session.num_commands, session.facts, trace)


def _state(workload: IndexWorkload) -> bytes:
    carriers = workload.index.carriers
    return _BETWEEN_KEYS.join(bytes(carriers.get(key, ())) for key in workload.keys)
