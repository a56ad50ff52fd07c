"""What the coordinator's process and the one that speaks to Ray tell each other.

Workers have numbers that are never used again: whoever replaces a lost worker is another one, so
nobody can mistake an answer or an order of the one for the other's.
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
    """To the link, first: the cluster, what each host is told, and how many workers are wanted.

    None: as many as the cluster has processors, also when it grows.
    """

    address: str
    setup: tuple[int, bytes]
    num_workers: int | None


@dataclass(frozen=True, slots=True)
class Give:
    """To the link: an order, pickled, for a worker that is ready."""

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
    """What a worker's order brought: a HostAnswer, pickled."""

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
