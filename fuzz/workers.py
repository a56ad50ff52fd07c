"""Workers as a coordinator sees them, and those of one machine: child processes, or this process.

A worker that is lost comes back as the tape that it was running, from its black box; the next order
of its number begins with a new process, which knows nothing and is told everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from poolproof.fuzz.black_box import read_black_box
from poolproof.fuzz.messages import WorkerOrder, WorkerReport
from poolproof.fuzz.worker import work
from poolproof.harness.isolation import Failed, Finished, InProcess, Isolation, Lost, Outcome
from poolproof.harness.isolation.wire import Job

__all__ = ["Arrival", "InProcessWorkers", "LocalWorkers", "LostWorker", "Workers", "report_of"]


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that did not come back.

    `outcome` says what the target did to it, and `tape` what it was running; None where the machine
    went, or the network, which says nothing about the target.
    """

    outcome: Lost | None
    tape: bytes = b""
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What came from a worker."""

    worker: int
    result: WorkerReport | LostWorker


class Workers(Protocol):
    """Workers by number. Numbers may come and go; an order says everything that a worker needs."""

    @property
    def num_workers(self) -> int: ...

    def idle(self) -> Sequence[int]:
        """The workers that wait for an order."""
        ...

    def is_fresh(self, worker: int) -> bool:
        """Whether the worker knows nothing yet, so that its order has to tell it everything."""
        ...

    def give(self, worker: int, order: WorkerOrder) -> None:
        """Hand an order to an idle worker."""
        ...

    def wait(self, timeout_s: float) -> Sequence[Arrival]:
        """What has come; nothing if the time is over first."""
        ...

    def close(self) -> None:
        """Stop all that still work."""
        ...


def report_of(outcome: Outcome[WorkerReport], tape: bytes = b"") -> WorkerReport | LostWorker:
    """What an outcome brought. Raises TargetError, and RuntimeError for a bug of ours."""
    if isinstance(outcome, Finished):
        return outcome.value
    if isinstance(outcome, Failed):
        outcome.raise_if_known()
        raise RuntimeError(f"{outcome.exception_type}: {outcome.message}\n{outcome.traceback}")
    return LostWorker(outcome, tape, outcome.sentence("a worker"))


class LocalWorkers:
    """Child processes of this machine that fork from one import of the target.

    `job` carries out an order there, as `work` does. `shared` is a folder for what they keep
    beside their memory; without one it goes when they are closed.
    """

    def __init__(
        self,
        isolation: Isolation[Any],
        num_workers: int,
        job: Job[Any, WorkerOrder, WorkerReport] = work,
        shared: Path | None = None,
    ) -> None:
        self.num_workers = num_workers
        self._crew = isolation.crew(job)
        self._idle = set(range(num_workers))
        self._stack = ExitStack()
        if shared is None:
            shared = Path(self._stack.enter_context(TemporaryDirectory(prefix="poolproof-")))
        self._folder = shared

    def idle(self) -> Sequence[int]:
        return sorted(self._idle)

    def is_fresh(self, worker: int) -> bool:
        return self._crew.is_fresh(worker)

    def give(self, worker: int, order: WorkerOrder) -> None:
        self._idle.remove(worker)
        self._crew.give(worker, replace(order, black_box=str(self._black_box(worker))))

    def wait(self, timeout_s: float) -> Sequence[Arrival]:
        arrivals = []
        for worker, outcome in self._crew.wait(timeout_s):
            tape = read_black_box(self._black_box(worker)) if isinstance(outcome, Lost) else b""
            arrivals.append(Arrival(worker, report_of(outcome, tape)))
            self._idle.add(worker)
        return arrivals

    def close(self) -> None:
        self._crew.close()
        self._stack.close()

    def _black_box(self, worker: int) -> Path:
        return self._folder / f"worker-{worker}"


class InProcessWorkers:
    """One worker in this very process: no limits, and the same result for the same seed."""

    num_workers = 1

    def __init__(self, isolation: InProcess[Any]) -> None:
        self._server = isolation.serve(work)
        self._order: WorkerOrder | None = None
        self._has_begun = False

    def idle(self) -> Sequence[int]:
        return [0] if self._order is None else []

    def is_fresh(self, worker: int) -> bool:
        del worker
        return not self._has_begun

    def give(self, worker: int, order: WorkerOrder) -> None:
        del worker
        self._order = order

    def wait(self, timeout_s: float) -> Sequence[Arrival]:
        del timeout_s
        order, self._order = self._order, None
        if order is None:
            return []
        result = report_of(self._server(order))
        self._has_begun = isinstance(result, WorkerReport)
        return [Arrival(0, result)]

    def close(self) -> None:
        """Nothing runs between two orders."""
