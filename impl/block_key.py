"""Index keys: a block hash and the cache group that it was computed for.

Equal tokens have different KV in different groups (full attention, sliding window, ...), so the
group belongs to the key. In group 0 the key is the hash itself, which spares an allocation and a
tuple hash for each block of an engine with one group; in another group it is the pair. Bytes and
pairs are never equal, whatever the hashes' lengths.
"""

from __future__ import annotations

from collections.abc import Sequence

BlockKey = bytes | tuple[bytes, int]


def make_key(block_hash: bytes, group: int) -> BlockKey:
    """The index key of a hash in a group."""
    return (block_hash, group) if group else block_hash


def make_keys(hashes: list[bytes], group: int) -> Sequence[BlockKey]:
    """The index keys of hashes in a group."""
    return [(block_hash, group) for block_hash in hashes] if group else hashes


def hash_of(key: BlockKey) -> bytes:
    """The hash as the caller gave it."""
    return key[0] if type(key) is tuple else key  # type: ignore[return-value]  # mypy does not narrow by type(), the quickest test


def group_of(key: BlockKey) -> int:
    """The group that the key belongs to."""
    return key[1] if type(key) is tuple else 0
