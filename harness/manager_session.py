"""One manager under test, its model and its shadow memory: a command, then every check.

Every driver goes through here, so that all of them mean the same by a step. After each command the
tables of all sequences, the counters and orders that the target shows, and the KV that every
sequence reads are compared. Commands are applied, and their answers judged, by the judges that a
session holds: of admissions, growth and endings, and with them of tables, memory and cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from poolproof.contract.commands import Command, Reset
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_admissions import AdmissionJudge
from poolproof.harness.manager_cache import CacheJudge
from poolproof.harness.manager_calls import ManagerCalls
from poolproof.harness.manager_endings import EndingJudge
from poolproof.harness.manager_facts import ManagerFacts
from poolproof.harness.manager_growth import GrowthJudge
from poolproof.harness.manager_memory import ManagerMemory
from poolproof.harness.manager_tables import TableJudge
from poolproof.harness.pool_check import FullCheck, observe
from poolproof.harness.reading import read_count
from poolproof.harness.target_call import crash, is_our_own_bug
from poolproof.invariants.free_at_end import all_free_at_end
from poolproof.invariants.legal_calls import reads_alike
from poolproof.invariants.ownership import host_counter_matches
from poolproof.invariants.refusals import unchanged_by_refusal
from poolproof.reference.content_names import ContentNames
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.reference.sequence_model import SequenceModel

__all__ = ["ManagerSession"]

ALL_UP_TO = 64
"""In pools of up to so many blocks all that they show is compared after every command."""

BLOCKS_PER_COMMAND = 16
"""In larger ones, so many blocks are compared for each command on average."""


class ManagerSession:
    """A manager and its model, in step. Only legal commands are driven.

    Each answer, the tables of the sequence that a command is about and what a forward pass reads
    are judged every time; all tables, counters and orders at one command in `check_every`. None:
    at each in pools of up to 64 blocks; in larger ones seldom enough that the cost of a command
    does not grow with the pool, and in between the number of free blocks. Tables that a target may
    change by itself are followed at each command; with `follows_seldom` only where the number of
    free blocks is not what the model knows, and beside the other checks. What such a session finds
    counts if one that follows always finds something too: who is followed late may have taken what
    the model believes to be in use.
    `names` may be those of earlier sessions, whose prefixes need no new ones then. `invariants` are
    those that count, all unless stated.

    `calls` says what the target answered last and whether it refused, `facts` what has happened so
    far, `remarks` are for the certificate.
    """

    model_class: type[SequenceModel] = SequenceModel

    def __init__(
        self,
        target: Any,
        profile: ManagerProfile,
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        check_every: int | None = None,
        follows_seldom: bool = False,
        names: ContentNames | None = None,
        invariants: EveryInvariant | None = None,
    ) -> None:
        self.target = target
        self.profile = profile
        self.can: Capabilities = manager_capabilities_of(target)
        self.model = self.model_class(
            num_blocks, block_size, profile, enable_caching=enable_caching, names=names
        )
        self.invariants = invariants or EveryInvariant()
        self.facts = ManagerFacts()
        self.remarks: set[str] = set()
        self.num_commands = 0
        self.most_sequences = self.most_references = 0
        is_small = num_blocks <= ALL_UP_TO
        self._check_every = check_every or (1 if is_small else num_blocks // BLOCKS_PER_COMMAND)
        self._checks_refusals = is_small or check_every is not None
        sees, pool = self.can.sees, self.model.pool
        counts = check_every is None and sees("num_free")
        self._num_free = target.num_free if counts else None
        self._full = FullCheck(target, self.can, pool, []) if sees("num_free") else None
        self._num_free_host = target.num_free_host if sees("num_free_host") else None
        self._appoint()
        self._follows_each = self.tables.may_change and not follows_seldom

    def _appoint(self) -> None:
        """Appoint the judge that applies each command and judges its answer."""
        target, can, model, invariants = self.target, self.can, self.model, self.invariants
        self.calls = ManagerCalls(target, can)
        self.memory = ManagerMemory(target, model, can, invariants)
        self.tables = TableJudge(target, model, self.memory, self.facts, invariants)
        self.cache = CacheJudge(
            target, can, model, self.tables, self.memory, facts=self.facts, invariants=invariants
        )
        parts = (self.calls, model, self.tables, self.memory, self.cache, self.facts, invariants)
        admissions = AdmissionJudge(*parts, takes_chunks="schedule" in can.verbs)
        growth = GrowthJudge(*parts)
        endings = EndingJudge(*parts)
        self._apply: dict[type[Command], Callable[[Any], None]] = {
            Admit: admissions.admit,
            Resume: admissions.resume,
            Load: admissions.load,
            Loaded: admissions.loaded,
            LookupPrefix: admissions.lookup,
            AppendTokens: growth.append,
            Schedule: growth.schedule,
            Draft: growth.draft,
            Accept: growth.accept,
            Truncate: growth.truncate,
            Fork: growth.fork,
            Step: growth.step,
            Preempt: endings.preempt,
            SwapOut: endings.swap_out,
            SwapIn: endings.swap_in,
            Finish: endings.finish,
            Abort: endings.finish,
            Reset: endings.reset,
        }

    @property
    def reference(self) -> SequenceModel:
        """The state that relative commands and workloads refer to."""
        return self.model

    def step(self, command: Command) -> Violation | None:
        """Apply a legal command; return the violation that it shows, or None."""
        number = self.num_commands + 1
        self.num_commands = self.memory.command_number = number
        calls = self.calls
        calls.refused = False
        try:
            self._apply[type(command)](command)
            self._note_sizes()
            if not number % self._check_every or (calls.refused and self._checks_refusals):
                self._check(command)
            else:
                if self._follows_each:
                    self.follow(command)
                if self._num_free is not None:
                    self._check_count(command, self._num_free)
        except ViolationError as found:
            return self._numbered(found.violation)
        except (Exception, SystemExit) as error:
            if is_our_own_bug(error):
                raise
            return self._numbered(crash(f"reading the manager after {command}", error))
        return None

    def _numbered(self, violation: Violation) -> Violation:
        # A program that serves many instances may be broken for the next one by now.
        abandon = getattr(self.target, "poolproof_abandon", None)
        if callable(abandon):
            abandon()
        return replace(violation, command_index=self.num_commands - 1)

    step_any = step

    def _note_sizes(self) -> None:
        """Note how many sequences there were at once, and how many holders one block had."""
        sequences = self.model.sequences
        if len(sequences) > self.most_sequences:
            self.most_sequences = len(sequences)
            newest = sequences[next(reversed(sequences))].tables[0]
            if newest:
                references = len(self.model.pool.holders[newest[0]])
                self.most_references = max(self.most_references, references)

    def is_defined(self, command: Command) -> bool:
        """Whether the target has the verb and the command is legal in this state."""
        if command.verb not in self.can.verbs:
            return False
        return undefined_for_manager(self.model, command) is None

    def first_look(self) -> Violation | None:
        """Before any command: the fresh manager must be whole."""
        try:
            return None if self._is_whole() else self.diagnose()
        except ViolationError as found:
            return found.violation

    def nobody_holds(self) -> bool:
        """Whether every sequence has ended."""
        return not self.model.sequences

    def end(self) -> Violation | None:
        """Once every sequence has ended: every block must be free."""
        assert self.nobody_holds(), "a sequence has not ended"
        self.facts.add("everything was freed at the end")
        pool = self.model.pool
        if self.model.leaving or not self.can.sees("num_free"):
            return None
        usable = pool.num_blocks - (pool.null_block is not None)
        reclaimable = sum(1 for keys in pool.keys.values() if keys)
        try:
            found = None if self._is_whole() else self.diagnose()
            num_free = read_count(self.target.num_free)
            found = all_free_at_end(num_free, usable, reclaimable) or found
        except ViolationError as unreadable:
            found = unreadable.violation
        return found and replace(found, command_index=self.num_commands - 1)

    def changed_beside(self, command: Command) -> Violation | None:
        """What a command to another manager has changed in this one, or None."""
        try:
            self.tables.all_unchanged(command)
            self.memory.read_all()
            self.cache.compare()
            return None if self._is_whole() else self.diagnose()
        except ViolationError as found:
            return found.violation

    def diagnose(self) -> Violation | None:
        """Read all that the pool shows; return the first invariant that is broken, or None.

        Raises ViolationError for what cannot be read.
        """
        if self._full is None:
            return self._wrong_host_count()
        pool = self.model.pool
        seen = observe(self.target, self.can, pool.num_blocks, (), pool.null_block)
        return self.invariants.broken_in(seen, pool.ledger()) or self._wrong_host_count()

    def _is_whole(self, *, links: bool = True) -> bool:
        """Whether everything that the pool shows is right; `diagnose` says what is not."""
        try:
            is_full = self._full is None or self._full.passes(links=links)
            return is_full and self._wrong_host_count() is None
        except (Exception, SystemExit):  # what cannot be read fast is read with care
            return False

    def follow(self, command: Command) -> None:
        """Let the model follow what the target may do by itself: drop, merge, slide.

        Raises ViolationError where a table is not what it may be after the command.
        """
        if self.cache.follows_drops:
            self.cache.follow_drops()
        self.tables.all_unchanged(command, refused=self.calls.refused)

    def _check(self, command: Command) -> None:
        """Raises ViolationError when the state after the command is not what it must be."""
        try:
            self.follow(command)
            # Links are compared at the end and beside any other difference: they are the queue's
            # and the pool's level, and reading them each time costs a tenth of the time.
            if not self._is_whole(links=False):
                self._explain(command)
            self.cache.compare()
        except ViolationError as found:
            if self.calls.refused:
                raise_for(unchanged_by_refusal(command, found.violation))
            raise
        if self.memory.has_changed:
            self.memory.read_all()

    def _check_count(self, command: Command, num_free: Callable[[], int]) -> None:
        """Raises ViolationError when the number of free blocks is not what it must be."""
        if num_free() != len(self.model.pool.free):
            self._check(command)
        if self.memory.has_changed:
            self.memory.read_all()

    def _explain(self, command: Command) -> None:
        """The fast check said no: read again with care and raise what the invariants say."""
        raise_for(reads_alike("manager", self.diagnose(), after=command))

    def _wrong_host_count(self) -> Violation | None:
        if self._num_free_host is None:
            return None
        return host_counter_matches(read_count(self._num_free_host), len(self.model.host.free))
