"""One pool under test beside its reference: applies a command, then checks the state.

Every driver (random, Hypothesis, replay, minimiser, breadth-first search) goes through here, so
all of them mean the same by a step. A session does not choose commands and does not know where
they come from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.misuse import Misuse
from poolproof.contract.observation import Neighbours, PoolLedger, PoolObservation
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.chain_commands import ChainCommands
from poolproof.harness.event_mirror import EventMirror
from poolproof.harness.pool_check import FullCheck, IncrementalCheck, observe
from poolproof.harness.reading import read, read_count
from poolproof.harness.target_call import crash, is_our_own_bug
from poolproof.invariants.catalogue import broken_in_state
from poolproof.invariants.events import recaching_removes_nothing
from poolproof.invariants.free_at_end import all_free_at_end
from poolproof.invariants.legal_calls import reads_alike
from poolproof.invariants.misuse import unchanged_by_misuse
from poolproof.invariants.refusals import unchanged_by_refusal
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import hash_of_other_length, misuse_of, undefined_in

__all__ = ["EVENTS_EVERY", "SMALL_POOL", "PoolSession"]

EVENTS_EVERY = "events_every"
"""The option of a trace that says after how many commands events are read, where not each."""

SMALL_POOL = 64
"""Up to this many blocks everything is read after every command."""


class PoolSession(ChainCommands):
    """A target and its reference, in step.

    After each command either everything is read (`full_every` = 1) or what the command touched,
    and everything at every `full_every`-th command. Events are read after every
    `events_every`-th. `checked=False` only applies commands, to measure what the checks cost.
    """

    pool_class: type[DictPool] = DictPool

    def __init__(
        self,
        target: Any,
        profile: Profile,
        num_blocks: int,
        *,
        enable_caching: bool = True,
        full_every: int | None = None,
        block_size: int = 1,
        checked: bool = True,
        events_every: int = 1,
    ) -> None:
        reference = self.pool_class(num_blocks, profile, enable_caching=enable_caching)
        reference.block_size = block_size
        super().__init__(target, profile, reference)
        self.num_commands = 0
        self._full_every = full_every or (1 if num_blocks <= SMALL_POOL else 1000)
        self._checked = checked
        self._full = FullCheck(target, self.can, reference, self.keys)
        self._incremental = IncrementalCheck(target, self.can, reference)
        self._gaps: list[Neighbours] = []
        shows_events = profile.events != "none" and self.can.sees("take_events")
        self._events = EventMirror(profile) if shows_events else None
        self._events_every = events_every
        self._last_heard = 0
        self._may_drop = profile.retention == "may-drop"
        self._reads_everything = (
            self._full_every == 1
            and not self._may_drop
            # A subclass that checks in its own way is asked every time.
            and type(self)._check is PoolSession._check  # noqa: SLF001 - its own
        )

    def step(self, command: Command) -> Violation | None:
        """Apply a command that is legal in this state; the violation that it shows, or None."""
        self.num_commands = self.reference.command_number = self.num_commands + 1
        self.refused = self.cached_again = False
        self.taken = ()
        if self.remapped:
            self.remapped = []
        if self._gaps:
            self._gaps = []
        try:
            self.apply[type(command)](command)
            # Campaigns spend their time here, so the common case goes without a further call.
            if self._checked:
                if not self._reads_everything:
                    self._check(command)
                else:
                    if not self._full.passes():
                        self._explain(command)
                    if self._events is not None:
                        self._check_events()
        except ViolationError as found:
            return self._numbered(found.violation)
        except (Exception, SystemExit) as error:
            return self._numbered(self._blame(f"reading the pool after {command}", error))
        return None

    def step_misuse(self, command: Command, misuse: Misuse) -> Violation | None:
        """Apply misuse and see that the profile's promise about it holds."""
        self.num_commands = self.reference.command_number = self.num_commands + 1
        self.refused = self.cached_again = False
        self._gaps = []
        try:
            self.misuse(command, misuse)
        except ViolationError as found:
            return self._numbered(found.violation)
        difference: Violation | None = None
        try:
            if self._checked:
                self._check(command)
        except ViolationError as found:
            difference = found.violation
        except (Exception, SystemExit) as error:
            difference = self._blame(f"reading the pool after {command}", error)
        changed = unchanged_by_misuse(command, misuse, difference)
        return changed and self._numbered(changed)

    def step_any(self, command: Command) -> Violation | None:
        """Apply a command from anywhere, be it legal or misuse that the profile defines."""
        assert self.is_defined(command), f"{command} is not defined in this state"
        misuse = misuse_of(self.reference, command)
        return self.step(command) if misuse is None else self.step_misuse(command, misuse)

    def is_defined(self, command: Command) -> bool:
        """Whether the target has the verb and the profile says what it does in this state."""
        if command.verb not in self.can.verbs or type(command) not in self.apply:
            return False
        if hash_of_other_length(self.profile, command) is not None:
            return False
        if misuse_of(self.reference, command) is not None:
            return self.profile.misuse != "undefined"
        return undefined_in(self.reference, command) is None

    def first_look(self) -> Violation | None:
        """Before any command: the fresh pool must be whole."""
        try:
            return self.diagnose()
        except ViolationError as found:
            return found.violation

    def last_look(self) -> Violation | None:
        """After the last command of a trace: read what the steps of a large pool left unread.

        Without it a short trace could only show what its last commands touched.
        """
        if not self._checked:
            return None
        try:
            if self._events is not None and self._events_every > 1:
                self._read_events()
            violation = None if self._full_every == 1 else self.diagnose()
        except ViolationError as found:
            violation = found.violation
        return violation and self._numbered(violation)

    def nobody_holds(self) -> bool:
        """Whether every reference was given back."""
        usable = self.reference.num_blocks - (self.profile.null_block is not None)
        return len(self.reference.free) == usable

    def end(self) -> Violation | None:
        """Once nobody holds anything: every block must be free."""
        assert self.nobody_holds(), "a reference is still outstanding"
        self.facts.add("everything was freed at the end")
        reclaimable = sum(1 for keys in self.reference.keys.values() if keys)
        try:
            num_free = read_count(self.target.num_free)
        except ViolationError as unreadable:
            return self._numbered(unreadable.violation)
        found = all_free_at_end(num_free, len(self.reference.free), reclaimable)
        return self._numbered(found) if found else None

    def diagnose(self) -> Violation | None:
        """Read the whole pool and ask the invariants; the first that is broken, or None.

        Raises ViolationError for a pool that cannot be read.
        """
        if self._may_drop:
            self._forget_what_vanished()
        violation = self._judge_state(self._observe(), self.reference.ledger())
        while violation is not None and self._may_drop and self._forget_what_vanished():
            # A block vanished while we were reading.
            violation = self._judge_state(self._observe(), self.reference.ledger())
        return violation

    def _judge_state(self, seen: PoolObservation, known: PoolLedger) -> Violation | None:
        """The first invariant that is broken in the state that was read."""
        return broken_in_state(seen, known)

    def _observe(self) -> PoolObservation:
        pool = self.reference
        return observe(self.target, self.can, pool.num_blocks, self.keys, pool.null_block)

    def _blame(self, what: str, error: BaseException) -> Violation:
        """The violation behind an exception that a check met. Raises the one that is our bug."""
        if not is_our_own_bug(error):
            return crash(what, error)
        # An answer of a wrong type, or compiled code that raises, shows in our own frames; reading
        # again with care tells them from a mistake of ours.
        try:
            self._observe()
        except ViolationError as found:
            return found.violation
        raise error

    def _numbered(self, violation: Violation) -> Violation:
        # A program that serves many instances may be broken for the next one by now.
        abandon = getattr(self.target, "poolproof_abandon", None)
        if callable(abandon):
            abandon()
        return replace(violation, command_index=self.num_commands - 1)

    def _check(self, command: Command) -> None:
        """Raises ViolationError when the state after the command is not what it must be."""
        if self._may_drop:
            self._forget_what_vanished()
        if self._full_every == 1 or self.num_commands % self._full_every == 0:
            passed = self._full.passes()
        else:
            # Of several blocks that leave at once, one may be the neighbour of another; then the
            # next full observation has to find what became of the gaps.
            gap = self._gaps[0] if len(self._gaps) == 1 else None
            passed = self._incremental.passes(self.touched, self.touched_keys, gap)
        if not passed:
            self._explain(command)
        self._check_events()

    def _check_events(self) -> None:
        """Raises ViolationError when the event stream does not give the index."""
        if self._events is None:
            return
        if self._events_every > 1:
            if self.num_commands % self._events_every == 0:
                self._read_events()
            return
        # A search that replays the way to a state hears of all its commands at once.
        heard_of_one = self._last_heard == self.num_commands - 1
        self._last_heard = self.num_commands
        events = read(self.target.take_events)
        if type(events) is not list or events:
            self._events.replay(events)
            if self.cached_again and heard_of_one and not self._may_drop:
                raise_for(recaching_removes_nothing(events))
            self.received_events(events)
        elif not self.touched_keys and not self._may_drop:
            return  # neither the stream nor the index has changed since they were equal
        raise_for(self._events.differs_from(self.reference))

    def _read_events(self) -> None:
        """Raises ViolationError when all events since the last reading do not give the index."""
        assert self._events is not None
        events = read(self.target.take_events)
        self._events.replay(events)
        self.received_events(events)
        raise_for(self._events.differs_from(self.reference))

    def _explain(self, command: Command) -> None:
        """The fast check said no: read again with care and raise what the invariants say."""
        violation = reads_alike("pool", self.diagnose(), after=command, may_change=self._may_drop)
        raise_for(unchanged_by_refusal(command, violation) if self.refused else violation)

    def _revives(self, block: int) -> None:
        super()._revives(block)
        if self._full_every > 1 and self._incremental.neighbours is not None:
            self._gaps.append(self._incremental.neighbours(block))

    def _forget_what_vanished(self) -> bool:
        """A `may-drop` target may have dropped free cached blocks; the reference follows it.

        Returns whether it did.
        """
        pool = self.reference
        forgotten = False
        for block in [b for b, keys in pool.keys.items() if keys and b in pool.free]:
            if self.can.sees("block_hash"):
                gone = read(self.target.block_hash, block) is None
            elif "lookup" not in self.can.verbs:
                break  # only `acquire` can tell, and its answer is judged there
            else:
                key = pool.keys[block][0]
                held = any(b not in pool.free for b in pool.carriers[key])
                gone = not held and read(self.target.lookup, key) is None
            if gone:
                pool.forget_keys([block])
                forgotten = True
        return forgotten
