"""Jobs in worker processes that fork from one import of the target.

    with Isolation(load, Limits(call_timeout_s=10), workers=2) as isolation:
        for outcome in isolation.map(run_chunk, chunks):
            ...

Needs fork(); `InProcess` is an `Executor` without limits.

`Isolation.map` gives each argument a worker of its own, and a `Server` is one worker whose caller
waits for it. A `Crew` is for campaigns, whose workers learn: several that each answer many calls
and keep what they know in between. Nothing is queued: a worker of a crew has one call at a time,
and the caller asks which one is idle.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Generic, TypeVar

from poolproof.harness.isolation.importer import Importer, WorkerHandle
from poolproof.harness.isolation.limits import Limits
from poolproof.harness.isolation.outcome import Lost, Outcome, Unwatched
from poolproof.harness.isolation.wire import Job, request

__all__ = ["Crew", "Isolation", "Server"]


A = TypeVar("A")
R = TypeVar("R")


class Crew(Generic[A, R]):
    """Workers by number, created at their first call; so are the replacements of lost ones.

    Made by `Isolation.crew`; it ends with the isolation.
    """

    def __init__(self, importer: Importer, job: Job[Any, A, R], limits: Limits) -> None:
        self._importer = importer
        self._job = job
        self._limits = limits
        self._idle: dict[int, WorkerHandle] = {}
        self._busy: dict[int, WorkerHandle] = {}

    def give(self, number: int, argument: A) -> bool:
        """Hand a call to an idle worker; return whether the worker is new and knows nothing."""
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
        """The outcomes so far: at least one, unless time runs out or no worker has a call."""
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


C = TypeVar("C")


class Isolation(Generic[C]):
    """Runs jobs with the target in child processes, under limits.

    `prepare` imports the target, once, in the importer; what it returns stays there and is the
    first argument of every job. Entering raises ImporterError when the import fails. A job is a
    function of a module, `job(context, argument, beacon)`, and has to call `beacon.bump()` at
    least once in `limits.call_timeout_s`. At most `workers` of them run at once for each `map`;
    maps may be nested.
    """

    is_available = hasattr(os, "fork")

    def __init__(
        self, prepare: Callable[[], C], limits: Limits | None = None, *, workers: int = 1
    ) -> None:
        if not self.is_available:
            raise OSError("this system has no fork(); run the target in process instead")
        if workers < 1:
            raise ValueError(f"workers must be 1 or more, not {workers}")
        self.limits = limits or Limits()
        self.workers = workers
        self._prepare = prepare
        self._importer: Importer | None = None

    @property
    def statement(self) -> str:
        """How the target is isolated, as the certificate says it."""
        return f"in child processes, {self.limits.statement}"

    def __enter__(self) -> Isolation[C]:
        self._importer = Importer(self._prepare, self.limits)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all processes and wait for them."""
        if self._importer is not None:
            self._importer.close()
            self._importer = None

    def map(
        self, job: Job[C, A, R], arguments: Iterable[A], *, patience: float = 1.0
    ) -> Iterator[Outcome[R]]:
        """The outcome for each argument, in order; each argument gets a worker of its own.

        A call may take `patience` times the time limit. Closing the iterator early kills what still
        runs.
        """
        waiting: dict[int, Outcome[R]] = {}
        position = 0
        for index, outcome in self.as_completed(job, arguments, patience=patience):
            waiting[index] = outcome
            while position in waiting:
                yield waiting.pop(position)
                position += 1

    def as_completed(
        self, job: Job[C, A, R], arguments: Iterable[A], *, patience: float = 1.0
    ) -> Iterator[tuple[int, Outcome[R]]]:
        """Like `map`, in order of completion, each with the position of its argument.

        Arguments are taken only when a worker is free, so they may be endless.
        """
        importer = self._running_importer()
        call_timeout_s = self.limits.call_timeout_s * patience
        todo = enumerate(arguments)
        running: dict[WorkerHandle, tuple[int, A]] = {}
        # Ran beside others when one of them ended the watchman: try each alone to learn which.
        suspects: list[tuple[int, A]] = []
        tries_alone = False
        try:
            while True:
                while not tries_alone and len(running) < self.workers:
                    if suspects and running:
                        break
                    tries_alone = bool(suspects)
                    item = suspects.pop(0) if suspects else next(todo, None)
                    if item is None:
                        break
                    call = request(job, item[1])
                    worker = importer.fork(call_timeout_s, self.limits.memory_mib)
                    running[worker] = item
                    _send(worker, call)
                if not running:
                    return
                for worker in _that_have_news(importer, running):
                    outcome = importer.outcome_of(worker)
                    item = running.pop(worker)
                    worker.close()
                    tries_alone = False
                    if isinstance(outcome, Unwatched) and not outcome.alone:
                        suspects.append(item)
                    else:
                        yield item[0], outcome
        finally:
            for worker in running:
                importer.kill(worker)

    def serve(self, job: Job[C, A, R], *, call_timeout_s: float | None = None) -> Server[A, R]:
        """A worker that answers many calls and is replaced only when it is lost.

        For many small calls, such as the candidates of a minimiser, which may want a shorter time
        limit: `call_timeout_s` counts if it is below that of `limits`. The next call finds what one
        call leaves behind in the target's module.
        """
        limits = self.limits
        if call_timeout_s is not None:
            shorter_s = min(call_timeout_s, limits.call_timeout_s)
            limits = replace(limits, call_timeout_s=shorter_s)
        return Server(self._running_importer(), job, limits)

    def crew(self, job: Job[C, A, R]) -> Crew[A, R]:
        """Workers that keep what they know from call to call; see `Crew`."""
        return Crew(self._running_importer(), job, self.limits)

    def _running_importer(self) -> Importer:
        if self._importer is None:
            raise RuntimeError("the isolation is not entered; use it in a `with` statement")
        return self._importer


