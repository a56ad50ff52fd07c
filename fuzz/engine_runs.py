"""Runs of a campaign at engine level: the common grammar of engines, from a tape.

A tape's first answers choose the size and whether caching is on. The abstract state of an engine is
what a campaign counts as new: for each request how far it is (waiting, in its prompt, sampling),
whether a step in flight names it, whether it was preempted or has drafts, and where its tokens end
in a block; how many steps and transfers are in flight. Equal requests count once, tokens are left
out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.fuzz.recorded_choices import RecordedChoices
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import number_of
from poolproof.fuzz.subject import CampaignSubject
from poolproof.fuzz.tape_run import Announce, LevelRuns, TapeRun, Visits, drive_to_rest
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.engine_workload import EngineWorkload
from poolproof.harness.target_call import constructing, crash
from poolproof.reference.engine_model import EngineModel, EngineRequest

__all__ = ["EngineRuns", "engine_state"]

_CACHING_OFF, _CACHING_CHOICES = 0, 8
_MOST_COUNTED = 3


class EngineRuns(LevelRuns):
    """Runs against the engines that one subject builds."""

    has_guide = False
    has_mutations = False  # benchmarks/engine_guidance.py: they find planted bugs later
    steps_of_an_order = 10_000
    usual_blocks = 8

    @staticmethod
    def scope_of(settings: CampaignSettings) -> str:
        """The bounds of what counts as a state."""
        return f"set-up {settings.layout}, up to {settings.num_blocks} blocks"

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
        subject, profile = self.subject, self.subject.profile
        assert isinstance(profile, EngineProfile)
        try:
            session = EngineSession(
                subject.make(setup.num_blocks, setup.enable_caching),
                profile,
                setup.num_blocks,
                subject.block_size,
            )
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("engine", setup.num_blocks), error)
            return TapeRun(0, set(), replace(setup, violation=unbuilt))
        required = required_engine_facts(profile, session.can, subject.block_size)
        self.facts_required = frozenset(required)
        commands: list[Command] = []
        workload = EngineWorkload(choices, session.model, session.can)
        violation = session.first_look() or drive_to_rest(
            session,
            workload,
            lambda: engine_state(session.model),
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
        subject, profile = self.subject, self.subject.profile
        assert isinstance(profile, EngineProfile)
        most, null = subject.settings.num_blocks, profile.null_block
        ahead = profile.draft_tokens + profile.spare_tokens
        least = (2 + -(-ahead // subject.block_size)) * len(profile.groups)
        fewest = min(most, profile.num_blocks_with(least) - (null is not None))
        usable = fewest + choices.below(max(1, most - fewest + 1))
        return Trace(
            target=subject.name,
            level=Level.ENGINE,
            profile=profile,
            num_blocks=max(usable + (null is not None), 0 if null is None else null + 1),
            enable_caching=choices.below(_CACHING_CHOICES) != _CACHING_OFF,
            commands=(),
            options={"block_size": subject.block_size, "layout": subject.settings.layout},
        )


def engine_state(model: EngineModel) -> int:
    """The number of the abstract state that an engine's model is in."""
    flying: dict[int, int] = {}
    for step in model.in_flight:
        for part in step.plan.parts:
            flying[part.request_id] = flying.get(part.request_id, 0) + 1
    head = bytes((len(model.in_flight), min(len(model.transfers), _MOST_COUNTED)))
    parts = {_part(model, request, flying) for request in model.live.values()}
    return number_of(head + b"".join(sorted(parts)))


def _part(model: EngineModel, request: EngineRequest, flying: dict[int, int]) -> bytes:
    size, length = model.block_sizes[0], len(request.tokens)
    beyond = length % size
    return bytes((
        request.began + (length > request.num_prompt_tokens),
        min(flying.get(request.request_id, 0), _MOST_COUNTED),
        min(request.num_preempted, _MOST_COUNTED),
        min(len(request.drafts), _MOST_COUNTED),
        min(-(-length // size), _MOST_COUNTED),
        0 if beyond == 0 else 2 if beyond == size - 1 else 1,
        min(request.priority, _MOST_COUNTED),
    ))  # fmt: skip
