"""The messages between the coordinator's process and the one that speaks to Ray.

Worker numbers are never used again: the replacement of a lost worker gets a new one, so answers and
orders of the two cannot be confused.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Answered",
    "Connected",
    "Give",
    "Gone",
    "LinkEvent",
    "Open",
    "Ready",
    "Refused",
    "WorkerLost",
]


@dataclass(frozen=True, slots=True)
class Open:
    """The first message to the link: the cluster, each host's setup, the number of workers wanted.

    None means one per CPU of the cluster, also when it grows.
    """

    address: str
    setup: tuple[int, bytes]
    num_workers: int | None


@dataclass(frozen=True, slots=True)
class Give:
    """Gives the link an order, pickled, for a worker that is ready."""

    worker: int
    order: bytes


@dataclass(frozen=True, slots=True)
class Connected:
    """The cluster answers and has so many processors; said again every few seconds."""

    num_processors: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has loaded the target."""

    worker: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of a worker's order: a HostAnswer, pickled."""

    worker: int
    answer: bytes


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker is gone, with the order that it had, if any; another will take its place."""

    worker: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A worker cannot work on its machine. It keeps its place, so that no other is put there."""

    machine: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The cluster cannot be reached or has ended; the last event."""

    sentence: str


LinkEvent = Connected | Ready | Answered | WorkerLost | Refused | Gone