class Server(Generic[A, R]):
    """One worker for many calls: `server(argument)` is the outcome. A context manager."""

    def __init__(self, importer: Importer, job: Job[Any, A, R], limits: Limits) -> None:
        self._importer = importer
        self._job = job
        self._limits = limits
        self._worker: WorkerHandle | None = None

    def __call__(self, argument: A) -> Outcome[R]:
        """Run the job with this argument."""
        outcome = self._once(argument)
        while isinstance(outcome, Unwatched) and not outcome.alone:
            # Another process, which has ended since, may have done it.
            outcome = self._once(argument)
        return outcome

    def _once(self, argument: A) -> Outcome[R]:
        call = request(self._job, argument)
        self._importer.hear()
        if self._worker is not None and self._worker.verdict is not None:
            # It died between two calls, of which neither is guilty.
            self.close()
        if self._worker is None:
            self._worker = self._importer.fork(self._limits.call_timeout_s, self._limits.memory_mib)
        worker = self._worker
        try:
            _send(worker, call)
            while not _that_have_news(self._importer, [worker]):
                pass
            outcome: Outcome[R] = self._importer.outcome_of(worker)
        except BaseException:
            self.close()
            raise
        if isinstance(outcome, Lost) or worker.verdict is not None:
            self.close()
        return outcome

    def __enter__(self) -> Server[A, R]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the worker; the next call gets a new one."""
        if self._worker is not None:
            self._importer.kill(self._worker)
            self._worker = None


def _send(worker: WorkerHandle, call: bytes) -> None:
    try:
        worker.line.send_bytes(call)
    except OSError:
        # It died as soon as it was born; the verdict is on its way.
        return


def _that_have_news(importer: Importer, workers: Iterable[WorkerHandle]) -> list[WorkerHandle]:
    """Wait until something happens, perhaps elsewhere; the workers that answered or are lost."""
    workers = list(workers)
    if all(worker.verdict is None for worker in workers):
        ready = wait([importer.control, *(worker.line for worker in workers)])
        if importer.control in ready:
            importer.hear()
    return [worker for worker in workers if worker.verdict is not None or worker.line.poll()]
