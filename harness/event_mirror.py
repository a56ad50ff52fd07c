"""Replays a target's event stream, so that it can be compared with the index (EVT)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.invariants.evt import events_give_index
from poolproof.reference.dict_pool import DictPool

__all__ = ["EventMirror"]


class EventMirror:
    """What a listener knows who saw nothing but the events.

    `per-copy` replays a multiset of keys, `per-hash` a set. An event of another type (such as a
    re-announcement) changes nothing.
    """

    def __init__(self, profile: Profile) -> None:
        self._per_hash = profile.events == "per-hash"
        self._copies: Counter[Key] = Counter()

    def replay(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Apply events in order. Raises ViolationError for one that is no event."""
        for event in events:
            try:
                kind, keys = event["type"], event["hashes"]
            except (TypeError, KeyError) as error:
                raise ViolationError(
                    Violation(
                        "EVT", Severity.EVENTS,
                        f"take_events() gave {event!r}; an event is a mapping with the entries "
                        "'type', 'hashes' and 'group'",
                    )
                ) from error  # fmt: skip
            if kind == "cleared":
                self._copies.clear()
            elif kind == "stored":
                for key in keys:
                    self._copies[key] = 1 if self._per_hash else self._copies[key] + 1
            elif kind == "removed":
                for key in keys:
                    self._copies[key] -= 1
                    if not self._copies[key]:
                        del self._copies[key]

    def differs_from(self, pool: DictPool) -> Violation | None:
        """The violation of EVT between the replayed stream and the index, or None."""
        carriers = pool.carriers
        expected = {key: 1 if self._per_hash else len(carriers[key]) for key in carriers}
        return None if self._copies == expected else events_give_index(self._copies, expected)
