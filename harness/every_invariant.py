"""Which invariants count in a session: all of them by default.

Judges report here what is wrong with an answer, and ask here what is broken in a state.
`single_invariant.py` has the variant in which one invariant counts.
"""

from __future__ import annotations

from poolproof.contract.observation import PoolLedger, PoolObservation
from poolproof.contract.violation import Violation, raise_for
from poolproof.invariants.catalogue import broken_in_state

__all__ = ["EveryInvariant"]


class EveryInvariant:
    """Whatever is broken ends the run."""

    def report(self, violation: Violation | None) -> None:
        """Raise what was found wrong, although the reference could follow.

        If only one invariant counts, the others are ignored here. None means that nothing is wrong.
        """
        raise_for(violation)

    def broken_in(self, seen: PoolObservation, known: PoolLedger) -> Violation | None:
        """The first invariant that is broken in the state that was read, or None."""
        return broken_in_state(seen, known)
