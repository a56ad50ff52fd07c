"""Runs of a campaign at pool level: the common grammar, and moves of one block in between.

A tape's first answers choose the hashes, whether caching is on, and the kind of run: the common
grammar alone, as the plain driver has it, or bursts of moves (`one_block.py`) with one command of
the common grammar after each. On a guided run the moves are chosen by novelty and written on the
tape; on any other they are read from it. Token chains are not driven here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from poolproof.contract.level import Level
from poolproof.contract.target import Capabilities, TargetError, capabilities_of
from poolproof.contract.trace import Trace
from poolproof.exploration.exhaustive_run import scope_under
from poolproof.exploration.scope import Scope
from poolproof.fuzz.novelty_graph import NoveltyGraph
from poolproof.fuzz.one_block import OneBlockRules, is_steerable
from poolproof.fuzz.pool_run import PoolRun
from poolproof.fuzz.recorded_choices import RecordedChoices
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import CampaignSubject
from poolproof.fuzz.tape_run import Announce, LevelRuns, TapeRun, Visits
from poolproof.harness.facts import required_facts
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import alphabet
from poolproof.harness.target_call import constructing, crash

__all__ = ["PoolRuns"]

_ALPHABETS = 128
_alphabet = lru_cache(maxsize=_ALPHABETS)(alphabet)
_CACHING_OFF, _CACHING_CHOICES = 0, 8
_COMMON_ALONE, _KINDS = 0, 4


class PoolRuns(LevelRuns):
    """Runs against the pools that one subject builds."""

    longest_run = 1_000
    steps_of_an_order = 50_000
    usual_blocks = 8

    @staticmethod
    def scope_of(settings: CampaignSettings) -> str:
        """The bounds of what counts as a state."""
        return (
            f"{settings.num_blocks} blocks, {settings.num_hashes} hashes, references up to "
            f"{settings.max_references}"
        )

    def __init__(self, subject: CampaignSubject, known: set[int], source: random.Random) -> None:
        settings = subject.settings
        super().__init__(subject)
        self._source = source
        self._can = can = _capabilities(subject)
        bounds = Scope(settings.num_blocks, settings.num_hashes, settings.max_references)
        scope = bounds if can is None else scope_under(bounds, subject.profile, can)
        self.has_guide = can is not None and is_steerable(subject.profile, can)
        self.num_possible = scope.num_orbits if scope.is_closed else None
        self._graph = NoveltyGraph(OneBlockRules(scope), known, self.num_possible, source)
        self.facts_required = frozenset(() if can is None else required_facts(subject.profile, can))

    def opening(self, *, guided: bool) -> tuple[int, ...]:
        """A guided run has bursts, and for those caching is on."""
        return (self._source.randrange(_ALPHABETS), 1, 1) if guided else ()

    def visits(self, known: set[int]) -> Visits:
        """An empty record of states."""
        return Visits(known, self._graph.number_of_place)

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
        self._graph.tidy()
        below = choices.below
        number = below(_ALPHABETS)
        enable_caching = below(_CACHING_CHOICES) != _CACHING_OFF
        has_bursts = below(_KINDS) != _COMMON_ALONE and self.has_guide and enable_caching
        setup = self._setup(enable_caching)
        if begin is not None:
            begin(setup)
        subject = self.subject
        try:
            target = subject.make(subject.num_blocks, enable_caching)
            session = PoolSession(
                target, subject.profile, subject.num_blocks, enable_caching=enable_caching
            )
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("target", subject.num_blocks), error)
            return TapeRun(0, set(), replace(setup, violation=unbuilt))
        length = subject.profile.usual_hash_bytes
        hashes = _alphabet(subject.settings.num_hashes, number, length)
        run = PoolRun(session, hashes, choices, self._graph, visits=visits, announce=announce)
        violation = session.first_look() or run.drive(
            max_steps, has_bursts=has_bursts, guided=guided
        )
        trace = None
        if violation is not None:
            trace = replace(setup, commands=tuple(run.commands), violation=violation)
        return TapeRun(session.num_commands, session.facts, trace)

    def _setup(self, enable_caching: bool) -> Trace:
        subject = self.subject
        return Trace(
            target=subject.name,
            level=Level.POOL,
            profile=subject.profile,
            num_blocks=subject.num_blocks,
            enable_caching=enable_caching,
            commands=(),
            options={"block_size": 1},
        )


def _capabilities(subject: CampaignSubject) -> Capabilities | None:
    """What the target can do; None for one that cannot be built, as its first run will tell."""
    try:
        return capabilities_of(subject.make(subject.num_blocks, True))
    except TargetError:
        raise
    except (Exception, SystemExit):
        return None
