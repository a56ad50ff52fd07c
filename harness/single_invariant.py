"""Sessions that check one invariant and nothing else, to learn what that one alone can see.

The comparison with the model is off: of a state only the invariant's own predicate is asked, of the
judgements of an answer only those that carry its name. Whatever else is wrong is passed over, and
the reference follows what the target shows, wrong or not; where it cannot, the run ends without a
verdict. ATOM and MISUSE are about change, so for them everything is compared before and after, and
only a difference that is new counts. Not made for speed: ordinary runs do not come through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.manager_commands import Step
from poolproof.contract.misuse import Misuse
from poolproof.contract.observation import (
    PoolLedger,
    PoolObservation,
    QueueLedger,
    QueueObservation,
)
from poolproof.contract.violation import Violation, ViolationError
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.target_call import is_our_own_bug
from poolproof.invariants.catalogue import (
    STATE_INVARIANTS,
    STATEMENTS,
    seen_as_pool,
)
from poolproof.invariants.kv_reads import reads_within_table
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.sequence_model import SequenceModel

__all__ = [
    "ONLY_READS",
    "STATED_AT",
    "OneInvariant",
    "ReadingManagerSession",
    "SingleManagerSession",
    "SinglePoolSession",
    "SingleQueueSession",
    "require_stated",
    "verdict",
]

_OF_ENGINES = ("PLAN", "OUT", "LIVE")

STATED_AT: dict[Level, tuple[str, ...]] = {
    Level.QUEUE: ("I1", "OWN", "LINK", "ORD", "CRASH"),
    Level.INDEX: ("IDX", "CRASH"),
    Level.POOL: tuple(name for name in STATEMENTS if name not in ("DATA", *_OF_ENGINES)),
    Level.MANAGER: tuple(
        name for name in STATEMENTS if name not in ("EVT", "MISUSE", *_OF_ENGINES)
    ),
    Level.ENGINE: ("DATA", *_OF_ENGINES, "LEAK", "CRASH"),
}
"""The invariants that a level can state, and that `only` may name there."""


def require_stated(only: str | None, level: Level) -> None:
    """Raises ValueError for what is no invariant, or none that the level can state."""
    if only is not None and only not in STATED_AT[level]:
        known = ", ".join(STATED_AT[level])
        raise ValueError(f"the {level} level does not state {only!r}; it states {known}")


def verdict(
    only: str | None, session: object, drive: Callable[[], Violation | None]
) -> Violation | None:
    """What driving the session shows of the one invariant, or of all where `only` is None.

    None also where no verdict was possible.
    """
    if only is None:
        return drive()
    try:
        violation = drive()
    except Exception as error:
        # The reference was led where it cannot go by what was passed over.
        invariants = getattr(session, "invariants", None)
        has_passed_over = isinstance(invariants, OneInvariant) and invariants.has_passed_over
        if has_passed_over and is_our_own_bug(error):
            return None
        raise
    return violation if violation is not None and violation.invariant == only else None


class _FollowingPool(DictPool):
    """A reference that lets itself be told anything: a block may be handed out while it is held."""

    def allocate(self, count: int, chosen: Sequence[int] | None = None) -> list[int]:
        """The target's choice, whatever it is."""
        taken = list(self.free)[:count] if chosen is None else list(chosen)
        for block_id in taken:
            self.free.pop(block_id, None)
            self.forget_keys([block_id])
            self.holders[block_id].append(self.command_number)
        return taken

    def release(self, block_ids: Iterable[int], holder: int | None = None) -> list[int]:
        """What is not held at all is left out."""
        left: dict[int, int] = {}
        held = []
        for block_id in block_ids:
            holders = self.holders[block_id]
            left.setdefault(block_id, len(holders) if holder is None else holders.count(holder))
            if left[block_id]:
                left[block_id] -= 1
                held.append(block_id)
        return super().release(held, holder)


class _FollowingModel(SequenceModel):
    """A model of sequences over such pools."""

    pool_class = _FollowingPool


class OneInvariant(EveryInvariant):
    """One invariant counts; `has_passed_over` says whether another one was broken."""

    def __init__(self, only: str) -> None:
        self.only = only
        self.has_passed_over = False
        self._is_comparing = False
        self._was_right = True

    def report(self, violation: Violation | None) -> None:
        """Raises ViolationError for a violation of the one invariant and passes over others."""
        if violation is None:
            return
        if violation.invariant == self.only or self._is_comparing:
            raise ViolationError(violation)
        self.has_passed_over = True

    def broken_in(self, seen: PoolObservation, known: PoolLedger) -> Violation | None:
        """What its own predicate says of the state that was read."""
        if self._is_comparing:
            return super().broken_in(seen, known)
        predicate = STATE_INVARIANTS.get(self.only)
        return predicate(seen, known) if predicate else None

    def new_difference(self, compare: Callable[[], None]) -> Violation | None:
        """What a comparison of everything finds wrong, if all was right at the last one."""
        was_right, self._was_right = self._was_right, True
        self._is_comparing = True
        try:
            compare()
        except ViolationError as found:
            self._was_right = False
            return found.violation if was_right else None
        finally:
            self._is_comparing = False
        return None


