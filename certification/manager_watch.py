"""Runs a manager trace and records what the manager shows after each command, as plain values.

On the trace's own target these are the states that it showed; on the specification they are those
of a right manager. The target runs where this runs: in a worker, if it is to be isolated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from operator import index
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Resume, Step
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.shown_state import MOST_SHOWN_IDS, Answer, Held, ShownState
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.isolation import Beacon
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.replay import start_session
from poolproof.targets.target import Make

__all__ = ["Seen", "Watched", "watch", "without_state"]

_METHODS = frozenset(MANAGER_METHODS.values())


@dataclass(frozen=True, slots=True)
class Seen:
    """The state after a command: what the target showed, and each key with its blocks.

    The index is that of the model: of a target only its carriers can be seen. `batch` is what a
    step computed, as (sequence, number of tokens); `chain` the tokens that the command named, or
    that a resumed sequence had. All are empty for the state before any command. Of a state that
    nobody asked for only the answer is there.
    """

    shown: ShownState
    index: tuple[tuple[Prefix, tuple[int, ...]], ...]
    command: Command | None = None
    batch: tuple[tuple[int, int], ...] = ()
    chain: TokenChain | None = None

    @property
    def answer(self) -> Answer:
        """What the command's method returned."""
        return self.shown.answer

    @property
    def free(self) -> tuple[int, ...]:
        """The free queue, where it was shown."""
        return self.shown.free or ()

    @property
    def held(self) -> tuple[Held, ...]:
        """The tables of all sequences."""
        return self.shown.held


@dataclass(slots=True)
class Watched:
    """A whole run: the first state, one for each command that was applied, and what broke.

    `left_out` is the first command that was not legal in the state that was reached, from 1, or 0.
    """

    seen: list[Seen] = field(default_factory=list)
    violation: Violation | None = None
    left_out: int = 0
    has_all: bool = True
    num_ids: int = 0

    @property
    def shown(self) -> tuple[ShownState, ...]:
        """What the target showed, as a trace keeps it; nothing where a state was left out."""
        return tuple(seen.shown for seen in self.seen) if self.has_all else ()

    def add(self, seen: Seen) -> None:
        """A further state; where all of them are too many for a trace's file, none is kept."""
        self.seen.append(seen)
        self.num_ids += seen.shown.num_ids
        if self.has_all and self.num_ids > MOST_SHOWN_IDS:
            self.has_all = False
            self.seen[:] = map(without_state, self.seen)


def without_state(seen: Seen) -> Seen:
    """The same with nothing but the answer."""
    return replace(seen, shown=ShownState(None, (), seen.answer), index=())


def watch(
    trace: Trace,
    make: Make,
    beacon: Beacon | None = None,
    wanted: Container[int] | None = None,
) -> Watched:
    """Run the trace on what `make` builds; it stops where something breaks or is not legal.

    `wanted` are the commands, from 1, after which the state is kept; 0 stands for the state before
    any. With None all are, unless they are too many for a trace's file: 800 states of 12,000
    blocks, each with its key, take 8 GB.
    """
    watched = Watched(has_all=wanted is None)
    ears: list[_Ear] = []

    def make_heard(num_blocks: int, enable_caching: bool) -> _Ear:
        ears.append(_Ear(make(num_blocks, enable_caching)))
        return ears[-1]

    session = start_session(trace, make_heard)
    if isinstance(session, Violation):
        watched.violation = session
        return watched
    assert isinstance(session, ManagerSession)
    (ear,) = ears
    # Names stay what they are, and the prefix of one has a thousand tokens.
    prefix_of = functools.cache(session.model.names.prefix)
    watched.violation = session.first_look()
    is_wanted = wanted is None or 0 in wanted
    watched.add(_state(session, ear, prefix_of) if is_wanted else Seen(ShownState(None, ()), ()))
    for number, command in enumerate(trace.commands, start=1):
        if watched.violation is not None:
            break
        if not session.is_defined(command):
            watched.left_out = number
            break
        if beacon is not None:
            beacon.bump()
        batch, chain = _batch(session, command), _chain(session, command)
        ear.answer = None
        watched.violation = session.step(command)
        if watched.has_all or (wanted is not None and number in wanted):
            after = _state(session, ear, prefix_of, command)
        else:
            after = Seen(ShownState(None, (), ear.answer), ())
        watched.add(replace(after, command=command, batch=batch, chain=chain))
    return watched


class _Ear:
    """A manager whose answers are recorded."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.answer: Answer = None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        if name not in _METHODS or not callable(found):
            return found

        def heard(*arguments: Any, **named: Any) -> Any:
            answer = found(*arguments, **named)
            self.answer = _plain(answer)
            return answer

        return heard


def _plain(answer: Any) -> Answer:
    """A number, a word, or pairs of blocks; of anything else how it prints."""
    if answer is None or isinstance(answer, bool):
        return answer
    if isinstance(answer, str):
        return answer[:80]
    try:
        return index(answer)
    except TypeError:
        pass
    try:
        return tuple((index(source), index(destination)) for source, destination in answer)
    except (TypeError, ValueError):
        return shown(answer, 80)


def _chain(session: ManagerSession, command: Command) -> TokenChain | None:
    if isinstance(command, Resume):
        return session.model.sequences[command.seq_id].chain
    return getattr(command, "chain", None)


def _batch(session: ManagerSession, command: Command) -> tuple[tuple[int, int], ...]:
    if not isinstance(command, Step):
        return ()
    return tuple(
        (s.seq_id, s.num_scheduled + s.num_drafts)
        for s in session.model.sequences.values()
        if s.num_scheduled
    )


def _state(
    session: ManagerSession,
    ear: _Ear,
    prefix_of: Callable[[bytes], Prefix],
    command: Command | None = None,
) -> Seen:
    """What the target shows, and the index as it must be: only its carriers can be seen."""
    model = session.model
    held = [
        Held(s.seq_id, s.place, _tables(ear, s.seq_id, s.tables))
        for s in model.sequences.values()
        if s.place != "nowhere"
    ]
    entering: int | None = getattr(command, "seq_id", None)
    if entering is not None and entering not in model.sequences and entering not in model.ended_ids:
        # The command that broke something was its admission: the model has not followed.
        tables = _tables(ear, entering, [() for _ in model.groups])
        held += [Held(entering, "device", tables)] if any(tables) else []
    free = _blocks(getattr(ear.target, "free_order", None))
    return Seen(
        ShownState(free, tuple(held), ear.answer),
        tuple(
            (prefix_of(key), tuple(blocks))
            for key, blocks in model.pool.carriers.items()
            if isinstance(key, bytes)  # the names of contents, which are all keys here
        ),
    )


def _tables(ear: _Ear, seq_id: int, known: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """The tables that the target shows, where it shows any."""
    tables = []
    for group, table in enumerate(known):
        shown = _blocks(ear.target.block_table, *((seq_id, group) if group else (seq_id,)))
        tables.append(tuple(table) if shown is None else shown)
    return tuple(tables)


def _blocks(observer: Callable[..., Any] | None, *arguments: int) -> tuple[int, ...] | None:
    """The ids that an observer answers with; None where it has none to give."""
    try:
        return None if observer is None else tuple(index(block) for block in observer(*arguments))
    except (Exception, SystemExit):  # noqa: BLE001 - a broken manager is drawn as far as it goes
        return None
