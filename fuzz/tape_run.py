"""One run of a tape: what it visited, what it did, what broke; and what runs of a level need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.fuzz.recorded_choices import RecordedChoices
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import CampaignSubject

__all__ = ["Announce", "LevelRuns", "TapeRun", "Visits", "drive_to_rest"]

Announce = Callable[[Command], None]


class Visits:
    """The states that a run visits, and those of them that nobody had visited before.

    `known` is the worker's, and grows. A driver that is in a hurry appends to `places`, whose
    numbers it keeps in `number_of_place`.
    """

    def __init__(self, known: set[int], number_of_place: Sequence[int] = ()) -> None:
        self.known = known
        self.new: list[int] = []
        self.depths = bytearray()
        self.num_answers = 0
        self.places = array("L")
        self._number_of_place = number_of_place
        self._numbers: set[int] = set()

    def visit(self, number: int, num_commands: int, choices: RecordedChoices) -> None:
        """The run is in this state after so many commands and answers."""
        self._numbers.add(number)
        if number not in self.known:
            self.known.add(number)
            self.new.append(number)
            self.depths.append(num_commands.bit_length())
            self.num_answers = choices.num_answers

    def numbers(self) -> set[int]:
        """All states that were visited."""
        number_of_place = self._number_of_place
        return self._numbers | {number_of_place[place] for place in set(self.places)}


@dataclass(slots=True)
class TapeRun:
    """What a run did; `trace` is there only when something broke."""

    num_steps: int
    facts: set[str]
    trace: Trace | None = None


class LevelRuns(ABC):
    """Runs of one level of one target, one after the other.

    `num_possible` is the known number of states, None where there is none; `has_guide` tells
    whether `run(..., guided=True)` can choose commands by novelty.
    """

    longest_run: ClassVar[int] = 400
    """Commands before a run is ended and everything given back."""
    steps_of_an_order: ClassVar[int] = 20_000
    """How many commands a worker gives before it reports."""
    usual_blocks: ClassVar[int]
    """Usable blocks where nobody said how many."""

    has_guide = False
    has_mutations: ClassVar[bool] = True
    """Whether tapes that reached new states are worth mutating."""

    def __init__(self, subject: CampaignSubject) -> None:
        self.subject = subject
        self.num_possible: int | None = None
        self.facts_required: frozenset[str] = frozenset()

    @staticmethod
    @abstractmethod
    def scope_of(settings: CampaignSettings) -> str:
        """How large what is driven is, in words."""

    def opening(self, *, guided: bool) -> tuple[int, ...]:
        """The first answers of a tape of this kind; the rest is open."""
        del guided
        return ()

    def visits(self, known: set[int]) -> Visits:
        """An empty record of states, for a run to fill."""
        return Visits(known)

    @abstractmethod
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
        """Drive a fresh target as the choices say, until they are over or for `max_steps`.

        `begin` hears the header of the trace before the target is built.
        """


_MOST_DRAINING = 10_000
"""Commands that bring a target to rest; one that never comes to rest is refused before."""


class _Session(Protocol):
    """What such a run needs of a session."""

    def step(self, command: Command, /) -> Violation | None: ...
    def nobody_holds(self) -> bool: ...
    def end(self) -> Violation | None: ...


class _Workload(Protocol):
    """What it needs of a grammar: commands, and those that end what is under way."""

    def next(self) -> Command: ...
    def drain(self) -> Command | None: ...


def drive_to_rest(
    session: _Session,
    workload: _Workload,
    state: Callable[[], int],
    choices: RecordedChoices,
    visits: Visits,
    *,
    announce: Announce,
    commands: list[Command],
    max_steps: int,
) -> Violation | None:
    """Drive commands from the tape into `commands`, then whatever ends all that was begun.

    `state` tells the number of the abstract state that the session is in.
    """
    visits.visit(state(), 0, choices)
    for _ in range(max_steps + _MOST_DRAINING):
        is_over = len(commands) >= max_steps or choices.is_over()
        command = workload.drain() if is_over else workload.next()
        if command is None:
            break
        commands.append(command)
        announce(command)
        violation = session.step(command)
        if violation is not None:
            return violation
        visits.visit(state(), len(commands), choices)
    return session.end() if session.nobody_holds() else None
