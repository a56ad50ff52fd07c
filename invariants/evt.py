"""EVT: the event stream, replayed as the profile says, gives the index.

`per-copy` replays a multiset keyed by hash and group, one stored and one removed event for each
physical copy; `per-hash` a set, first copy in, last copy out. A re-announcement is a type of its
own and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from poolproof.contract.content import Key
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import key_name

__all__ = ["events_give_index"]


def events_give_index(replayed: Mapping[Key, int], expected: Mapping[Key, int]) -> Violation | None:
    """A violation of EVT between the replayed copies of each key and the index, or None."""
    for key in {**replayed, **expected}:
        got, wanted = replayed.get(key, 0), expected.get(key, 0)
        if got != wanted:
            return Violation(
                "EVT",
                Severity.EVENTS,
                f"the event stream leaves {got} cop{'y' if got == 1 else 'ies'} of "
                f"{key_name(key)}, the index has {wanted}",
            )
    return None
