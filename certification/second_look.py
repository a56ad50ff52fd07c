"""Runs once more what hung, before anybody is blamed for it.

The watchman counts only the time that a worker had for itself, and yet a machine can stand still
in ways that nobody tells it: a virtual machine that is moved, memory that comes back from a disk.
A run is deterministic. If it hangs again, the target hangs; if it ends, its result counts, and the
certification says that something stood still and concludes nothing.

At the sizes of servers a call that is merely slow looks like one that hangs: a correct manager
that goes through its blocks for each block takes 8 s to admit 34,000 tokens. What hangs at such a
size is run again with `PATIENCE` time limits for each call. If it ends, and its longest call takes
`SLOW_SHARE` of the limit or more, the target is slow there and not wrong. If every call was
shorter, something stood still.

The same holds for what hangs before its first command. A first instance may compile something,
import a framework from a cold disk, or wait for a process of its own, and it pays for that once in
each worker. Such a target is slow to begin, and not wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from poolproof.certification.run_kinds import Chunk
from poolproof.harness.isolation import Executor, Finished, Hung, Job, Outcome
from poolproof.harness.lost_run import Again

__all__ = ["PATIENCE", "SLOW_SHARE", "SecondLook"]

PATIENCE = 6.0
"""How many time limits a call may take in the second run, at large sizes or as the first."""

SLOW_SHARE = 0.25
"""A call that takes so much of the limit in one run is believed to take all of it in another."""

_BEFORE_COMMANDS = 1
"""Runs are marked, which bumps the beacon, before a target is made; then each command bumps it."""

A = TypeVar("A")
C = TypeVar("C")
R = TypeVar("R")


class SecondLook(Generic[C]):
    """An `Executor` over another one that runs a hung job twice.

    `stood_still` has a sentence for each job that hung and ended when it was run again, `slow` one
    for each that needs much time at the sizes of servers, `slow_to_begin` one for each that does
    before its first command.
    """

    def __init__(self, executor: Executor[C]) -> None:
        self._executor = executor
        self.stood_still: list[str] = []
        self.slow: list[str] = []
        self.slow_to_begin: list[str] = []

    def map(
        self, job: Job[C, A, R], arguments: Iterable[A], *, patience: float = 1.0
    ) -> Iterator[Outcome[R]]:
        """The outcome for each argument, in order; of one that hung, the last."""
        given = list(arguments)
        outcomes = self._executor.map(job, given, patience=patience)
        for argument, outcome in zip(given, outcomes, strict=True):
            # A run that is repeated for its trace has been looked at by then.
            if not isinstance(outcome, Hung) or isinstance(argument, Again):
                yield outcome
                continue
            is_large = isinstance(argument, Chunk) and argument.kind.production is not None
            is_patient = is_large or outcome.progress <= _BEFORE_COMMANDS
            (again,) = self._executor.map(
                job, [argument], patience=patience * (PATIENCE if is_patient else 1.0)
            )
            if not isinstance(again, Hung):
                longest_s = again.longest_still_s if isinstance(again, Finished) else 0.0
                if not is_patient or longest_s < SLOW_SHARE * outcome.seconds:
                    self.stood_still.append(outcome.sentence("a command"))
                elif is_large:
                    self.slow.append(outcome.sentence("a command"))
                else:
                    self.slow_to_begin.append(outcome.sentence("a constructor"))
            yield again

    def serve(
        self, job: Job[C, A, R], *, call_timeout_s: float | None = None
    ) -> AbstractContextManager[Callable[[A], Outcome[R]]]:
        """As the executor below: its candidates are known to hang."""
        return self._executor.serve(job, call_timeout_s=call_timeout_s)
