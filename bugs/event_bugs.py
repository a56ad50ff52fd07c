"""Bugs of the event stream: a mirror that replays it believes something else than the index."""

from __future__ import annotations

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.specimen import Section
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["EVENT_BUGS"]

EVENT_BUGS = Section()
plant = EVENT_BUGS.plant


def _has_events(profile: Profile) -> bool:
    return profile.events != "none"


@plant(
    "J1", "removals are announced in the other currency: each copy for a set, the last for copies",
    thread="vllm#55092", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-hash"),
    is_bug_under=lambda p: p.events != "none" and p.duplicates != "first",
)  # fmt: skip
class RemovalInTheOtherCurrency(CleanPool):
    """A router forgets a prefix that is resident, or believes in one that is gone."""

    def _announce_removed(self, key: Key, *, is_last_copy: bool) -> None:
        if self.rules.events == "per-hash" or is_last_copy:
            self.events.append({"type": "removed", "hashes": [key], "group": 0})


@plant(
    "J5", "every lookup announces that all blocks were cleared",
    thread="tokenspeed#166", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-copy"), is_bug_under=_has_events,
)  # fmt: skip
class LookupAnnouncesClear(CleanPool):
    """The mirror is empty after the first lookup, the index is not."""

    def lookup(self, block_hash: Key) -> int | None:
        self._announce_cleared()
        return super().lookup(block_hash)


@plant(
    "J5b", "a reset is announced for a pool that refused it",
    thread="", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-copy"), is_bug_under=_has_events,
)  # fmt: skip
class RefusedResetAnnounced(CleanPool):
    """Listeners drop what is still there to be hit."""

    def reset(self) -> bool:
        self._announce_cleared()
        return super().reset()
