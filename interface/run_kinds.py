"""The kinds of runs that a certification drives, and what each of them is called.

A kind is a text: "queue", "pool" (opaque hashes), "chains" (token chains), or "manager NAME" for
the layout of a manager. With "manager NAME, weak hashes" the hashes of that manager are cut to a
few bits, so that they collide (`harness/weak_hashes.py`).
"""

from __future__ import annotations

__all__ = [
    "hash_bits_of",
    "layout_of",
    "level_of",
    "manager_kind",
    "stage_of",
    "steps_per_run",
    "weakened",
]

_MANAGER = "manager "
_WEAK = ", weak hashes"
_HASH_BITS = 4
"""With 8 bits, comparing one block of a prefix instead of all is found ten times as late."""
_STAGES = {"pool": "opaque hashes", "chains": "token chains", "queue": "links and order"}
_STEPS = {"pool": 115, "chains": 115, "queue": 40}
_STEPS_OF_MANAGERS = 95


def manager_kind(layout: str) -> str:
    """The kind of the runs of a layout."""
    return _MANAGER + layout


def weakened(kind: str) -> str:
    """The kind of a manager's runs in which its hashes collide."""
    assert kind.startswith(_MANAGER)
    return kind + _WEAK


def hash_bits_of(kind: str) -> int:
    """To how many bits runs of this kind cut the manager's hashes; 0: not at all."""
    return _HASH_BITS if kind.endswith(_WEAK) else 0


def layout_of(kind: str) -> str | None:
    """The layout that runs of this kind drive; None at other levels."""
    if not kind.startswith(_MANAGER):
        return None
    return kind.removeprefix(_MANAGER).removesuffix(_WEAK)


def level_of(kind: str) -> str:
    """The level that the runs belong to."""
    if layout_of(kind) is not None:
        return "manager"
    return "queue" if kind == "queue" else "pool"


def stage_of(kind: str) -> str:
    """What a stage of this kind is called, before the name of its driver."""
    return kind.removeprefix(_MANAGER) if layout_of(kind) else _STAGES[kind]


def steps_per_run(kind: str) -> int:
    """About how many commands one run of the plain driver gives."""
    return _STEPS.get(kind, _STEPS_OF_MANAGERS)
