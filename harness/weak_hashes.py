"""Hashes of a few bits, injected into a manager, so that different prefixes meet under one hash.

A manager that compares what it finds is right all the same. One that trusts its hashes
(`collisions: trusted`) is right as long as no two are equal: what it does wrong only under weak
hashes is reported as dependent on a collision, and not as wrong. A manager takes part that has a
method `use_hash(digest)`, called before anything else with a function from bytes to bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace

__all__ = ["WEAK_HASHES", "collided", "weak_hash", "weaken", "with_full_hashes"]

WEAK_HASHES = "weak_hashes"
"""The option of a trace that says to how many bits hashes are cut; 0 or absent: not at all."""


def weak_hash(num_bits: int) -> Callable[[bytes], bytes]:
    """SHA-256 cut to its first `num_bits` bits, 1 to 64."""
    assert 1 <= num_bits <= 64

    def digest(content: bytes) -> bytes:
        number = int.from_bytes(hashlib.sha256(content).digest()[:8], "big")
        return (number >> (64 - num_bits)).to_bytes(8, "big")

    return digest


def weaken(target: Any, options: Mapping[str, Any]) -> None:
    """Give a fresh target weak hashes if the options of its trace say so.

    Raises TargetError for a target that does not let its hash be replaced.
    """
    num_bits = int(options.get(WEAK_HASHES, 0))
    if not num_bits:
        return
    if not callable(getattr(target, "use_hash", None)):
        raise TargetError(
            f"{type(target).__name__} has no use_hash(digest), so its hashes cannot be weakened; "
            "leave weak hashes out, or add the method"
        )
    target.use_hash(weak_hash(num_bits))


def with_full_hashes(trace: Trace) -> Trace:
    """The same trace for a target whose hashes are left as they are."""
    options = {name: value for name, value in trace.options.items() if name != WEAK_HASHES}
    return replace(trace, options=options)


def collided(trace: Trace) -> Trace:
    """A failing trace that passes with full hashes, with a sentence that says so."""
    assert trace.violation is not None
    num_bits = trace.options[WEAK_HASHES]
    sentence = (
        f"{trace.violation.sentence}; this depends on a hash collision (hashes were cut to "
        f"{num_bits} bits, with full hashes the same commands pass)"
    )
    return replace(trace, violation=replace(trace.violation, sentence=sentence))
