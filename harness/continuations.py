"""Goes on behind a failing trace of a manager, until somebody reads wrong data or the budget ends.

Each continuation replays the trace in a session that judges nothing but reads
(`ReadingManagerSession`) and plays some moves behind it. The first ones are those by which a server
would notice: everybody decodes, the same prompts are asked again, other prompts take what is free,
somebody leaves. Later ones are drawn from their number, with commands of the usual grammar between
the moves. A minimised trace may leave no room for a reader, so larger pools follow in which it
fails in the same way.

All commands are legal. The cache is never reset: where the state has gone wrong already, the model
does not know whether that may be refused, and what was in the cache would be void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Loaded,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.careful_session import CAREFUL
from poolproof.harness.choices import SeededChoices
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.harness.minimise import Attempt, minimise, run_candidate
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.replay import Make, replay, start_session
from poolproof.harness.single_invariant import ONLY_READS
from poolproof.reference.manager_legality import as_told
from poolproof.reference.sequence_model import SequenceState

__all__ = ["Continued", "continued", "shortened"]

_IN_EACH_POOL = 60
"""Continuations behind one trace in a pool of one size."""

_MORE_BLOCKS = (0, 1, 2, 4)

_MOST_COMMANDS = 30
"""So many commands each continuation adds at most."""

_PLANS = (
    "accept run decode decode",
    "accept run ask run decode",
    "ask run decode",
    "others run decode",
    "accept run decode others run decode",
    "accept run decode ask run decode",
    "run leave ask run decode",
    "run leave others run decode",
    "run end ask run decode",
    "run end others run decode ask run",
    "run end others run end ask run",
    "run fork decode decode",
    "run cut decode ask run decode",
    "run preempt others run leave resume run",
    "run preempt ask run resume run decode",
    "run swap_out others run leave swap_in decode",
    "ask others run decode end ask run",
)
"""What the first continuations do, in moves."""

_DRAWN = (
    *("accept", "run", "decode", "ask", "others", "leave", "usual", "usual", "usual"),
    *("end", "fork", "cut", "preempt", "resume", "swap_out", "swap_in"),
)
"""The moves of later ones."""

_PUT_OFF = (Abort, Finish, Fork, Preempt, SwapOut, Truncate)
"""What waits for the step of an early publisher (`reference/manager_legality.py`)."""

_MOST_MOVES = 8
_FIRST_FRESH_TOKEN = 1_000

_WORK_OF_A_BREAK = 200
"""A run that ends in anything but a read may cost a program, which is started anew."""

_MOST_ATTEMPTS = 400
_MOST_WORK = 6_000
"""What shortening may cost, see `minimise`."""

Announce = Callable[[Command], None]


@dataclass(slots=True)
class Continued:
    """What was tried behind a trace: the trace up to a wrong read, or None, and how much.

    `num_commands` were applied behind the trace in all. `work` is commands and blocks that were
    built. `unusable` is what ended a run within the trace itself, if it was no read.
    """

    trace: Trace | None = None
    num_continuations: int = 0
    num_commands: int = 0
    work: int = 0
    unusable: str = ""


def continued(
    trace: Trace,
    make: Make,
    most_work: int,
    *,
    begin: Callable[[int], None],
    announce: Announce,
    first: int = 1,
) -> Continued:
    """Continuations of a trace that ends in a violation, up to the first wrong read.

    `begin` hears the number of each, from `first` on, `announce` each command before it is applied.
    """
    done = Continued()
    for more in _MORE_BLOCKS:
        larger = replace(trace, num_blocks=trace.num_blocks + more)
        if more and not _fails_alike(larger, trace, make, announce):
            continue
        options = {key: value for key, value in trace.options.items() if key != CAREFUL}
        setup = replace(larger.with_commands(()), options={**options, ONLY_READS: True})
        for number in range(1, _IN_EACH_POOL + 1):
            if done.work >= most_work:
                return done
            begin(first + done.num_continuations)
            done.num_continuations += 1
            _play(trace, setup, number, done, make=make, announce=announce)
            if done.trace is not None or done.unusable:
                return done
    return done


def shortened(trace: Trace, found: Trace, make: Make, announce: Announce) -> Trace:
    """A shorter trace up to a wrong read on which `trace`'s violation is met first, or `found`."""

    def execute(setup: Trace, candidate: Sequence[RelativeCommand | Command]) -> Attempt:
        attempt = run_candidate(setup, candidate, make, announce)
        if attempt.violation is None or attempt.violation.invariant != "DATA":
            return replace(attempt, violation=None)
        judged = {key: value for key, value in setup.options.items() if key != ONLY_READS}
        whole = replace(setup, commands=attempt.commands, options=judged)
        if _fails_alike(whole, trace, make, announce):
            return attempt
        return replace(attempt, violation=None)

    short = minimise(found, execute, max_attempts=_MOST_ATTEMPTS, max_work=_MOST_WORK)
    return found if short.violation is None else short


