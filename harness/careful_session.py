"""Sessions that trust no answer: they check list ownership, types of ids, and a second instance.

The careful session of a pool has two more judges. One keeps every list that the target answered and
compares it after each later command; ids must be integers, not objects that merely compare equal.
The other looks at a second instance, which was used a little and must not change while the first
one is driven. All of this costs several times as much as an ordinary step, and violations show
early, so some runs are careful and most are not. An ordinary session only empties the lists that it
was given: that changes nothing for a target that keeps a copy.

The careful session of a manager has a second instance, which is never called and must not change.
Managers store state in class attributes, module globals and default arguments; two of them in one
process then share blocks, keys or sequences. It costs about twice as much as an ordinary session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

from poolproof.contract.commands import Allocate, Cache, Command
from poolproof.contract.content import Key, TokenChain
from poolproof.contract.manager_commands import Admit, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.outside import class_name, shown
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.pool_judges import AnswerJudge, KnownKeys
from poolproof.harness.pool_session import EVENTS_EVERY, PoolSession
from poolproof.harness.weak_hashes import weaken
from poolproof.invariants.stable_ids import (
    answered_list_changed,
    keeps_answered_list,
    no_plain_id,
    unchanged_by_neighbour,
    whole_beside_another,
    whole_when_idle,
)

__all__ = ["CAREFUL", "open_manager_session", "open_pool_session"]


CAREFUL = "careful"
"""The option of a trace whose session is careful."""

ONE_AT_A_TIME = "the target serves one instance at a time: what two of them share was not looked at"


def no_second_instance(error: BaseException) -> str:
    """The remark on a target of which no second instance can be built.

    A server builds only one, so this is not a finding. Every other run shows whether one can be
    built.
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


class CarefulAnswerJudge(AnswerJudge):
    """Block ids must be integers, and a list that was answered must stay as it was."""

    def __init__(self, target: Any, remarks: set[str]) -> None:
        self._target = target
        self._remarks = remarks
        self._kept: list[tuple[str, list[Any], list[Any]]] = []

    def received(self, command: Command, answer: Any) -> None:
        """Take an answer of block ids: they must be integers, and a list is kept."""
        if isinstance(answer, list | tuple):
            for item in answer:
                self._require_id(str(command), item)
            self.keep(str(command), answer)

    def received_id(self, command: Command, answer: Any) -> None:
        """Take an answer of one block id that is not a plain integer."""
        self._require_id(str(command), answer)

    def received_events(self, events: Any) -> None:
        """Take an answer of `take_events()`."""
        self.keep("take_events()", events)

    def keep(self, answered: str, answer: Any) -> None:
        """Compare an answer from now on, if it is a list."""
        if isinstance(answer, list):
            self._kept.append((answered, answer, list(answer)))
            del self._kept[:-MOST_KEPT]

    def compare_kept(self) -> None:
        """Raises ViolationError when a list that was answered has changed since."""
        for answered, answer, copy in self._kept:
            raise_for(keeps_answered_list(answered, copy, answer))
        changed = getattr(self._target, "poolproof_changed_answer", None)
        found = changed() if callable(changed) else None
        if found is not None:
            raise ViolationError(answered_list_changed(*found))

    def _require_id(self, answered: str, item: Any) -> None:
        """Raises ViolationError for anything but an integer, by its type and by what it equals."""
        if type(item) is int:
            return
        text = shown(item)
        if isinstance(item, bool):
            raise ViolationError(no_plain_id(answered, text, "a truth value"))
        try:
            number, again = index(item), index(item)
        except Exception as error:
            raise ViolationError(no_plain_id(answered, text, "no integer")) from error
        self.require_own_equality(answered, item)
        if number != again or not bool(item == number) or bool(item == number + 1):
            raise ViolationError(
                no_plain_id(answered, text, "an object that is not the number it stands for")
            )
        self._remarks.add(
            f"block ids are {class_name(item)}: taken as the integers that operator.index makes of "
            "them"
        )

    def require_own_equality(self, answered: str, item: Any) -> None:
        """Raises ViolationError for an object that equals everything and is not an id."""
        if item is not None and _is_true(item == _NOTHING):
            raise ViolationError(
                no_plain_id(answered, shown(item), "an object that equals everything")
            )


class IdleNeighbour:
    """A second pool, used a little, that must not change while the first one is driven."""

    def __init__(self, session: PoolSession) -> None:
        self._session = session

    def know(self, keys: Sequence[Key]) -> None:
        """Add keys that it is asked for as well.

        If it answers to a key before it can have heard of it, that is a fault of its own, and
        nothing is shared.
        """
        self._session.keys.know(keys)
        raise_for(whole_when_idle(self._session.diagnose()))

    def listen(self) -> None:
        """Raises ViolationError if it reports events that were not its own."""
        self._session.last.touched_keys = ()
        try:
            self._session.check_events()
        except ViolationError as found:
            raise_for(whole_beside_another(found.violation))

    def look(self) -> None:
        """Raises ViolationError when it has changed."""
        raise_for(whole_beside_another(self._session.diagnose()))


