"""The profiles under which the specimens of managers are tried: where each is a bug, it is caught.

A specimen says by `is_bug_under` which profiles it breaks; whoever searches for canaries under the
profile of a target believes it. So it is tried under designs that servers have, all of them, and
under its own profile with one row changed, for each value of each row. Where it is no bug, or its
base does not follow the row, it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from poolproof.bugs.specimen import ManagerSpecimen
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile

__all__ = ["DESIGNS", "profiles_of"]

_SLIDING = CacheGroup("sliding", window=8)

DESIGNS: Mapping[str, ManagerProfile] = {
    "plain": ManagerProfile(),
    "vllm": ManagerProfile(null_block=0, eviction="unhashed-first", misuse="undefined"),
    "vllm, window": ManagerProfile(null_block=0, groups=(_SLIDING,)),
    "vllm, two groups": ManagerProfile(null_block=0, groups=(CacheGroup(), _SLIDING)),
    "v0": ManagerProfile(publishes="never", eviction="lifo", watermark_blocks=1, host_blocks=4),
    "v0, ring": ManagerProfile(publishes="never", window_blocks="reused", groups=(_SLIDING,)),
    "nano": ManagerProfile(duplicates="last"),
    "published at the end": ManagerProfile(publishes="finish", duplicates="first"),
    "one user a block": ManagerProfile(held_blocks="exclusive"),
    "a doorkeeper": ManagerProfile(prior_sightings=1),
    "cached while held": ManagerProfile(retention="while-held"),
    "sound": ManagerProfile(
        tables="merged", duplicates="first", eviction="unspecified", hits="sound",
        admission="sound", never="untold", finish_again="undefined",
    ),
}  # fmt: skip
"""Designs that differ in many rows at once, by what they are."""

_OF_POOLS = ("recache", "null_in_lists", "repeats_in_free", "keys", "events", "hash_bytes")
"""Rows that say nothing of a manager, although its profile has them."""

_OTHER_VALUES: Mapping[str, tuple[Any, ...]] = {
    "null_block": (None, 0),
    "watermark_blocks": (0, 1),
    "lookahead_tokens": (0, 3),
    "generation_tokens": (0, 5),
    "prior_sightings": (0, 1),
    "host_blocks": (0, 4),
    "max_tokens": (0, 18),
    "max_sequences": (0, 3),
    "groups": (
        "full", "sliding:8", "chunked:8", "full+sliding:8", "sliding:8+full", "full+chunked:8",
    ),
}  # fmt: skip
"""Numbers and groups. The numbers that are missing go with recurrent states or drafting heads, and
no base of a specimen has these."""


def profiles_of(found: ManagerSpecimen) -> dict[str, ManagerProfile]:
    """The profiles, by name, under which the specimen is a bug, of those that are tried."""
    return {
        name: profile
        for name, profile in _profiles_to_try(found.profile)
        if found.is_bug_under(profile)
    }


def _profiles_to_try(stated: ManagerProfile) -> Iterator[tuple[str, ManagerProfile]]:
    """The stated profile, the designs, and the stated one with each other value of each row."""
    yield "as stated", stated
    yield from DESIGNS.items()
    values = {**ManagerProfile.choices(), **_OTHER_VALUES}
    for row, others in values.items():
        if row not in _OF_POOLS:
            known = [ManagerProfile.check_value(row, value) for value in others]
            for text, value in zip(others, known, strict=True):
                if value != getattr(stated, row):
                    yield f"{row}={text}", replace(stated, **{row: value})