def _fails_alike(trace: Trace, other: Trace, make: Make, announce: Announce) -> bool:
    """Whether a trace first shows what the other ends in."""
    assert other.violation is not None
    again = replay(trace, make, announce)
    if again.violation is None:
        return False
    wanted = failure_kind(other.violation, other.commands)
    return failure_kind(again.violation, again.applied) == wanted


def _play(
    trace: Trace, setup: Trace, number: int, done: Continued, *, make: Make, announce: Announce
) -> None:
    """Play one continuation and note in `done` what came of it."""
    applied: list[Command] = []
    length = len(trace.commands)
    done.work += setup.num_blocks
    found: Violation | None = None
    try:
        session = start_session(setup, make)
        assert isinstance(session, ManagerSession), "it could be built for the trace"
        for command in _commands(trace, session, number):
            if len(applied) >= length + _MOST_COMMANDS:
                break
            if not session.is_defined(command):
                continue
            announce(command)
            applied.append(command)
            found = session.step(command)
            if found is not None:
                break
    except Exception:
        # Behind a fault the model, the grammar or an adapter may be where none of them can go on.
        found = None
    done.work += len(applied)
    done.num_commands += max(0, len(applied) - length)
    if found is not None and found.invariant == "DATA":
        done.trace = replace(setup, commands=tuple(applied), violation=found)
    elif found is not None:
        done.work += _WORK_OF_A_BREAK
        done.unusable = found.sentence if len(applied) <= length else ""


def _commands(trace: Trace, session: ManagerSession, number: int) -> Iterator[Command]:
    """The commands of the trace and those of a continuation; not all of them are legal."""
    yield from trace.commands
    moves = _Moves(trace, session, number)
    for name in moves.plan():
        for command in moves.makers[name]():
            if not moves.is_rash(command):
                yield as_told(session.model, command)


def _prompts_of(commands: Sequence[Command]) -> list[TokenChain]:
    """What was asked for, and what each sequence would have become with all of its drafts."""
    found: dict[TokenChain, None] = {}
    grown: dict[int, TokenChain] = {}
    for command in commands:
        chain, seq_id = getattr(command, "chain", None), getattr(command, "seq_id", -1)
        if isinstance(chain, TokenChain):
            found[chain] = None
            grown[seq_id] = chain
        elif isinstance(command, AppendTokens | Draft) and seq_id in grown:
            grown[seq_id] = _longer(grown[seq_id], command.tokens)
        elif isinstance(command, Fork) and seq_id in grown:
            grown[command.child_id] = grown[seq_id]
    return list(found | dict.fromkeys(grown.values()))


def _longer(chain: TokenChain, tokens: tuple[int, ...]) -> TokenChain:
    return replace(chain, tokens=(*chain.tokens, *tokens))


