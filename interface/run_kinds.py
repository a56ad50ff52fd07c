"""The kinds of runs that a certification drives, and what each of them is called.

A kind is a text: "queue", "pool" (opaque hashes), "chains" (token chains), or "manager NAME" for
the layout of a manager.
"""

from __future__ import annotations

__all__ = ["layout_of", "level_of", "manager_kind", "stage_of", "steps_per_run"]

_MANAGER = "manager "
_STAGES = {"pool": "opaque hashes", "chains": "token chains", "queue": "links and order"}
_STEPS = {"pool": 115, "chains": 115, "queue": 40}
_STEPS_OF_MANAGERS = 95


def manager_kind(layout: str) -> str:
    """The kind of the runs of a layout."""
    return _MANAGER + layout


def layout_of(kind: str) -> str | None:
    """The layout that runs of this kind drive; None at other levels."""
    return kind.removeprefix(_MANAGER) if kind.startswith(_MANAGER) else None


def level_of(kind: str) -> str:
    """The level that the runs belong to."""
    if layout_of(kind) is not None:
        return "manager"
    return "queue" if kind == "queue" else "pool"


def stage_of(kind: str) -> str:
    """What a stage of this kind is called, before the name of its driver."""
    return layout_of(kind) or _STAGES[kind]


def steps_per_run(kind: str) -> int:
    """About how many commands one run of the plain driver gives."""
    return _STEPS.get(kind, _STEPS_OF_MANAGERS)
