"""Fingerprints: a name for a finding that is the same for every seed and every choice of ids.

It covers the invariant and the normalised minimal trace: blocks and hashes are renamed by first
appearance, sentences and set-up do not enter.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from poolproof.contract.command_json import command_to_json
from poolproof.contract.trace import Trace

__all__ = ["fingerprint_of"]


def fingerprint_of(trace: Trace) -> str:
    """The name of a trace that ends in a violation: "f-" and eight hexadecimal digits."""
    assert trace.violation is not None
    blocks: dict[int, int] = {}
    keys: dict[str, int] = {}
    sequences: dict[int, int] = {}

    def block(block_id: int) -> int:
        return blocks.setdefault(block_id, len(blocks))

    def key(value: Any) -> int:
        return keys.setdefault(json.dumps(value, sort_keys=True), len(keys))

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
        if "chain" in record and trace.level != "manager":
            record["chain"] = key(record["chain"])
        for name in ("seq_id", "child_id"):
            if name in record:
                record[name] = sequence(record[name])
        normal.append(record)
    # Whether caching is on decides what the commands mean; nothing else of the set-up does.
    text = json.dumps(
        [trace.level, trace.violation.invariant, trace.enable_caching, normal], sort_keys=True
    )
    return "f-" + hashlib.sha256(text.encode()).hexdigest()[:8]
