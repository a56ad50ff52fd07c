"""What runs jobs over a context: `Isolation`, `InProcess`, or the worker that we are in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, Protocol, TypeVar

from poolproof.harness.isolation.beacon import Beacon
from poolproof.harness.isolation.outcome import Finished, Outcome
from poolproof.harness.isolation.wire import Job

__all__ = ["Executor", "InWorker"]

A = TypeVar("A")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
R = TypeVar("R")


class Executor(Protocol[C_co]):
    """Runs jobs `job(context, argument, beacon)`; what becomes of each is an `Outcome`."""

    def map(self, job: Job[C_co, A, R], arguments: Iterable[A]) -> Iterator[Outcome[R]]:
        """The outcome for each argument, in order."""
        ...

    def serve(
        self, job: Job[C_co, A, R], *, call_timeout_s: float | None = None
    ) -> AbstractContextManager[Callable[[A], Outcome[R]]]:
        """Many calls of one job. `call_timeout_s` can shorten the time limit of each.

        What one call leaves behind in the context the next one finds.
        """
        ...


class InWorker(Generic[C]):
    """Runs jobs in the worker that we are in already, under the beacon that is watched already.

    What a job raises is raised, and what costs the worker costs it.
    """

    def __init__(self, context: C, beacon: Beacon) -> None:
        self._context = context
        self._beacon = beacon

    def map(self, job: Job[C, A, R], arguments: Iterable[A]) -> Iterator[Outcome[R]]:
        """The outcome for each argument, in order; all are `Finished`."""
        with self.serve(job) as call:
            for argument in arguments:
                yield call(argument)

    def serve(
        self,
        job: Job[C, A, R],
        *,
        call_timeout_s: float | None = None,  # noqa: ARG002 - the worker's own limit holds
    ) -> AbstractContextManager[Callable[[A], Outcome[R]]]:
        """`call(argument)` is the outcome; the worker's own time limit holds."""

        def call(argument: A) -> Outcome[R]:
            self._beacon.bump()
            return Finished(job(self._context, argument, self._beacon))

        return nullcontext(call)
