"""How often a manager workload draws each verb, and what it draws for a while after some of them.

Tuned on the planted bugs of `bugs/` against a workload without preferences (benchmarks/survival.py,
docs/workloads.md). Which commands are legal, and what they are made of, is decided elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = ["AFTER_FORK", "AFTER_LOAD", "AFTER_PREEMPTION", "COLLIDING", "IDENTITY", "USUAL", "urn"]

USUAL = {
    "admit": 10,
    "append_tokens": 12,
    "step": 24,
    "schedule": 4,
    "draft": 5,
    "accept": 6,
    "fork": 9,
    "truncate": 4,
    "preempt": 5,
    "resume": 6,
    "swap_out": 4,
    "swap_in": 5,
    "finish": 9,
    "abort": 3,
    "lookup_prefix": 6,
    "load": 7,
    "loaded": 3,
    "reset": 4,
}

IDENTITY = {"lookup_prefix": 18}
"""For runs that are about keys: a lookup changes nothing, and compares one with all cached ones."""

COLLIDING = {"lookup_prefix": 60, "admit": 20, "finish": 10}
"""For hashes that are made to collide: many keys in little time."""

AFTER_FORK = (
    *("append_tokens",) * 5,
    *("step",) * 3,
    *("swap_out",) * 3,
    *("truncate",) * 2,
    "swap_in",
    "fork",
    "preempt",
)
"""What is shared is written by both, cut, and moved together."""

AFTER_PREEMPTION = ("resume", "resume", "admit", "append_tokens", "step")
"""It comes back before its blocks were drained, or somebody else takes the room."""

AFTER_LOAD = ("loaded", "loaded", "loaded", "loaded", "abort_loading")
"""A transfer ends, or its sequence does while it runs."""


@lru_cache(maxsize=256)
def urn(verbs: tuple[str, ...], weights: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Each verb as often as its weight says, those without one as usual."""
    chosen = {**USUAL, **dict(weights)}
    return tuple([verb for verb in verbs for _ in range(chosen[verb])])
