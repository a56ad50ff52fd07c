"""Several workers that each answer many calls and keep what they know in between.

`Isolation.map` gives each argument a worker of its own, a `Server` is one worker whose caller waits
for it; a crew is for campaigns, whose workers learn. Nothing is queued: a worker has one call at a
time, and who is idle is the caller's to ask.
"""

from __future__ import annotations

import contextlib
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

from poolproof.harness.isolation.importer import Importer, WorkerHandle
from poolproof.harness.isolation.limits import Limits
from poolproof.harness.isolation.outcome import Lost, Outcome
from poolproof.harness.isolation.wire import Job, request

__all__ = ["Crew"]

A = TypeVar("A")
R = TypeVar("R")


class Crew(Generic[A, R]):
    """Workers by number, made when they are first given something; a lost one is replaced so.

    Made by `Isolation.crew`, and over when the isolation is left.
    """

    def __init__(self, importer: Importer, job: Job[Any, A, R], limits: Limits) -> None:
        self._importer = importer
        self._job = job
        self._limits = limits
        self._idle: dict[int, WorkerHandle] = {}
        self._busy: dict[int, WorkerHandle] = {}

    def give(self, number: int, argument: A) -> bool:
        """Hand a call to an idle worker; whether the worker is a new one, that knows nothing."""
        assert number not in self._busy, f"worker {number} is busy"
        call = request(self._job, argument)
        self._importer.hear()
        worker = self._idle.pop(number, None)
        if worker is not None and worker.verdict is not None:
            # It died between two calls, of which neither is guilty.
            worker.close()
            worker = None
        is_new = worker is None
        if worker is None:
            worker = self._importer.fork(self._limits.call_timeout_s, self._limits.memory_mib)
        # One that died as soon as it was born has its verdict on its way.
        with contextlib.suppress(OSError):
            worker.line.send_bytes(call)
        self._busy[number] = worker
        return is_new

    def is_fresh(self, number: int) -> bool:
        """Whether the next call of this number goes to a worker that knows nothing yet."""
        self._importer.hear()
        worker = self._idle.get(number)
        return worker is None or worker.verdict is not None

    def wait(self, timeout_s: float | None = None) -> list[tuple[int, Outcome[R]]]:
        """The outcomes that have come, at least one unless the time is over or nobody works."""
        workers = self._busy
        if not workers:
            return []
        if all(worker.verdict is None for worker in workers.values()):
            lines = [worker.line for worker in workers.values()]
            ready = wait([self._importer.control, *lines], timeout_s)
            if self._importer.control in ready:
                self._importer.hear()
        found: list[tuple[int, Outcome[R]]] = []
        for number, worker in list(workers.items()):
            if worker.verdict is None and not worker.line.poll():
                continue
            outcome = self._importer.outcome_of(worker)
            del workers[number]
            if isinstance(outcome, Lost):
                worker.close()
            else:
                self._idle[number] = worker
            found.append((number, outcome))
        return found

    def close(self) -> None:
        """Kill all workers."""
        for worker in (*self._idle.values(), *self._busy.values()):
            self._importer.kill(worker)
        self._idle.clear()
        self._busy.clear()
