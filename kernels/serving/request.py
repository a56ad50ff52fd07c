"""A request of the small engine, and the hashes of its full blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from poolproof.contract.profile import USUAL_HASH_BYTES

__all__ = ["Request", "block_hashes"]


@dataclass(slots=True)
class Request:
    """Its tokens, the blocks of its table, and how many tokens have their keys in the cache.

    `host` are the places of its blocks in the host's cache while it is swapped out.
    """

    name: int
    tokens: list[int]
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    hashed: int = 0
    host: list[int] | None = None


def block_hashes(
    tokens: Sequence[int], block_size: int, hash_bytes: int = USUAL_HASH_BYTES
) -> list[bytes]:
    """One hash for each full block, of its tokens and of all blocks before it."""
    hashes: list[bytes] = []
    parent = b""
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = _digest(parent + bytes(tokens[end - block_size : end]), hash_bytes)
        hashes.append(parent)
    return hashes


def _digest(content: bytes, length: int) -> bytes:
    if length == USUAL_HASH_BYTES:
        return hashlib.blake2b(content, digest_size=length).digest()
    return hashlib.shake_128(content).digest(length)
