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


@plant(
    "J3", "an event covers the skipped null blocks as well (there by its tokens, here by hashes)",
    thread="vllm#44451", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(null_block=0, null_in_lists="ignored", events="per-copy"),
    is_bug_under=lambda p: _has_events(p) and p.null_block is not None
    and p.null_in_lists == "ignored",
)  # fmt: skip
class SkippedBlocksAnnounced(CleanPool):
    """The mirror has an entry for a block that is in no index."""

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids, hashes)
        for block_id, key in zip(block_ids, hashes, strict=False):
            if self.enable_caching and block_id == self.null_block:
                self._announce_stored(key, is_first_copy=key not in self.index)


@plant(
    "J6", "the eviction of some blocks is announced as a clear of all (there: of one tier of two)",
    thread="vllm#57296", invariants=("EVT",), severity=Severity.EVENTS,
    profile=Profile(events="per-copy"), is_bug_under=_has_events,
)  # fmt: skip
class PartAnnouncedAsAll(CleanPool):
    """What is still there is lost to the mirror."""

    def evict(self, block_ids: list[int]) -> None:
        super().evict(block_ids)
        if self.enable_caching:
            self._announce_cleared()
