"""One run at pool level: commands from a tape or by novelty, each checked, each state noted."""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.commands import Command, Free, Reset
from poolproof.contract.content import Key
from poolproof.contract.misuse import Misuse
from poolproof.contract.violation import Violation
from poolproof.fuzz.novelty_graph import NoveltyGraph
from poolproof.fuzz.pool_position import PoolPosition
from poolproof.fuzz.recorded_choices import RecordedChoices
from poolproof.fuzz.tape_run import Announce, Visits
from poolproof.harness.choices import SeededChoices
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload
from poolproof.reference.legality import misuse_of

__all__ = ["PoolRun"]

MISUSE_EVERY = 48
"""One command of the common grammar in so many is misuse, where the profile defines that."""

_BURST_LENGTHS = 64
_NOWHERE = -1
"""The place outside of the bounds."""


class PoolRun:
    """A session that is being driven; `commands` are what it was given so far."""

    def __init__(
        self,
        session: PoolSession,
        hashes: Sequence[Key],
        choices: RecordedChoices,
        graph: NoveltyGraph,
        *,
        visits: Visits,
        announce: Announce,
    ) -> None:
        self.commands: list[Command] = []
        self._session = session
        self._choices = choices
        self._graph = graph
        self._visits = visits
        self._announce = announce
        self._position = PoolPosition(session.reference, graph.rules, hashes)
        self._workload = PoolWorkload(choices, session.reference, session.can, hashes)
        self._tries_misuse = session.profile.misuse != "undefined"
        self._place = _NOWHERE
        self._has_bursts = False

    def drive(self, max_steps: int, *, has_bursts: bool, guided: bool) -> Violation | None:
        """Go on until the choices are over or for `max_steps`, then give everything back."""
        choices, commands = self._choices, self.commands
        self._has_bursts = has_bursts
        if not has_bursts:
            self._workload.bias()
        self._look_around()
        while len(commands) < max_steps and not choices.is_over():
            violation = None
            if has_bursts:
                length = min(choices.below(_BURST_LENGTHS), max_steps - len(commands))
                violation = self._burst(length, guided=guided)
                if violation is None and (choices.is_over() or len(commands) >= max_steps):
                    break
            violation = violation or self._common()
            if violation is not None:
                return violation
        return self._drain()

    def _burst(self, length: int, *, guided: bool) -> Violation | None:
        """So many moves of one block, as far as there are any."""
        place, graph, visits = self._place, self._graph, self._visits
        count_of, first_of, moves, beyond = graph.count, graph.first, graph.moves, graph.next
        choices, visited, is_known = self._choices, visits.places, graph.is_known
        take, step, record = self._position.take, self._session.step, choices.record
        announce, commands, choose = self._announce, self.commands, graph.choose
        is_guided = guided and not choices.is_given()
        for _ in range(length):
            if place < 0:
                break
            count = count_of[place] or graph.open(place)
            if is_guided:
                turn = choose(place)
                record(turn)
            elif choices.is_over():
                break
            else:
                turn = choices.below(count)
            entry = first_of[place] + turn
            command = take(moves[entry])
            commands.append(command)
            announce(command)
            violation = step(command)
            if violation is not None:
                return violation
            place = beyond[entry]
            visited.append(place)
            if not is_known[place]:
                is_known[place] = 1
                visits.visit(graph.number(place), len(commands), choices)
        self._place = place
        holders = self._session.reference.holders
        self._workload.references[:] = [b for b, held in holders.items() for _ in held]
        return None

    def _common(self) -> Violation | None:
        """One command of the common grammar, or one that leads back into the bounds."""
        session, workload = self._session, self._workload
        if self._place < 0 and self._choices.below(2) and workload.references:
            block = self._position.over_referenced()
            workload.references.remove(block)
            command: Command = Free((block,))
        else:
            command = workload.next()
        if self._tries_misuse and self._choices.below(MISUSE_EVERY) == 0:
            wrong = workload.misuse()
            misuse = None if wrong is None else misuse_of(session.reference, wrong)
            if wrong is not None and misuse is not None:
                workload.put_back(command)
                return self._apply_misuse(wrong, misuse)
        return self._apply(command)

    def _apply(self, command: Command) -> Violation | None:
        session = self._session
        self.commands.append(command)
        self._announce(command)
        violation = session.step(command)
        if violation is not None:
            return violation
        last = session.last
        self._workload.references.extend(last.taken)
        if last.remapped:
            self._workload.remap(last.remapped)
        self._look_around()
        return None

    def _apply_misuse(self, command: Command, misuse: Misuse) -> Violation | None:
        self.commands.append(command)
        self._announce(command)
        return self._session.step_misuse(command, misuse)

    def _look_around(self) -> None:
        """Where the run is now, read from the reference."""
        if self._graph.is_complete and not self._has_bursts:
            return
        state = self._position.read()
        self._place = _NOWHERE if state is None else self._graph.at(state)
        if state is not None:
            number = self._graph.number(self._place)
            self._visits.visit(number, len(self.commands), self._choices)

    def _drain(self) -> Violation | None:
        """Give everything back and see that nothing leaked; its choices are not on the tape."""
        session, workload = self._session, self._workload
        workload.below = SeededChoices(f"drain {len(self.commands)}").below
        last: list[Command] = [Reset()] if "reset" in session.can.verbs else []
        while (command := workload.drain() or (last.pop() if last else None)) is not None:
            violation = self._apply(command)
            if violation is not None:
                return violation
        return session.end()
