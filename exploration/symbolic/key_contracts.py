"""Contracts of index keys and of the encoding beneath block hashes: what went in can be read back.

A function that can be undone gives different results for different inputs, so reading back is
injectivity. Bytes are short here; nothing in the code depends on how long they are. Not here:
`encoded_tokens`, which packs through `array`, and the hash functions, which are C.
"""

from __future__ import annotations

from poolproof.impl.block_hash import sized
from poolproof.impl.cached_keys import group_of, hash_of, make_key

__all__ = ["field_reads_back", "fields_read_back", "key_reads_back"]


def key_reads_back(block_hash: bytes, group: int) -> tuple[bytes, int]:
    """Hash and group of a key.

    pre: group >= 0
    post: _ == (block_hash, group)
    """
    key = make_key(block_hash, group)
    return hash_of(key), group_of(key)


def field_reads_back(field: bytes, rest: bytes) -> tuple[bytes, bytes]:
    """A field behind its length, and what follows it.

    pre: len(field) <= 3 and len(rest) <= 3
    post: _ == (field, rest)
    """
    return _read(sized(field) + rest)


def fields_read_back(first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """Two fields behind each other: where the first ends does not depend on what is in it.

    pre: len(first) <= 2 and len(second) <= 2
    post: _ == (first, second)
    """
    field, rest = _read(sized(first) + sized(second))
    return field, _read(rest)[0]


def _read(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:8], "little")
    return data[8 : 8 + length], data[8 + length :]