class SingleQueueSession(QueueSession):
    """A queue of which one invariant is checked; a wrong answer to a pop ends the run."""

    def __init__(self, target: Any, num_blocks: int, *, only: str) -> None:
        super().__init__(target, num_blocks)
        self.only = only

    def _judge_state(self, seen: QueueObservation, known: QueueLedger) -> Violation | None:
        predicate = STATE_INVARIANTS.get(self.only)
        return predicate(*seen_as_pool(seen, known)) if predicate else None


class SinglePoolSession(PoolSession):
    """A pool of which one invariant is checked."""

    pool_class = _FollowingPool
    invariants: OneInvariant

    def __init__(self, *arguments: Any, only: str, **options: Any) -> None:
        self._is_misusing = False
        super().__init__(*arguments, invariants=OneInvariant(only), **options)

    def step_misuse(self, command: Command, misuse: Misuse) -> Violation | None:
        """Apply misuse; where another invariant is checked, see what it finds afterwards."""
        if self.invariants.only == "MISUSE":
            self._is_misusing = True
            violation = super().step_misuse(command, misuse)
            self._is_misusing = False
            return violation
        self.num_commands = self.reference.command_number = self.num_commands + 1
        self.last.refused = False
        try:
            self._misuse.apply(command, misuse)
            self._check(command)
        except ViolationError as found:
            return self._numbered(found.violation)
        return None

    def _check(self, command: Command) -> None:
        only = self.invariants.only
        if only in ("ATOM", "MISUSE"):
            difference = self.invariants.new_difference(partial(super()._check, command))
            is_meant = self._is_misusing if only == "MISUSE" else self.last.refused
            if difference is not None and is_meant:
                raise ViolationError(difference)
        elif only == "EVT":
            if self._may_drop:
                self.diagnosis.forget_what_vanished()
            self.check_events()
        else:
            self.invariants.report(self.diagnose())


class SingleManagerSession(ManagerSession):
    """A manager of which one invariant is checked."""

    model_class = _FollowingModel
    invariants: OneInvariant

    def __init__(self, *arguments: Any, only: str, **options: Any) -> None:
        super().__init__(*arguments, invariants=OneInvariant(only), **options)

    def _check(self, command: Command) -> None:
        refused = self.calls.refused
        if self.invariants.only == "ATOM":
            difference = self.invariants.new_difference(partial(super()._check, command))
            if difference is not None and refused:
                raise ViolationError(difference)
            return
        self.tables.all_unchanged(command, refused=refused)
        self.invariants.report(self.diagnose())
        self.cache.compare()
        if self.memory.has_changed:
            self.memory.read_all()


ONLY_READS = "only_reads"
"""The option of a trace in whose run only what is read is judged, see `ReadingManagerSession`."""


class ReadingManagerSession(SingleManagerSession):
    """A manager of which only what is read is judged, to learn what some other fault leads to.

    Nothing else is compared, so that a run goes on behind whatever was broken on the way. Where the
    model was led to where it cannot follow, nothing more is defined: the run has no verdict. A hit
    on what this step is going to write is judged when the step has written it.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._has_lost_track = False
        super().__init__(*arguments, only="DATA", **options)

    def _appoint(self) -> None:
        super()._appoint()
        self.memory.finds_unwritten = True

    def first_look(self) -> Violation | None:
        """Nothing has been read yet."""
        return None

    def step(self, command: Command) -> Violation | None:
        """Apply a legal command; return the wrong read that it shows, or what ends the run."""
        try:
            return self._reads_beyond(command) or super().step(command)
        except Exception:
            # What the target raises is a violation by now; the model was led where it cannot go.
            self._has_lost_track = True
            return None

    def _reads_beyond(self, command: Command) -> Violation | None:
        """A read of this step for which the reader's table has no block, or None."""
        if not isinstance(command, Step):
            return None
        for sequence in self.model.sequences.values():
            if sequence.place != "device" or sequence.ended or sequence.loading:
                continue
            last = sequence.num_computed + sequence.num_scheduled + sequence.num_drafts - 1
            for table, size in zip(sequence.tables, self.model.block_sizes, strict=True):
                found = reads_within_table(sequence.seq_id, last, len(table), size)
                if found is not None:
                    self.num_commands += 1
                    return self._numbered(found)
        return None

    step_any = step

    def is_defined(self, command: Command) -> bool:
        """Whether the command is legal in this state, as far as the state is known."""
        return not self._has_lost_track and super().is_defined(command)

    def end(self) -> Violation | None:
        """Nobody reads anything any more."""
        return None

    def _check(self, command: Command) -> None:
        self.tables.all_unchanged(command, refused=self.calls.refused)
        if self.memory.has_changed:
            self.memory.read_all()
