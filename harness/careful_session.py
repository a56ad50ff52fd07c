"""A session that does not take answers on trust: who owns a list, what an id is, who else is there.

Every list that the target answered is kept and compared after each later command; ids must be
integers and no objects that merely compare equal; a second instance stands beside, was used a
little, and must not change while the first one is driven. All of this costs several times as much
as an ordinary step, and what breaks it breaks early, so some runs are careful and most are not. An
ordinary session only empties the lists that it was given: that changes nothing for a target which
keeps a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

from poolproof.contract.commands import Allocate, Cache, Command
from poolproof.contract.content import Key
from poolproof.contract.outside import class_name, shown
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.pool_session import EVENTS_EVERY, PoolSession
from poolproof.invariants.stable_ids import (
    answered_list_changed,
    keeps_answered_list,
    no_plain_id,
    unchanged_by_neighbour,
    whole_beside_another,
    whole_when_idle,
)

__all__ = ["CAREFUL", "CarefulSession", "no_second_instance", "open_pool_session"]

CAREFUL = "careful"
"""The option of a trace whose session is careful."""

ONE_AT_A_TIME = "the target serves one instance at a time: what two of them share was not looked at"


def no_second_instance(error: BaseException) -> str:
    """The remark on a target of which no second instance can be built beside the first.

    A server builds one, so this is no finding; that any can be built is seen in every other run.
    """
    return (
        f"building a second instance beside the first raised {class_name(error)}: what two of them "
        "share was not looked at"
    )


MOST_KEPT = 64
"""So many of the latest lists are kept; a target that reuses one does so soon."""

Make = Callable[[int, bool], Any]


class _Nothing:
    """Equal to nothing but itself."""


_NOTHING = _Nothing()


class CarefulSession(PoolSession):
    """A `PoolSession` of one instance of two that `make` builds, see above."""

    def __init__(
        self,
        target: Any,
        profile: Profile,
        num_blocks: int,
        *,
        make: Make,
        enable_caching: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(target, profile, num_blocks, enable_caching=enable_caching, **options)
        self._reads_everything = False  # `_check` below is asked every time
        self._kept: list[tuple[str, list[Any], list[Any]]] = []
        self._make = make
        self._neighbour: PoolSession | None = None

    def first_look(self) -> Violation | None:
        """The fresh pool must be whole, and still be when another one was built and used."""
        found = super().first_look()
        if found is not None:
            return found
        if getattr(self.target, "poolproof_one_at_a_time", False):
            self.remarks.add(ONE_AT_A_TIME)
            return None
        reference = self.reference
        neighbours_key = b"\xab" * self.profile.usual_hash_bytes
        super().know((neighbours_key,))
        found = super().first_look()
        if found is not None and found.invariant == "CRASH":
            return found  # it raises on a hash, and there is nobody beside it yet
        # Of one size with ours or of another: what two share may depend on it either way.
        num_blocks = reference.num_blocks + (3 if reference.num_blocks % 2 else 0)
        try:
            other = self._make(num_blocks, reference.enable_caching)
        except (Exception, SystemExit) as error:
            self.remarks.add(no_second_instance(error))
            return unchanged_by_neighbour(super().first_look())
        self._neighbour = PoolSession(
            other, self.profile, num_blocks, enable_caching=reference.enable_caching
        )
        if not _use_a_little(self._neighbour, neighbours_key):
            self._neighbour = None  # broken by itself, which our own steps show as well
        return unchanged_by_neighbour(super().first_look())

    def know(self, keys: Sequence[Key]) -> None:
        """Keys that checks look up from now on, in the idle instance as well.

        What it answers to a key of which nobody has told it before it can have heard of it is a
        fault of its own, and shares nothing.
        """
        super().know(keys)
        if self._neighbour is not None:
            self._neighbour.know(keys)
            raise_for(whole_when_idle(self._neighbour.diagnose()))

    def received(self, command: Command, answer: Any) -> None:
        """An answer of block ids: they must be integers, and a list is kept."""
        if isinstance(answer, list | tuple):
            for item in answer:
                self._require_id(str(command), item)
            self._keep(str(command), answer)

    def received_events(self, events: Any) -> None:
        """An answer of `take_events()`."""
        self._keep("take_events()", events)

    def judge_lookup(self, command: Command, key: Key, answer: Any) -> None:
        """As for any session; but the answer must be an id."""
        if answer is not None:
            self._require_id(str(command), answer)
        super().judge_lookup(command, key, answer)

    def _check(self, command: Command) -> None:
        self._listen_beside()
        super()._check(command)
        self._compare_kept()
        violation = self._judge_state(self._observe(), self.reference.ledger())
        if violation is not None and not self._may_drop:
            raise ViolationError(violation)
        if self.can.sees("block_hash"):
            for block in self.touched:
                self._require_own_equality(f"block_hash({block})", self.target.block_hash(block))
        if self.can.sees("free_order"):
            order = self.target.free_order()
            self._keep("free_order()", order)
        self._look_beside()

    def _keep(self, answered: str, answer: Any) -> None:
        if isinstance(answer, list):
            self._kept.append((answered, answer, list(answer)))
            del self._kept[:-MOST_KEPT]

    def _compare_kept(self) -> None:
        """Raises ViolationError when a list that was answered has changed since."""
        for answered, answer, copy in self._kept:
            raise_for(keeps_answered_list(answered, copy, answer))
        changed = getattr(self.target, "poolproof_changed_answer", None)
        found = changed() if callable(changed) else None
        if found is not None:
            raise ViolationError(answered_list_changed(*found))

    def _require_id(self, answered: str, item: Any) -> None:
        """Raises ViolationError for what is no integer, by its type and by what it equals."""
        if type(item) is int:
            return
        text = shown(item)
        if isinstance(item, bool):
            raise ViolationError(no_plain_id(answered, text, "a truth value"))
        try:
            number, again = index(item), index(item)
        except Exception as error:
            raise ViolationError(no_plain_id(answered, text, f"a {type(item).__name__}")) from error
        self._require_own_equality(answered, item)
        if number != again or not bool(item == number) or bool(item == number + 1):
            raise ViolationError(
                no_plain_id(answered, text, "an object that is not the number it stands for")
            )
        self.remarks.add(
            f"block ids are {type(item).__module__}.{type(item).__name__}: taken as the integers "
            "that operator.index makes of them"
        )

    def _require_own_equality(self, answered: str, item: Any) -> None:
        if item is not None and _is_true(item == _NOTHING):
            raise ViolationError(
                no_plain_id(answered, shown(item), "an object that equals everything")
            )

    def _listen_beside(self) -> None:
        """Raises ViolationError when the idle instance tells of events that were not its own."""
        neighbour = self._neighbour
        if neighbour is None:
            return
        neighbour.touched_keys = ()
        try:
            neighbour._check_events()  # noqa: SLF001 - a session like this one
        except ViolationError as found:
            raise_for(whole_beside_another(found.violation))

    def _look_beside(self) -> None:
        """Raises ViolationError when the idle instance has changed."""
        if self._neighbour is not None:
            raise_for(whole_beside_another(self._neighbour.diagnose()))


def _use_a_little(session: PoolSession, key: Key) -> bool:
    """Hold two blocks and cache one; whether that went well."""
    free = len(session.reference.free)
    if not free:
        return True
    if session.step(Allocate(min(free, 2))) is not None:
        return False
    held = session.taken[0]
    return session.step(Cache((held,), (key,))) is None


def _is_true(answer: Any) -> bool:
    try:
        return bool(answer)
    except Exception:  # an array has no truth value, and equals nothing as a whole
        return False


def open_pool_session(
    make: Make,
    profile: Profile,
    num_blocks: int,
    *,
    enable_caching: bool,
    options: Mapping[str, Any],
    session_class: Callable[..., PoolSession] = PoolSession,
    **further: Any,
) -> PoolSession:
    """A session over a fresh target, set up as the options of a trace say.

    Raises TargetError for a target that lacks required methods, and whatever it raises itself.
    """
    target = make(num_blocks, enable_caching)
    if options.get(CAREFUL) and session_class is PoolSession:
        session_class = CarefulSession
        further["make"] = make
    return session_class(
        target,
        profile,
        num_blocks,
        enable_caching=enable_caching,
        block_size=int(options.get("block_size", 1)),
        events_every=int(options.get(EVENTS_EVERY, 1)),
        **further,
    )
