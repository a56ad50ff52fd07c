"""The partitions of a space, each in a process of its own.

The parent only carries what one partition found for another; it holds no states. Workers ignore
Ctrl-C, which reaches all processes of a terminal at once: the parent decides when they end.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

from poolproof.exploration.breadth_first import Found, Partition, SearchLevel, Space
from poolproof.exploration.memory import peak_mib
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import ExplorationError, Scope
from poolproof.exploration.state_space import StateSpace

__all__ = ["WorkerLostError", "WorkerProcesses", "space_of"]

_PATIENCE_S = 0.5

Packed = tuple[bytes, bytes]
"""States joined, and the verb of each."""


class WorkerLostError(ExplorationError):
    """A worker ended before its work did, usually for want of memory."""


def space_of(scope: Scope, *, symmetry: bool) -> Space:
    """The orbits of a scope, or its states."""
    return OrbitSpace(scope) if symmetry else StateSpace(scope)


class WorkerProcesses:
    """`count` partitions in as many processes. A context manager; see `breadth_first.Partitions`.

    Raises WorkerLostError when one ends before it answered.
    """

    def __init__(self, scope: Scope, count: int, *, symmetry: bool = True) -> None:
        self._width = space_of(scope, symmetry=symmetry).width
        self._owners = [
            Partition(space_of(scope, symmetry=symmetry), number, count) for number in range(count)
        ]
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for number in range(count):
            here, there = multiprocessing.Pipe()
            process = multiprocessing.Process(
                target=_serve, args=(there, scope, symmetry, number, count), daemon=True
            )
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self._passing: list[list[Packed]] = [[] for _ in range(count)]
        self._peaks: list[int] = []

    def __enter__(self) -> WorkerProcesses:  # noqa: PYI034 -- Self came with Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            with suppress(OSError):  # it may be dead already
                pipe.send(("stop", None))
            process.join(_PATIENCE_S)
            # One that is in the middle of a level is not waited for.
            process.terminate()
            process.join()
            pipe.close()

    def begin(self, levels: Sequence[Iterable[bytes]]) -> None:
        for level in levels:
            parts: list[list[bytes]] = [[] for _ in self._owners]
            for state in level:
                for owner, part in zip(self._owners, parts, strict=True):
                    if owner.owns(state):
                        part.append(state)
            self._ask([("resume", b"".join(part)) for part in parts])

    def expand(self) -> SearchLevel:
        total = SearchLevel()
        self._passing = [[] for _ in self._owners]
        answers = self._ask([("expand", None)] * len(self._owners))
        # Kept, and not asked for in the end: after an interruption no answer belongs to a question.
        self._peaks = [peak for _, _, peak in answers]
        for level, leaving, _ in answers:
            total.add(level)
            for passing, packed in zip(self._passing, leaving, strict=True):
                passing.append(packed)
        return total

    def absorb(self) -> SearchLevel:
        total = SearchLevel()
        for level in self._ask([("absorb", passing) for passing in self._passing]):
            total.add(level)
        self._passing = [[] for _ in self._owners]
        return total

    def frontier(self) -> Iterator[bytes]:
        for joined in self._ask([("frontier", None)] * len(self._owners)):
            yield from _cut(joined, self._width)

    def memory_mib(self) -> int:
        return peak_mib() + sum(self._peaks)

    def _ask(self, questions: Sequence[tuple[str, Any]]) -> list[Any]:
        """Send each worker its question, then wait for all answers."""
        try:
            for pipe, question in zip(self._pipes, questions, strict=True):
                pipe.send(question)
            return [pipe.recv() for pipe in self._pipes]
        except (EOFError, OSError) as error:
            codes = [process.exitcode for process in self._processes]
            raise WorkerLostError(
                f"a worker of the exploration died (exit statuses {codes}), perhaps for want of "
                "memory; use fewer --workers, a smaller scope, or --resume to keep what is done"
            ) from error


def _serve(pipe: Connection, scope: Scope, symmetry: bool, number: int, count: int) -> None:
    """A worker: answers until it is told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    space = space_of(scope, symmetry=symmetry)
    partition = Partition(space, number, count)
    own: Found = {}
    while True:
        question, argument = pipe.recv()
        if question == "stop":
            return
        if question == "resume":
            partition.resume(_cut(argument, space.width))
            pipe.send(None)
        elif question == "expand":
            level, leaving = partition.expand()
            own, leaving[number] = leaving[number], {}
            packed = [(b"".join(found), bytes(found.values())) for found in leaving]
            pipe.send((level, packed, peak_mib()))
        elif question == "absorb":
            found = [dict(zip(_cut(s, space.width), verbs, strict=True)) for s, verbs in argument]
            pipe.send(partition.absorb([own, *found]))
            own = {}
        else:
            pipe.send(b"".join(partition.frontier))


def _cut(joined: bytes, width: int) -> Iterator[bytes]:
    return (joined[place : place + width] for place in range(0, len(joined), width))