class SharedKeys(KnownKeys):
    """Keys that are looked up in the idle neighbour as well, once there is one."""

    neighbour: IdleNeighbour | None = None

    def know(self, keys: Sequence[Key]) -> None:
        """Add keys that checks look up from now on."""
        super().know(keys)
        if self.neighbour is not None:
            self.neighbour.know(keys)


class CarefulSession(PoolSession):
    """A `PoolSession` of one of two instances that `make` builds, see above."""

    answers: CarefulAnswerJudge
    keys: SharedKeys

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
        self._make = make
        self._neighbour: IdleNeighbour | None = None

    def _make_keys(self) -> SharedKeys:
        return SharedKeys()

    def _make_answers(self) -> CarefulAnswerJudge:
        return CarefulAnswerJudge(self.target, self.remarks)

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
        self.keys.know((neighbours_key,))
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
        beside = PoolSession(
            other, self.profile, num_blocks, enable_caching=reference.enable_caching
        )
        # One that is broken by itself is left alone: our own steps show that as well.
        if _use_a_little(beside, neighbours_key):
            self._neighbour = self.keys.neighbour = IdleNeighbour(beside)
        return unchanged_by_neighbour(super().first_look())

    def _check(self, command: Command) -> None:
        if self._neighbour is not None:
            self._neighbour.listen()
        super()._check(command)
        self.answers.compare_kept()
        violation = self.diagnosis.first_broken()
        if violation is not None and not self._may_drop:
            raise ViolationError(violation)
        if self.can.sees("block_hash"):
            for block in self.last.touched:
                shown_hash = self.target.block_hash(block)
                self.answers.require_own_equality(f"block_hash({block})", shown_hash)
        if self.can.sees("free_order"):
            self.answers.keep("free_order()", self.target.free_order())
        if self._neighbour is not None:
            self._neighbour.look()


def _use_a_little(session: PoolSession, key: Key) -> bool:
    """Hold two blocks and cache one; return whether that worked."""
    free = len(session.reference.free)
    if not free:
        return True
    if session.step(Allocate(min(free, 2))) is not None:
        return False
    held = session.last.taken[0]
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
    """Open a session over a fresh target, set up as the options of a trace say.

    Raises TargetError for a target that lacks required methods, and whatever the target raises.
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


_NEIGHBOURS_ID = 10**6
"""A number that no workload gives out."""


class CarefulManagerSession(ManagerSession):
    """A `ManagerSession` of one of two instances; `make_other` builds the second."""

    def __init__(
        self, *arguments: Any, make_other: Callable[[], ManagerSession], **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._make_other = make_other
        self._neighbour: ManagerSession | None = None

    def first_look(self) -> Violation | None:
        """The fresh manager must be whole, and still be when another one was built and used."""
        found = super().first_look()
        if found is not None:
            return found
        if getattr(self.target, "poolproof_one_at_a_time", False):
            self.remarks.add(ONE_AT_A_TIME)
            return None
        try:
            neighbour = self._make_other()
        except (Exception, SystemExit) as error:
            self.remarks.add(no_second_instance(error))
            return unchanged_by_neighbour(super().first_look())
        size = neighbour.model.block_size
        admission = Admit(_NEIGHBOURS_ID, TokenChain(tuple(range(1_000, 1_001 + size))), 0)
        # Its faults show in our own first steps as well, and there they are not misread.
        if not any(
            neighbour.is_defined(command) and neighbour.step(command)
            for command in (admission, Step())
        ):
            self._neighbour = neighbour
        return unchanged_by_neighbour(self.changed_beside(admission))

    def _check(self, command: Command) -> None:
        super()._check(command)
        if self._neighbour is not None:
            raise_for(whole_beside_another(self._neighbour.changed_beside(command)))


def open_manager_session(
    make: Callable[[int, bool], Any],
    profile: ManagerProfile,
    num_blocks: int,
    block_size: int,
    *,
    enable_caching: bool,
    options: Mapping[str, Any],
    session_class: Callable[..., ManagerSession] = ManagerSession,
    **further: Any,
) -> ManagerSession:
    """Open a session over a fresh manager, set up as the options of a trace say.

    Raises TargetError for a target that lacks required methods, and whatever the target raises.
    """

    def target() -> Any:
        fresh = make(num_blocks, enable_caching)
        weaken(fresh, options)
        return fresh

    about = (profile, num_blocks, block_size)
    if options.get(CAREFUL) and session_class is ManagerSession:
        session_class = CarefulManagerSession
        further["make_other"] = lambda: ManagerSession(
            target(), *about, enable_caching=enable_caching
        )
    return session_class(target(), *about, enable_caching=enable_caching, **further)
