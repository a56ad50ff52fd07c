"""Replays a target's event stream and compares it with the index (EVT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolproof.contract.content import ContentKey
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.pool_judges import AnswerJudge, Effect
from poolproof.harness.reading import read
from poolproof.invariants.events import (
    events_give_index,
    is_list_of_events,
    malformed_event,
    recaching_removes_nothing,
    stored_tells_content,
)
from poolproof.reference.dict_pool import DictPool

__all__ = ["EventJudge", "EventMirror"]


class EventMirror:
    """What a listener knows that saw only the events.

    `per-copy` replays a multiset of keys, `per-hash` a set. An event of another type (such as a
    re-announcement) changes nothing.
    """

    def __init__(self, profile: Profile) -> None:
        self._per_hash = profile.events == "per-hash"
        self._skips_blocks = profile.null_in_lists != "misuse"
        self._copies: dict[Any, int] = {}

    def replay(self, events: Any) -> None:
        """Apply a list of events in order. Raises ViolationError for anything else."""
        raise_for(is_list_of_events(events))
        event: Any = None
        try:
            for event in events:
                self._replay_one(event)
        except (TypeError, KeyError) as error:
            raise ViolationError(malformed_event(event)) from error

    def _replay_one(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        if kind == "cleared":
            self._copies.clear()
        elif kind in ("stored", "removed"):
            hashes, group = event["hashes"], event.get("group", 0)
            if isinstance(hashes, bytes | str):
                raise TypeError("one hash stands where a list of hashes belongs")
            if kind == "stored" and hashes and all(type(key) is ContentKey for key in hashes):
                raise_for(stored_tells_content(event, hashes, skips_blocks=self._skips_blocks))
            for key in hashes:
                # Opaque hashes are cached in group 0; content keys name their group themselves.
                where = key if group == getattr(key, "group", 0) else (key, group)
                copies = self._copies.get(where, 0) + (1 if kind == "stored" else -1)
                if copies:
                    self._copies[where] = min(copies, 1) if self._per_hash else copies
                else:
                    del self._copies[where]

    def differs_from(self, pool: DictPool) -> Violation | None:
        """The violation of EVT between the replayed stream and the index, or None."""
        carriers = pool.carriers
        # Asked after every command, so without a loop of our own.
        expected = dict(zip(carriers, map(len, carriers.values()), strict=True))
        if self._per_hash:
            expected = dict.fromkeys(carriers, 1)
        return None if self._copies == expected else events_give_index(self._copies, expected)


class EventJudge:
    """Reads a target's events about its index, after every command or after one in `every`."""

    def __init__(
        self,
        target: Any,
        reference: DictPool,
        effect: Effect,
        answers: AnswerJudge,
        *,
        every: int = 1,
    ) -> None:
        self.mirror = EventMirror(reference.profile)
        self.every = every
        self._target = target
        self._reference = reference
        self._effect = effect
        self._answers = answers
        self._may_drop = reference.profile.retention == "may-drop"
        self._last_heard = 0

    def check(self, number: int) -> None:
        """After command `number`. Raises ViolationError when the stream does not give the index."""
        if self.every > 1:
            if number % self.every == 0:
                self.catch_up()
            return
        effect = self._effect
        # A search that replays the way to a state hears of all its commands at once.
        heard_of_one = self._last_heard == number - 1
        self._last_heard = number
        events = read(self._target.take_events)
        if type(events) is not list or events:
            self.mirror.replay(events)
            if effect.cached_again and heard_of_one and not self._may_drop:
                raise_for(recaching_removes_nothing(events))
            self._answers.received_events(events)
        elif not effect.touched_keys and not self._may_drop:
            return  # neither the stream nor the index has changed since they were equal
        raise_for(self.mirror.differs_from(self._reference))

    def catch_up(self) -> None:
        """Raises ViolationError when all events since the last reading do not give the index."""
        events = read(self._target.take_events)
        self.mirror.replay(events)
        self._answers.received_events(events)
        raise_for(self.mirror.differs_from(self._reference))