class _Moves:
    """The moves of one continuation, each some commands that depend on the state by then."""

    def __init__(self, trace: Trace, session: ManagerSession, number: int) -> None:
        choices = SeededChoices(f"continuation {number}")
        self._below = choices.below
        self._number = number
        self._model = session.model
        self._can = session.can.verbs
        self._fresh_token = _FIRST_FRESH_TOKEN
        self._workload = ManagerWorkload(choices, session.model, session.can)
        ids = [
            getattr(command, name, -1)
            for command in trace.commands
            for name in ("seq_id", "child_id")
        ]
        self._workload.next_id = 1 + max(ids, default=-1)
        self._chains = _prompts_of(trace.commands)
        for chain in self._chains:
            self._workload.prompts.remember(chain)
        self.makers: dict[str, Callable[[], Iterator[Command]]] = {
            "accept": self._accept,
            "run": self._run,
            "decode": self._decode,
            "ask": self._ask,
            "others": self._others,
            "leave": self._leave,
            "end": self._end,
            "fork": self._fork,
            "cut": self._cut,
            "preempt": self._preempt,
            "resume": self._resume,
            "swap_out": self._swap_out,
            "swap_in": self._swap_in,
            "usual": self._usual,
        }

    def plan(self) -> list[str]:
        """The moves by name; those that are drawn end in a forward pass."""
        if self._number <= len(_PLANS):
            return _PLANS[self._number - 1].split()
        count = 2 + self._below(_MOST_MOVES)
        return [*(_DRAWN[self._below(len(_DRAWN))] for _ in range(count)), "run"]

    def is_rash(self, command: Command) -> bool:
        """Whether the caller of an early publisher would let the next step come first.

        What is published before it is computed binds the caller; if it was not declared when keys
        are published, nobody can tell whether that was meant.
        """
        if self._model.profile.declares("publishes") or not isinstance(command, _PUT_OFF):
            return False
        return any(sequence.num_scheduled for sequence in self._sequences())

    def _accept(self) -> Iterator[Command]:
        """Drafts that wait are kept up to some place, mostly none."""
        for sequence in self._sequences():
            if sequence.drafts_computed:
                count = 0 if self._below(2) else self._below(sequence.num_drafts + 1)
                yield Accept(sequence.seq_id, count)

    def _run(self) -> Iterator[Command]:
        """Compute what there is to compute."""
        for sequence in self._sequences():
            if sequence.loading:
                yield Loaded(sequence.seq_id)
        for sequence in self._sequences():
            left = sequence.num_tokens - sequence.num_computed - sequence.num_scheduled
            if left > 0 and "schedule" in self._can:
                yield Schedule(sequence.seq_id, left)
        yield Step()
        yield from self._accept()

    def _decode(self) -> Iterator[Command]:
        """Everybody gets a token of its own, or several: what two write to one slot differs."""
        for sequence in self._sequences():
            count = 1 if self._below(3) else 1 + self._below(self._model.block_size)
            yield AppendTokens(sequence.seq_id, self._fresh(count))
        yield from self._run()

    def _ask(self) -> Iterator[Command]:
        """The prompts of the trace once more, some of them with a token behind them."""
        for chain in self._chains:
            yield Admit(self._new_id(), _longer(chain, self._fresh(self._below(2))), 0)

    def _others(self) -> Iterator[Command]:
        """Other prompts, for as long as there is room."""
        for _ in range(4):
            if not self._model.pool.free:
                return
            count = self._model.block_size * (1 + self._below(2)) + self._below(2)
            yield Admit(self._new_id(), TokenChain(self._fresh(count)), 0)

    def _leave(self) -> Iterator[Command]:
        """One sequence ends."""
        yield from map(self._ended, self._one())

    def _end(self) -> Iterator[Command]:
        """All sequences end."""
        yield from map(self._ended, self._sequences())

    def _ended(self, sequence: SequenceState) -> Command:
        is_running = sequence.place == "device" and not sequence.loading
        return Finish(sequence.seq_id) if is_running else Abort(sequence.seq_id)

    def _fork(self) -> Iterator[Command]:
        for sequence in self._sequences()[:2]:
            yield Fork(sequence.seq_id, self._new_id())

    def _cut(self) -> Iterator[Command]:
        for sequence in self._sequences():
            yield Truncate(sequence.seq_id, 1 + self._below(sequence.num_tokens))

    def _preempt(self) -> Iterator[Command]:
        yield from (Preempt(sequence.seq_id) for sequence in self._one())

    def _resume(self) -> Iterator[Command]:
        for sequence in self._sequences():
            if sequence.place == "nowhere":
                yield Resume(sequence.seq_id, 0)

    def _swap_out(self) -> Iterator[Command]:
        yield from (SwapOut(sequence.seq_id) for sequence in self._one())

    def _swap_in(self) -> Iterator[Command]:
        for sequence in self._sequences():
            if sequence.place == "host":
                yield SwapIn(sequence.seq_id)

    def _usual(self) -> Iterator[Command]:
        """Some commands of the usual grammar."""
        self._workload.bias()
        for _ in range(6):
            command = self._workload.next()
            if not isinstance(command, Reset):
                yield command

    def _sequences(self) -> list[SequenceState]:
        return list(self._model.sequences.values())

    def _one(self) -> list[SequenceState]:
        """Any sequence; none where there is none."""
        found = self._sequences()
        return [found[self._below(len(found))]] if found else []

    def _new_id(self) -> int:
        self._workload.next_id += 1
        return self._workload.next_id - 1

    def _fresh(self, count: int) -> tuple[int, ...]:
        """Tokens that nothing else has."""
        first = self._fresh_token
        self._fresh_token += count
        return tuple(range(first, first + count))
