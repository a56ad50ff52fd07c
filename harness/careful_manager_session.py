"""A manager's session with a second instance, which is never called and must not change.

Managers keep books in class attributes, module globals and default arguments; two of them in one
process then share blocks, keys or sequences. It costs about twice as much as an ordinary session,
and what breaks it breaks early, so some small runs are careful and most are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Violation, raise_for
from poolproof.harness.careful_session import CAREFUL, no_second_instance
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.weak_hashes import weaken
from poolproof.invariants.stable_ids import unchanged_by_neighbour, whole_beside_another

__all__ = ["CarefulManagerSession", "open_manager_session"]

_NEIGHBOURS_ID = 10**6
"""A number that no workload gives out."""


class CarefulManagerSession(ManagerSession):
    """A `ManagerSession` of one instance of two; `make_other` builds the second."""

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
    """A session over a fresh manager, set up as the options of a trace say.

    Raises TargetError for a target that lacks required methods, and whatever it raises itself.
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
