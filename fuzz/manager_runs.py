"""Runs of a campaign at manager level: the common grammar of managers, from a tape.

A tape's first answers choose the size (3 blocks up to those of the settings), whether caching is
on, and the number of token symbols. What counts as a state is in `manager_states.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.fuzz.manager_states import manager_state
from poolproof.fuzz.recorded_choices import RecordedChoices
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import CampaignSubject
from poolproof.fuzz.tape_run import Announce, LevelRuns, TapeRun, Visits, drive_to_rest
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.harness.target_call import constructing, crash

__all__ = ["ManagerRuns"]

_FEWEST_BLOCKS = 3
_CACHING_OFF, _CACHING_CHOICES = 0, 8


class ManagerRuns(LevelRuns):
    """Runs against the managers that one subject builds."""

    has_guide = False
    steps_of_an_order = 10_000
    usual_blocks = 8

    @staticmethod
    def scope_of(settings: CampaignSettings) -> str:
        """The bounds of what counts as a state."""
        return f"layout {settings.layout}, up to {settings.num_blocks} blocks"

    def __init__(self, subject: CampaignSubject, known: set[int], source: random.Random) -> None:
        del known, source  # nothing is guided here
        super().__init__(subject)

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
        setup = self._setup(choices)
        if begin is not None:
            begin(setup)
        subject = self.subject
        try:
            session = ManagerSession(
                subject.make(setup.num_blocks, setup.enable_caching),
                subject.manager_profile,
                setup.num_blocks,
                subject.block_size,
                enable_caching=setup.enable_caching,
            )
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("manager", setup.num_blocks), error)
            return TapeRun(0, set(), replace(setup, violation=unbuilt))
        self.facts_required = frozenset(
            required_manager_facts(subject.manager_profile, session.can)
        )
        commands: list[Command] = []
        workload = ManagerWorkload(choices, session.model, session.can, 2 + choices.below(2))
        workload.bias()
        violation = session.first_look() or drive_to_rest(
            session,
            workload,
            lambda: manager_state(session.model),
            choices,
            visits,
            announce=announce,
            commands=commands,
            max_steps=max_steps,
        )
        trace = None
        if violation is not None:
            trace = replace(setup, commands=tuple(commands), violation=violation)
        return TapeRun(session.num_commands, session.facts, trace)

    def _setup(self, choices: RecordedChoices) -> Trace:
        subject = self.subject
        most, null = subject.settings.num_blocks, subject.profile.null_block
        usable = min(_FEWEST_BLOCKS, most) + choices.below(max(1, most - _FEWEST_BLOCKS + 1))
        num_blocks = max(usable + (null is not None), 0 if null is None else null + 1)
        return Trace(
            target=subject.name,
            level=Level.MANAGER,
            profile=subject.profile,
            num_blocks=num_blocks,
            enable_caching=choices.below(_CACHING_CHOICES) != _CACHING_OFF,
            commands=(),
            options={"block_size": subject.block_size, "layout": subject.settings.layout},
        )
