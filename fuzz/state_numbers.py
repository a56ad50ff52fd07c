"""Abstract states as 64-bit numbers: how they are made, and how many travel and are kept together.

A number is a hash of the state's bytes, so that workers and folders agree on it without a common
list. Two states of one number would be counted once; with a million states that has a chance of
one in thirty million.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import xxhash

__all__ = ["number_of", "pack", "unpack"]


def number_of(state: bytes) -> int:
    """The number of an abstract state."""
    return xxhash.xxh3_64_intdigest(state)


def pack(states: Iterable[int]) -> bytes:
    """Numbers as bytes, eight each, the same on every machine."""
    numbers = tuple(states)
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def unpack(packed: bytes) -> tuple[int, ...]:
    """What `pack` packed. Raises ValueError for bytes of another length."""
    count, rest = divmod(len(packed), 8)
    if rest:
        raise ValueError(f"{len(packed)} bytes are no whole number of states")
    return struct.unpack(f"<{count}Q", packed)
