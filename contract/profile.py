"""The profile: the ways in which correct engines differ.

A target declares its profile as a plain mapping; unknown keys and values are errors, a missing
key takes the first value of its row and is reported as assumed. The rows and their meanings are
the table of docs/contract.md. Nothing here looks at a target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from poolproof.contract.outside import shown

if TYPE_CHECKING:
    from typing_extensions import Self

from poolproof.contract.errors import PoolproofError

__all__ = [
    "FEWEST_BYTES_OF_CONTENTS",
    "MOST_HASH_BYTES",
    "USUAL_HASH_BYTES",
    "Profile",
    "ProfileError",
    "joins_head",
]

_CHOICES: dict[str, tuple[str, ...]] = {
    "eviction": ("lru", "unhashed-first", "unhashed-lifo", "lifo", "unspecified"),
    "duplicates": ("kept", "first", "last"),
    "recache": ("replace", "forbidden"),
    "null_in_lists": ("misuse", "ignored", "uncached"),
    "repeats_in_free": ("allowed", "forbidden"),
    "keys": ("block", "partial"),
    "retention": ("exact", "may-drop", "while-held"),
    "events": ("none", "per-copy", "per-hash"),
    "misuse": ("raises", "ignores", "undefined"),
    "same_step_hit": ("forbidden", "allowed"),
    "hash_bytes": ("any",),
}


_UNHASHED_TO_HEAD = ("unhashed-first", "unhashed-lifo")

USUAL_HASH_BYTES = 16
"""How long most hashes are that a pool is driven with which takes any length."""

FEWEST_BYTES_OF_CONTENTS = 8
"""Shorter hashes of different contents (tokens, prompts) are equal by chance within a long run. Of
a million blocks two have the same 64 bits with a chance of one in 37 million."""

MOST_HASH_BYTES = 256
"""Four times the longest digest in use; traces write each hash out, two digits a byte. One byte is
the least: that is 256 different hashes, and runs that want more do with those."""


def joins_head(eviction: str, has_hash: bool) -> bool:
    """Whether a block that becomes free is put at the head of the queue, not at its tail."""
    return eviction == "lifo" or (eviction in _UNHASHED_TO_HEAD and not has_hash)


class ProfileError(PoolproofError, ValueError):
    """A profile with an unknown key or value; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One value for each row of the profile table.

    `keys` may also be an integer: the number of lookahead tokens beyond the block that a key
    covers. `hash_bytes` is "any", or the one number of bytes that every hash has. `assumed` names
    the rows that the target did not declare.
    """

    null_block: int | None = None
    eviction: str = "lru"
    duplicates: str = "kept"
    recache: str = "replace"
    null_in_lists: str = "misuse"
    repeats_in_free: str = "allowed"
    keys: str | int = "block"
    retention: str = "exact"
    events: str = "none"
    misuse: str = "raises"
    same_step_hit: str = "forbidden"
    hash_bytes: str | int = "any"
    assumed: tuple[str, ...] = ()

    @classmethod
    def from_mapping(cls, declared: Mapping[str, Any]) -> Self:
        """The profile that a target declared. Raises ProfileError."""
        if not isinstance(declared, Mapping):
            raise ProfileError(
                f"profile must be a mapping of keys to values, not {shown(declared)}"
            )
        known = cls.rows()
        rows = {}
        for key, value in declared.items():
            if key not in known:
                raise ProfileError(
                    f"unknown profile key {shown(key)}; known are {', '.join(known)}"
                )
            rows[key] = cls.check_value(key, value)
        missing = tuple(key for key in known if key not in declared)
        return cls(**rows, assumed=missing)

    def with_rows(self, rows: Mapping[str, Any]) -> Self:
        """The same profile with other values of these rows. Raises ProfileError."""
        others = self.from_mapping({**self.to_json(), **rows})
        assumed = tuple(name for name in self.assumed if name not in rows)
        return replace(others, assumed=assumed)

    @classmethod
    def rows(cls) -> tuple[str, ...]:
        """The names of the rows, in their order."""
        return tuple(field.name for field in fields(cls) if field.name != "assumed")

    @property
    def reuses_unhashed_first(self) -> bool:
        """Whether blocks that carry no hash are reused before those that do."""
        return self.eviction in _UNHASHED_TO_HEAD

    @classmethod
    def choices(cls) -> Mapping[str, tuple[str, ...]]:
        """The words that each row can have; rows that only have numbers are not there."""
        return _CHOICES

    @classmethod
    def check_value(cls, key: str, value: Any) -> Any:
        """The value of a row as the profile keeps it. Raises ProfileError."""
        _check_value(key, value)
        return value

    @property
    def fixed_hash_bytes(self) -> int | None:
        """How many bytes every hash has; None where hashes of any length are taken."""
        return None if isinstance(self.hash_bytes, str) else self.hash_bytes

    @property
    def usual_hash_bytes(self) -> int:
        """How many bytes a hash has where nothing depends on its length."""
        return self.fixed_hash_bytes or USUAL_HASH_BYTES

    def to_json(self) -> dict[str, Any]:
        """The rows as a mapping that `from_mapping` reads back."""
        return {field.name: getattr(self, field.name) for field in fields(self)
                if field.name != "assumed"}  # fmt: skip


HIGHEST_NULL_BLOCK = 4095
"""Engines set the first block aside; each pool that is driven is larger than this number."""


def _check_value(key: str, value: Any) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key == "null_block":
        if value is not None and not is_number:
            raise ProfileError(
                f"profile key 'null_block' must be None or a block id, not {shown(value)}"
            )
        if value is not None and value > HIGHEST_NULL_BLOCK:
            raise ProfileError(
                f"profile key 'null_block' must be at most {HIGHEST_NULL_BLOCK:,}, not "
                f"{shown(value)}: every pool that is driven has to have that block"
            )
        return
    if key == "keys" and is_number:
        return
    if key == "hash_bytes":
        is_length = is_number and 1 <= value <= MOST_HASH_BYTES
        if value not in _CHOICES[key] and not is_length:
            raise ProfileError(
                f"profile key 'hash_bytes' must be 'any' or a number of bytes from 1 to "
                f"{MOST_HASH_BYTES}, not {shown(value)}"
            )
        return
    allowed = _CHOICES[key]
    if value not in allowed:
        also = ", or a number of lookahead tokens" if key == "keys" else ""
        raise ProfileError(
            f"profile key {shown(key)} must be one of {', '.join(allowed)}{also}, not "
            f"{shown(value)}"
        )
