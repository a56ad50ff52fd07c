"""One manager under test beside its model and its shadow memory: a command, then every check.

Every driver goes through here, so that all of them mean the same by a step. After each command the
tables of all sequences, the counters and orders that the target shows, and the KV that every
sequence reads are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.manager_endings import ManagerEndings
from poolproof.harness.pool_check import FullCheck, observe
from poolproof.harness.reading import read_count
from poolproof.harness.target_call import crash, is_our_own_bug
from poolproof.invariants.cached_usable import computed_block_is_cached
from poolproof.invariants.catalogue import broken_in_state
from poolproof.invariants.free_at_end import all_free_at_end
from poolproof.invariants.index_answers import cached_block_is_computed
from poolproof.invariants.legal_calls import reads_alike
from poolproof.invariants.ownership import host_counter_matches
from poolproof.invariants.refusals import unchanged_by_refusal
from poolproof.reference.content_names import ContentNames
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["ManagerSession"]

ALL_UP_TO = 64
"""In pools of up to so many blocks all that they show is compared after every command."""

BLOCKS_PER_COMMAND = 16
"""In larger ones, so many blocks are compared for each command on average."""


class ManagerSession(ManagerEndings):
    """A manager and its model, in step. Only legal commands are driven.

    Each answer, the tables of the sequence that a command is about and what a forward pass reads
    are judged every time; all tables, counters and orders at one command in `check_every`. None:
    at each in pools of up to 64 blocks; in larger ones seldom enough that the cost of a command
    does not grow with the pool, and in between the number of free blocks.
    `names` may be those of earlier sessions, whose prefixes need no new ones then.
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
        names: ContentNames | None = None,
    ) -> None:
        model = self.model_class(
            num_blocks, block_size, profile, enable_caching=enable_caching, names=names
        )
        super().__init__(target, model)
        self.profile = profile
        self.num_commands = 0
        self.most_sequences = self.most_references = 0
        is_small = num_blocks <= ALL_UP_TO
        self._check_every = check_every or (1 if is_small else num_blocks // BLOCKS_PER_COMMAND)
        self._checks_refusals = is_small or check_every is not None
        counts = check_every is None and self.can.sees("num_free")
        self._num_free = target.num_free if counts else None
        sees = self.can.sees
        self._full = FullCheck(target, self.can, model.pool, []) if sees("num_free") else None
        self._is_cached = None
        if sees("is_cached") and profile.hits == "exact" and model.enable_caching:
            self._is_cached = target.is_cached
        self._may_drop = profile.retention == "may-drop"
        self._num_free_host = target.num_free_host if sees("num_free_host") else None

    @property
    def reference(self) -> SequenceModel:
        """The state that relative commands and workloads refer to."""
        return self.model

    def step(self, command: Command) -> Violation | None:
        """Apply a legal command; the violation that it shows, or None."""
        number = self.num_commands + 1
        self.num_commands = self.memory.command_number = number
        self.refused = False
        try:
            self.apply[type(command)](command)
            self._note_sizes()
            if not number % self._check_every or (self.refused and self._checks_refusals):
                self._check(command)
            elif self._num_free is not None:
                self._check_count(command, self._num_free)
        except ViolationError as found:
            return replace(found.violation, command_index=self.num_commands - 1)
        except (Exception, SystemExit) as error:
            if is_our_own_bug(error):
                raise
            return replace(
                crash(f"reading the manager after {command}", error),
                command_index=self.num_commands - 1,
            )
        return None

    step_any = step

    def _note_sizes(self) -> None:
        """How many sequences there were at once, and of one block how many holders."""
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
        """What has changed in this manager by a command that another one was given, or None."""
        try:
            self.tables.all_unchanged(command)
            self.memory.read_all()
            if self._is_cached is not None:
                self._compare_cached(self._is_cached)
            return None if self._is_whole() else self.diagnose()
        except ViolationError as found:
            return found.violation

    def diagnose(self) -> Violation | None:
        """Read all that the pool shows and ask the invariants; the first that is broken, or None.

        Raises ViolationError for what cannot be read.
        """
        if self._full is None:
            return self._wrong_host_count()
        pool = self.model.pool
        seen = observe(self.target, self.can, pool.num_blocks, (), pool.null_block)
        return self._judge_state(seen, pool.ledger()) or self._wrong_host_count()

    def _judge_state(self, seen: PoolObservation, known: PoolLedger) -> Violation | None:
        """The first invariant that is broken in the state that was read."""
        return broken_in_state(seen, known)

    def _is_whole(self, *, links: bool = True) -> bool:
        """Whether all that the pool shows is as it must be; `diagnose` says what is not."""
        try:
            is_full = self._full is None or self._full.passes(links=links)
            return is_full and self._wrong_host_count() is None
        except (Exception, SystemExit):  # what cannot be read fast is read with care
            return False

    def _check(self, command: Command) -> None:
        """Raises ViolationError when the state after the command is not what it must be."""
        try:
            if self._may_drop and self._is_cached is not None:
                self._forget_dropped(self.model.pool.free, self._is_cached)
            self.tables.all_unchanged(command, refused=self.refused)
            # Links are compared at the end and beside any other difference: they are the queue's
            # and the pool's level, and reading them each time costs a tenth of the time.
            if not self._is_whole(links=False):
                self._explain(command)
            if self._is_cached is not None:
                self._compare_cached(self._is_cached)
        except ViolationError as found:
            if self.refused:
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

    def _enter(self, command: Command, sequence: SequenceState, num_tokens: int) -> bool:
        """As ever; before it what the target has let go of since everything was read."""
        if self._may_drop and self._is_cached is not None:
            model = self.model
            carriers = [
                block
                for group, size in enumerate(model.block_sizes)
                for entry in range(sequence.num_tokens // size)
                for block in model.pool.lookup(model.key(sequence, group, entry))
            ]
            self._forget_dropped(carriers, self._is_cached)
        return super()._enter(command, sequence, num_tokens)

    def _forget_dropped(self, blocks: Iterable[int], is_cached: Any) -> None:
        """A `may-drop` target has let go of free cached blocks; the model follows it."""
        keys, free = self.model.pool.keys, self.model.pool.free
        dropped = [b for b in blocks if keys[b] and b in free and not is_cached(b)]
        self.model.pool.forget_keys(dropped)

    def _compare_cached(self, is_cached: Any) -> None:
        keys_of = self.model.pool.keys
        # By their truth values: an answer of another type may compare as it likes.
        if list(map(bool, map(is_cached, keys_of))) == list(map(bool, keys_of.values())):
            return
        for block, keys in keys_of.items():
            known = {
                "is_cached": bool(is_cached(block)),
                "is_computed": bool(keys),
                "is_held": bool(self.model.pool.holders[block]),
            }
            self.report(computed_block_is_cached(block, **known))
            self.report(cached_block_is_computed(block, **known))

    def _wrong_host_count(self) -> Violation | None:
        if self._num_free_host is None:
            return None
        return host_counter_matches(read_count(self._num_free_host), len(self.model.host.free))
