"""Which invariants count in a session: all of them by default.

Judges report here what they find wrong in an answer, and ask here what is broken in a state.
`single_invariant.py` has the form of this for which one invariant counts.
"""

from __future__ import annotations

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Violation, raise_for
from poolproof.invariants.catalogue import broken_in_state

__all__ = ["EveryInvariant"]


class EveryInvariant:
    """Whatever is broken ends the run."""

    def report(self, violation: Violation | None) -> None:
        """What was found wrong, where the reference could follow nevertheless: raises it.

        Where one invariant counts, the others are passed over here. None is nothing wrong.
        """
        raise_for(violation)

    def broken_in(self, seen: PoolObservation, known: PoolLedger) -> Violation | None:
        """The first invariant that is broken in the state that was read, or None."""
        return broken_in_state(seen, known)
