"""Fingerprints: a name for a finding that is the same for every seed and every choice of ids.

It covers the kind of failure (`failure_kind.py`) and the normalised minimal trace: blocks and
hashes are renamed by first appearance, sentences and set-up are left out. Renaming must not merge
two bugs, so the fingerprint keeps what is special about a hash, the size of a pool that must be
large, and the layout of a manager.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from poolproof.contract.command_json import command_to_json
from poolproof.contract.profile import USUAL_HASH_BYTES, Profile
from poolproof.contract.trace import Trace
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.weak_hashes import WEAK_HASHES

__all__ = ["fingerprint_of"]

MOST_BLOCKS_OF_A_SMALL_POOL = 64
"""Beyond this a finding's name says how large its pool is, up to a power of two."""

_MANY_ZEROS = 2
_SHARED = 4


def fingerprint_of(trace: Trace) -> str:
    """The name of a trace that ends in a violation: "f-" and eight hexadecimal digits."""
    assert trace.violation is not None
    blocks: dict[int, int] = {}
    keys: dict[str, int] = {}
    traits: dict[int, list[str]] = {}
    sequences: dict[int, int] = {}

    def block(block_id: int) -> int:
        return blocks.setdefault(block_id, len(blocks))

    def key(value: Any) -> int:
        text = json.dumps(value, sort_keys=True)
        if text not in keys:
            traits[len(keys)] = _traits(value, keys, trace.profile)
        return keys.setdefault(text, len(keys))

    def sequence(seq_id: int) -> int:
        return sequences.setdefault(seq_id, len(sequences))

    normal = []
    for command in trace.commands:
        record = command_to_json(command)
        if "block_ids" in record:
            record["block_ids"] = [block(b) for b in record["block_ids"]]
        if "block_id" in record:
            record["block_id"] = block(record["block_id"])
        if "hashes" in record:
            record["hashes"] = [key(k) for k in record["hashes"]]
        if "block_hash" in record:
            record["block_hash"] = key(record["block_hash"])
        if "key" in record:
            record["key"] = key(record["key"])
        if "chain" in record and not trace.level.has_layouts:
            record["chain"] = key(record["chain"])
        for name in ("seq_id", "child_id", "request_id"):
            if name in record:
                record[name] = sequence(record[name])
        normal.append(record)
    special = {str(number): found for number, found in traits.items() if found}
    parts = [
        trace.level,
        str(failure_kind(trace.violation, trace.commands)),
        # Whether caching is on decides what the commands mean.
        trace.enable_caching,
        # What is broken in one layout, or where hashes collide, may be right elsewhere.
        trace.options.get("layout"),
        trace.options.get(WEAK_HASHES),
        trace.num_blocks.bit_length() if trace.num_blocks > MOST_BLOCKS_OF_A_SMALL_POOL else 0,
        special,
        normal,
    ]
    return "f-" + hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def _traits(value: Any, earlier: Iterable[str], profile: Profile) -> list[str]:
    """What distinguishes a hash from a random one of the usual length."""
    try:
        key = bytes.fromhex(value)
    except (TypeError, ValueError):
        return []  # the key of a chain is made of its tokens
    others = [bytes.fromhex(json.loads(other)) for other in earlier]
    # Where all hashes have one length, a long one has some zeros by chance; 16 bytes seldom two.
    many_zeros = max(_MANY_ZEROS, (profile.fixed_hash_bytes or 0) * _MANY_ZEROS // USUAL_HASH_BYTES)
    found = {
        f"{len(key)} bytes": len(key) != profile.usual_hash_bytes,
        "nothing but zeros": not any(key),
        "zeros": key.count(0) >= many_zeros,
        "begins as another": any(_are_one(key, other, slice(_SHARED)) for other in others),
        "ends as another": any(_are_one(key, other, slice(-_SHARED, None)) for other in others),
    }
    return [trait for trait, has in found.items() if has]


def _are_one(key: bytes, other: bytes, part: slice) -> bool:
    return key[part] == other[part]
