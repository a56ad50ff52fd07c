"""One run at pool level: commands from a tape or by novelty, each checked, each state noted.

Where a run is, is a position: which block plays which part in the erased state. A move keeps it up
to date by itself; after any other command it is read again from the reference. Of several blocks
of one kind a move takes that with the lowest id: other choices are left to the common grammar.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Reset, Touch
from poolproof.contract.content import Key
from poolproof.contract.misuse import Misuse
from poolproof.contract.violation import Violation
from poolproof.fuzz.novelty_graph import NoveltyGraph
from poolproof.fuzz.one_block import (
    ALLOCATE,
    CACHE,
    EVICT_FREE,
    EVICT_HELD,
    RESET,
    REVIVE,
    TOUCH,
    OneBlockRules,
)
from poolproof.fuzz.recorded_choices import RecordedChoices
from poolproof.fuzz.tape_run import Announce, Visits
from poolproof.harness.choices import SeededChoices
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import misuse_of

__all__ = ["PoolPosition", "PoolRun"]


_ALLOCATE, _RESET = Allocate(1), Reset()
_OUTSIDE = -1_000
"""The kind of the null block, which plays no part."""


class PoolPosition:
    """The free blocks in order, and for each block its kind.

    A held block's kind is its code; a free one's is its label less `radix`, so below zero.
    """

    def __init__(self, pool: DictPool, rules: OneBlockRules, hashes: Sequence[Key]) -> None:
        self._pool = pool
        self._rules = rules
        self._radix = rules.radix
        self._label_of = {key: number for number, key in enumerate(hashes, 1)}
        self._order: list[int] = []
        self._kinds: list[int] = []
        self._blocks = [b for b in range(pool.num_blocks) if b != pool.null_block]
        self._allocate, self._reset = _ALLOCATE, _RESET
        self._touch, self._free, self._evict, self._cache = _commands(
            pool.num_blocks, tuple(hashes)
        )

    def read(self) -> bytes | None:
        """The state of the reference; None outside of the bounds."""
        pool, radix, label_of = self._pool, self._radix, self._label_of
        beyond = radix * (self._rules.scope.max_references + 1)
        kinds = [_OUTSIDE] * pool.num_blocks
        for block in self._blocks:
            keys = pool.keys[block]
            label = label_of.get(keys[0], -1) if keys else 0
            kind = len(pool.holders[block]) * radix + label
            if label < 0 or len(keys) > 1 or kind >= beyond:
                return None
            kinds[block] = kind if kind >= radix else kind - radix
        self._kinds = kinds
        self._order = order = list(pool.free)
        labels = [kinds[block] + radix for block in order]
        return bytes(labels + sorted([kind for kind in kinds if kind >= radix]))

    def over_referenced(self) -> int:
        """A block that has more references than any other."""
        return max(self._blocks, key=lambda block: len(self._pool.holders[block]))

    def take(self, move: int) -> Command:
        """The command that makes this move, in its short form; the position is where it leads."""
        kinds, radix = self._kinds, self._radix
        kind, where, label = move & 7, move >> 3 & 255, move >> 11
        if kind > RESET:
            block = kinds.index(where)
            if kind == CACHE:
                kinds[block] = where - where % radix + label
                return self._cache[block][label - 1]
            if kind == TOUCH:
                kinds[block] = where + radix
                return self._touch[block]
            if kind == EVICT_HELD:
                kinds[block] = where - where % radix
                return self._evict[block]
            kinds[block] = where - radix
            if where < 2 * radix:
                self._join(block, where - radix)
            return self._free[block]
        if kind == ALLOCATE:
            kinds[self._order.pop(0)] = radix
            return self._allocate
        if kind == REVIVE:
            block = self._order.pop(where)
            kinds[block] = radix + label
            return self._touch[block]
        if kind == EVICT_FREE:
            block = self._order[where]
            kinds[block] = -radix
            return self._evict[block]
        for block in self._order:
            kinds[block] = -radix
        return self._reset

    def _join(self, block: int, label: int) -> None:
        self._kinds[block] = label - self._radix
        self._order.insert(0 if self._rules.joins_head(label) else len(self._order), block)


@lru_cache(maxsize=256)
def _commands(
    num_blocks: int, hashes: tuple[Key, ...]
) -> tuple[list[Touch], list[Free], list[Evict], list[list[Cache]]]:
    """The commands of one block, by block: making one costs more than taking a move."""
    blocks = range(num_blocks)
    return (
        [Touch((block,)) for block in blocks],
        [Free((block,)) for block in blocks],
        [Evict((block,)) for block in blocks],
        [[Cache((block,), (key,)) for key in hashes] for block in blocks],
    )


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
