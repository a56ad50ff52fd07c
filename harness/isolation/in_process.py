"""Jobs in this very process: for debuggers, for speed, and for systems without fork().

Nothing is limited: a target that hangs, dies or eats memory takes Poolproof with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

from poolproof.harness.isolation.beacon import Beacon
from poolproof.harness.isolation.outcome import Died, Finished, ImporterError, Outcome
from poolproof.harness.isolation.wire import Job, failure

__all__ = ["InProcess"]

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")


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
        """Let go of the context."""
        self._context = []

    def map(self, job: Job[C, A, R], arguments: Iterable[A]) -> Iterator[Outcome[R]]:
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
