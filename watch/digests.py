"""Keyed digests: what the watch keeps of tokens and request ids.

Without the key, which is drawn for each process unless it is given, neither tokens nor ids can be
told from a digest, nor tried one after the other. Within a process prefixes are chained by Python's
hash of (the prefix before, token), 61 bits from a secret root: quick enough for each slot. What is
written to files is a keyed BLAKE2 digest of that. Two prefixes may have one digest by chance, once
in some 10**18 pairs; a finding would then be missed, and none is made up.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

__all__ = ["NEVER", "OTHER", "UNKNOWN", "Digests", "extended"]

NEVER = 0
"""In a slot that nobody has written."""
UNKNOWN = 1
"""In a slot of which is not known what was written: before the watch, or by a connector."""
OTHER = 2
"""Where KV stands in place of a state, or a state in place of KV."""


class Digests:
    """All digests of one watch. `key` has at most 64 bytes; drawn at random where it is None."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = os.urandom(32) if key is None else key

    def root(self, *extra: object) -> int:
        """The digest of the empty prefix under what tells prefixes apart besides tokens."""
        return self._number(b"root" + repr(extra).encode("utf-8", "backslashreplace"))

    def name(self, request_id: object) -> int:
        """A request's number."""
        return self._number(b"name" + str(request_id).encode("utf-8", "backslashreplace"))

    def mask(self, group: int) -> int:
        """What tells a cache group's contents from those of others; 0 for the first group."""
        return self._number(b"mask%d" % group) if group else 0

    def shown(self, digest: int) -> str:
        """A prefix's digest as it is written: 16 hexadecimal digits."""
        return self._bytes(b"show" + digest.to_bytes(8, "big", signed=True)).hex()

    def _number(self, data: bytes) -> int:
        return int.from_bytes(self._bytes(data), "big", signed=True)

    def _bytes(self, data: bytes) -> bytes:
        return hashlib.blake2b(data, digest_size=8, key=self._key).digest()


def extended(parent: int, items: Iterable[object]) -> list[int]:
    """The digests of the prefixes that end with each of `items`, which follow `parent`."""
    found = []
    for item in items:
        parent = hash((parent, item))
        found.append(parent)
    return found
