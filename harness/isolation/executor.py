"""What runs jobs over a context: `Isolation`, `InProcess`, or the worker that we are in.

`InProcess` runs jobs in this very process: for debuggers, for speed, and for systems without
fork(). There nothing is limited: a target that hangs, dies or eats memory takes Poolproof with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from poolproof.harness.isolation.beacon import Beacon
from poolproof.harness.isolation.outcome import Died, Finished, ImporterError, Outcome
from poolproof.harness.isolation.wire import Job, failure

__all__ = ["Executor", "InProcess", "InWorker"]


A = TypeVar("A")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)
R = TypeVar("R")


class Executor(Protocol[C_co]):
    """Runs jobs `job(context, argument, beacon)`; each ends in an `Outcome`."""

    def map(
        self, job: Job[C_co, A, R], arguments: Iterable[A], *, patience: float = 1.0
    ) -> Iterator[Outcome[R]]:
        """The outcome for each argument, in order; each call may take `patience` time limits."""
        ...

    def serve(
        self, job: Job[C_co, A, R], *, call_timeout_s: float | None = None
    ) -> AbstractContextManager[Callable[[A], Outcome[R]]]:
        """Many calls of one job. `call_timeout_s` can shorten the time limit of each.

        The next call finds what one call leaves behind in the context.
        """
        ...


class InWorker(Generic[C]):
    """Runs jobs in the worker that we are in already, under the beacon that is watched already.

    Errors of a job are raised here, and a job that kills its worker kills this one.
    """

    def __init__(self, context: C, beacon: Beacon) -> None:
        self._context = context
        self._beacon = beacon

    def map(
        self,
        job: Job[C, A, R],
        arguments: Iterable[A],
        *,
        patience: float = 1.0,  # noqa: ARG002 - the worker's own limit holds
    ) -> Iterator[Outcome[R]]:
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


class InProcess(Generic[C]):
    """An `Executor` without any isolation."""

    statement = "in Poolproof's own process, no limits"
    workers = 1

    def __init__(self, prepare: Callable[[], C]) -> None:
        self._prepare = prepare
        self._context: list[C] = []

    def __enter__(self) -> InProcess[C]:
        try:
            self._context = [self._prepare()]
        except SystemExit as error:
            raise ImporterError(Died(status=_status(error))) from error
        except Exception as error:
            raise ImporterError(failure(error)) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the context."""
        self._context = []

    def map(
        self,
        job: Job[C, A, R],
        arguments: Iterable[A],
        *,
        patience: float = 1.0,  # noqa: ARG002 - no time limit is kept here
    ) -> Iterator[Outcome[R]]:
        """The outcome for each argument, in order."""
        for _, outcome in self.as_completed(job, arguments):
            yield outcome

    def as_completed(
        self, job: Job[C, A, R], arguments: Iterable[A]
    ) -> Iterator[tuple[int, Outcome[R]]]:
        """Like `map`, each with the position of its argument."""
        with self.serve(job) as server:
            for index, argument in enumerate(arguments):
                yield index, server(argument)

    def serve(
        self,
        job: Job[C, A, R],
        *,
        call_timeout_s: float | None = None,  # noqa: ARG002 - nothing can keep it here
    ) -> _Server[C, A, R]:
        """`server(argument)` is the outcome; the time limit is not kept."""
        if not self._context:
            raise RuntimeError("the isolation is not entered; use it in a `with` statement")
        return _Server(self._context[0], job)


class _Server(Generic[C, A, R]):
    def __init__(self, context: C, job: Job[C, A, R]) -> None:
        self._context = context
        self._job = job
        self._beacon = Beacon(memoryview(bytearray(64)).cast("Q"))

    def __call__(self, argument: A) -> Outcome[R]:
        self._beacon.begin()
        try:
            return Finished(self._job(self._context, argument, self._beacon))
        except SystemExit as error:
            return Died(
                status=_status(error),
                progress=self._beacon.progress,
                mark=self._beacon.last_mark,
            )
        except Exception as error:
            return failure(error)

    def __enter__(self) -> _Server[C, A, R]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Nothing runs between two calls."""


def _status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    return error.code & 0xFF if isinstance(error.code, int) else 1
