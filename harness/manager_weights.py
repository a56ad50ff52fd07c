"""How often a manager workload draws each verb, its passing preferences, and its scripts.

A run turns to another subject every few commands; a usually rare verb is frequent then, and what it
needs is there. Scripts follow a command that shows nothing by itself.
Tuned on the planted bugs of `bugs/` against a workload without preferences (benchmarks/survival.py,
docs/workloads.md). Which commands are legal, and what they are made of, is decided elsewhere.
"""

from __future__ import annotations

from functools import lru_cache

__all__ = [
    "AFTER_CUT",
    "AFTER_DRAFT",
    "AFTER_FORK",
    "AFTER_LOAD",
    "AFTER_LONG",
    "AFTER_PREEMPTION",
    "AFTER_VARIANT",
    "CHURN",
    "COLLIDING",
    "FAMILY",
    "IDENTITY",
    "LONG",
    "USUAL",
    "subjects",
    "urn",
]

USUAL = {
    "admit": 8,
    "append_tokens": 18,
    "step": 15,
    "schedule": 4,
    "draft": 5,
    "accept": 6,
    "fork": 12,
    "truncate": 4,
    "preempt": 6,
    "resume": 6,
    "swap_out": 2,
    "swap_in": 4,
    "finish": 9,
    "abort": 5,
    "lookup_prefix": 6,
    "load": 9,
    "loaded": 3,
    "reset": 5,
}

IDENTITY = {
    "lookup_prefix": 24,
    "admit": 13,
    "finish": 20,
    "fork": 4,
    "load": 9,
    "draft": 2,
    "truncate": 2,
    "preempt": 2,
    "swap_out": 2,
    "append_tokens": 13,
}
"""About keys: a lookup changes nothing, and compares one with all cached ones."""

FAMILY = {
    "fork": 20,
    "swap_out": 7,
    "swap_in": 6,
    "truncate": 6,
    "append_tokens": 16,
    "step": 20,
    "load": 9,
    "draft": 3,
    "accept": 4,
    "lookup_prefix": 2,
    "preempt": 4,
}
"""About what was forked from one another."""

LONG = {
    "admit": 12,
    "load": 4,
    "fork": 6,
    "draft": 3,
}
"""About windows: what has slid out of one is wanted again."""

CHURN = {
    "admit": 12,
    "finish": 12,
    "lookup_prefix": 12,
}
"""About few blocks that come and go, each behind many others."""

COLLIDING = {
    "lookup_prefix": 60,
    "admit": 20,
    "finish": 10,
}
"""For hashes that are made to collide: many keys in little time."""

_CACHED = (
    "one verb",
    *("adapters",) * 3,
    *("images",) * 3,
    *("usual blocks",) * 3,
    *("family",) * 3,
    *("usual",) * 3,
)
_ADMITTED_ONLY = (
    *("one verb",) * 4,
    "adapters",
    "images",
    *("usual blocks",) * 5,
    *("usual",) * 5,
)
_WINDOWED = (
    "one verb",
    "adapters",
    *("usual blocks",) * 2,
    *("family",) * 2,
    *("usual",) * 10,
)
_UNCACHED = (*("one verb",) * 4, *("family",) * 2, *("usual",) * 10)


def subjects(*, is_cached: bool, is_windowed: bool, is_looked_up: bool) -> tuple[str, ...]:
    """What runs may be about, each as often as it is listed.

    Keys matter where something is cached, and show fast where prefixes can be looked up.
    """
    if not is_cached:
        return _UNCACHED
    if is_windowed:
        return _WINDOWED
    return _CACHED if is_looked_up else _ADMITTED_ONLY


AFTER_FORK = (
    ("append_tokens", "step"),
    ("append_tokens", "step", "append_tokens", "step", "swap_out"),
    ("append_tokens", "append_tokens", "step", "swap_out", "swap_in"),
    ("truncate", "append_tokens", "step", "swap_out"),
    ("truncate", "swap_out", "swap_in"),
    ("swap_out", "swap_in"),
)
"""What is shared is written by both, cut, and moved together."""

AFTER_DRAFT = (("step", "accept", "append_tokens"), ("step", "accept", "finish"))
"""Most are rejected, and what held them is needed again."""

AFTER_PREEMPTION = (("resume",), ("step", "resume"), ("admit", "resume"))
"""It comes back before its blocks were drained, or another sequence takes the room."""

AFTER_LOAD = (
    ("loaded",),
    ("loaded",),
    ("admit", "loaded"),
    ("abort_loading", "loaded"),
    ("abort_loading", "loaded"),
)
"""A transfer ends, or its sequence does while it runs."""

AFTER_CUT = (("append_tokens", "step"), ("append_tokens", "append_tokens", "step"))
"""The room of what was cut off is written again."""

AFTER_VARIANT = (("step", "lookup_other", "lookup_other", "lookup_other"),)
"""It must not be found under other keys."""

AFTER_LONG = (("step", "admit"), ("step", "admit"), ("step", "lookup_prefix"))
"""It is wanted again once it has slid."""


@lru_cache(maxsize=256)
def urn(verbs: tuple[str, ...], weights: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Each verb as often as its weight says, those without one as usual."""
    chosen = {**USUAL, **dict(weights)}
    return tuple([verb for verb in verbs for _ in range(chosen[verb])])
