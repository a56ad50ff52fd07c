"""Events of a pool's prefix index, for consumers that keep a mirror of it.

An event is a dict `{"type": "stored" | "removed" | "cleared", "hashes": [bytes, ...],
"group": int}`; stored and removed carry one hash each, cleared carries none. Replayed in order
from an empty mirror they give the index: under "per-copy" as a multiset of (hash, group), one
entry for each block that carries the hash; under "per-hash" as a set. Which of the two a consumer
must assume is a choice that both sides have to share: a removal event for each copy, replayed as
a set, forgets a hash that another block still carries (vllm#55092).

Token ids, parents and storage tiers are not part of these events.
"""

from __future__ import annotations

from typing import Any

from poolproof.impl.block_key import BlockKey, group_of, hash_of


class EventLog:
    """Collects events until they are taken. `mode` is "per-copy" or "per-hash"."""

    def __init__(self, mode: str) -> None:
        self._every_copy = mode == "per-copy"
        self._events: list[dict[str, Any]] = []

    def stored(self, key: BlockKey, first_copy: bool) -> None:
        """A block has come to carry the key; `first_copy`: no other did before."""
        if self._every_copy or first_copy:
            self._append("stored", key)

    def removed(self, key: BlockKey, last_copy: bool) -> None:
        """A block has ceased to carry the key; `last_copy`: no other does now."""
        if self._every_copy or last_copy:
            self._append("removed", key)

    def cleared(self) -> None:
        """Every key of every group is gone."""
        self._events.append({"type": "cleared", "hashes": [], "group": 0})

    def take(self) -> list[dict[str, Any]]:
        """The events since the last call, oldest first."""
        events, self._events = self._events, []
        return events

    def _append(self, kind: str, key: BlockKey) -> None:
        self._events.append({"type": kind, "hashes": [hash_of(key)], "group": group_of(key)})
