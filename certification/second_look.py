"""Runs once more what hung, before anybody is blamed for it.

The watchman counts only the time that a worker had for itself, and yet a machine can stand still
in ways that nobody tells it: a virtual machine that is moved, memory that comes back from a disk.
A run is deterministic. If it hangs again, the target hangs; if it ends, its result counts, and the
certification says that something stood still and concludes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from poolproof.harness.isolation import Executor, Hung, Job, Outcome
from poolproof.harness.lost_run import Again

__all__ = ["SecondLook"]

A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R")


class SecondLook(Generic[C]):
    """An `Executor` over another one that runs a hung job twice.

    `stood_still` has a sentence for each job that hung and ended when it was run again.
    """

    def __init__(self, executor: Executor[C]) -> None:
        self._executor = executor
        self.stood_still: list[str] = []

    def map(self, job: Job[C, A, R], arguments: Iterable[A]) -> Iterator[Outcome[R]]:
        """The outcome for each argument, in order; of one that hung, the second."""
        given = list(arguments)
        for argument, outcome in zip(given, self._executor.map(job, given), strict=True):
            # A run that is repeated for its trace has been looked at twice by then.
            if not isinstance(outcome, Hung) or isinstance(argument, Again):
                yield outcome
                continue
            (again,) = self._executor.map(job, [argument])
            if not isinstance(again, Hung):
                self.stood_still.append(outcome.sentence("a command"))
            yield again

    def serve(
        self, job: Job[C, A, R], *, call_timeout_s: float | None = None
    ) -> AbstractContextManager[Callable[[A], Outcome[R]]]:
        """As the executor below: its candidates are known to hang."""
        return self._executor.serve(job, call_timeout_s=call_timeout_s)
