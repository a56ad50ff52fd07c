"""One pool under test and its reference: applies a command, then checks the state.

Every driver (random, Hypothesis, replay, minimiser, breadth-first search) goes through here, so
all of them mean the same by a step. A session does not choose commands and does not know where
they come from. Its judges know what a command's answer must be (`pool_judges.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    Lookup,
    LookupChain,
    Reset,
    Touch,
    Usage,
)
from poolproof.contract.misuse import Misuse
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities, capabilities_of
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.event_mirror import EventJudge
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.facts import PoolFacts
from poolproof.harness.pool_check import FullCheck, IncrementalCheck, PoolDiagnosis
from poolproof.harness.pool_judges import (
    AnswerJudge,
    BlockJudge,
    CachingJudge,
    ChainJudge,
    Effect,
    KnownKeys,
    LookupJudge,
    MisuseJudge,
    PoolCalls,
    Revivals,
)
from poolproof.harness.reading import read_count
from poolproof.harness.target_call import crash, is_our_own_bug
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


class PoolSession:
    """A target and its reference, in step.

    After each command either everything is read (`full_every` = 1) or what the command touched,
    and everything at every `full_every`-th command. Events are read after every
    `events_every`-th. `checked=False` only applies commands, to measure what the checks cost.
    `invariants` are those that count, all unless stated.

    `last` says what the last command did, `facts` what has happened so far, `remarks` are for the
    certificate.
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
        invariants: EveryInvariant | None = None,
    ) -> None:
        self.target = target
        self.profile = profile
        self.can: Capabilities = capabilities_of(target)
        self.reference = self.pool_class(num_blocks, profile, enable_caching=enable_caching)
        self.reference.block_size = block_size
        self.num_commands = 0
        self.last = Effect()
        self.facts = PoolFacts()
        self.remarks: set[str] = set()
        self.keys = self._make_keys()
        self.answers = self._make_answers()
        self.invariants = invariants or EveryInvariant()
        about = (target, self.can, self.reference)
        self.diagnosis = PoolDiagnosis(*about, self.keys, self.invariants)
        self.diagnose = self.diagnosis.diagnose
        self._full_every = full_every or (1 if num_blocks <= SMALL_POOL else 1000)
        self._checked = checked
        self._full = FullCheck(*about, self.keys)
        self._incremental = IncrementalCheck(*about) if self._full_every > 1 else None
        self._events: EventJudge | None = None
        if profile.events != "none" and self.can.sees("take_events"):
            self._events = EventJudge(
                target, self.reference, self.last, self.answers, every=events_every
            )
        self._may_drop = profile.retention == "may-drop"
        self._reads_everything = (
            self._full_every == 1
            and not self._may_drop
            # A subclass that checks in its own way is asked every time.
            and type(self)._check is PoolSession._check  # noqa: SLF001 - its own
        )
        self._appoint()

    def _make_keys(self) -> KnownKeys:
        return KnownKeys()

    def _make_answers(self) -> AnswerJudge:
        return AnswerJudge()

    def _appoint(self) -> None:
        """Appoint the judge that applies each command and judges its answer."""
        calls = PoolCalls(self.target, self.can)
        revivals = Revivals(self.reference, self.facts, self._incremental)
        answers, diagnosis, invariants = self.answers, self.diagnosis, self.invariants
        of_blocks = (calls, self.reference, self.last, self.facts)
        of_keys = (calls, self.reference, self.keys, self.last, self.facts)
        blocks = BlockJudge(*of_blocks, answers, revivals, invariants)
        caching = CachingJudge(*of_keys, answers, invariants)
        lookups = LookupJudge(*of_keys, answers, revivals, diagnosis, invariants)
        chains = ChainJudge(*of_keys, lookups, diagnosis, invariants)
        self._misuse = MisuseJudge(*of_keys, diagnosis, invariants)
        self._apply: dict[type[Command], Callable[[Any], None]] = {
            Allocate: blocks.allocate,
            Touch: blocks.touch,
            Free: blocks.free,
            Cache: caching.cache,
            Evict: caching.evict,
            Reset: caching.reset,
            Lookup: lookups.lookup,
            Acquire: lookups.acquire,
            CacheChain: chains.cache_chain,
            CachePartial: chains.cache_partial,
            LookupChain: chains.lookup_chain,
            Usage: chains.usage,
        }

    def step(self, command: Command) -> Violation | None:
        """Apply a command that is legal now; return the violation that it shows, or None."""
        number = self.num_commands + 1
        self.num_commands = self.reference.command_number = number
        last = self.last
        last.refused = last.cached_again = False
        last.taken = ()
        if last.remapped:
            last.remapped = []
        if self._incremental is not None:
            self._incremental.gaps.clear()
        try:
            self._apply[type(command)](command)
            # Campaigns spend their time here, so the common case goes without a further call.
            if self._checked:
                if not self._reads_everything:
                    self._check(command)
                else:
                    if not self._full.passes():
                        self._explain(command)
                    if self._events is not None:
                        self._events.check(number)
        except ViolationError as found:
            return self._numbered(found.violation)
        except (Exception, SystemExit) as error:
            return self._numbered(self._blame(f"reading the pool after {command}", error))
        return None

    def step_misuse(self, command: Command, misuse: Misuse) -> Violation | None:
        """Apply misuse and see that the profile's promise about it holds."""
        self.num_commands = self.reference.command_number = self.num_commands + 1
        self.last.refused = self.last.cached_again = False
        if self._incremental is not None:
            self._incremental.gaps.clear()
        try:
            self._misuse.apply(command, misuse)
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
        """Apply a command from anywhere, whether legal or misuse that the profile defines."""
        assert self.is_defined(command), f"{command} is not defined in this state"
        misuse = misuse_of(self.reference, command)
        return self.step(command) if misuse is None else self.step_misuse(command, misuse)

    def is_defined(self, command: Command) -> bool:
        """Whether the target has the verb and the profile says what it does in this state."""
        if command.verb not in self.can.verbs or type(command) not in self._apply:
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
            if self._events is not None and self._events.every > 1:
                self._events.catch_up()
            violation = None if self._full_every == 1 else self.diagnose()
        except ViolationError as found:
            violation = found.violation
        return violation and self._numbered(violation)

    def nobody_holds(self) -> bool:
        """Whether every reference was given back."""
        usable = self.reference.num_blocks - (self.profile.null_block is not None)
        return len(self.reference.free) == usable

    def end(self) -> Violation | None:
        """Once nothing is held, every block must be free."""
        assert self.nobody_holds(), "a reference is still outstanding"
        self.facts.add("everything was freed at the end")
        reclaimable = sum(1 for keys in self.reference.keys.values() if keys)
        try:
            num_free = read_count(self.target.num_free)
        except ViolationError as unreadable:
            return self._numbered(unreadable.violation)
        found = all_free_at_end(num_free, len(self.reference.free), reclaimable)
        return self._numbered(found) if found else None

    def _blame(self, what: str, error: BaseException) -> Violation:
        """The violation behind an exception that a check met. Raises the one that is our bug."""
        if not is_our_own_bug(error):
            return crash(what, error)
        # An answer of a wrong type, or compiled code that raises, shows in our own frames; reading
        # again with care tells them from a mistake of ours.
        try:
            self.diagnosis.observe()
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
            self.diagnosis.forget_what_vanished()
        incremental = self._incremental
        if incremental is None or self.num_commands % self._full_every == 0:
            passed = self._full.passes()
        else:
            # Of several blocks that leave at once, one may be the neighbour of another; then the
            # next full observation has to find what became of the gaps.
            gap = incremental.gaps[0] if len(incremental.gaps) == 1 else None
            passed = incremental.passes(self.last.touched, self.last.touched_keys, gap)
        if not passed:
            self._explain(command)
        self.check_events()

    def check_events(self) -> None:
        """Raises ViolationError when the event stream does not give the index."""
        if self._events is not None:
            self._events.check(self.num_commands)

    def _explain(self, command: Command) -> None:
        """The fast check said no: read again with care and raise what the invariants say."""
        violation = reads_alike("pool", self.diagnose(), after=command, may_change=self._may_drop)
        raise_for(unchanged_by_refusal(command, violation) if self.last.refused else violation)
