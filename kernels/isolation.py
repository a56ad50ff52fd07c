"""Certifies a kernel in child processes: a kernel that reads wild addresses ends its process.

Each child takes one check after another. When it dies or stays silent for too long, the example
that it was at is the finding, another child goes on with the checks that are left, and the case is
made smaller afterwards (`smaller_crash.py`). The parent needs neither torch nor triton.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.kernels.child import Work, certify_checks, run_child
from poolproof.kernels.collected import CANARIES, Collected, Example
from poolproof.kernels.job import Job, Progress
from poolproof.kernels.report import KernelReport
from poolproof.kernels.smaller_crash import smaller_crash

__all__ = ["Child", "Job", "certify_in_child", "certify_in_process"]

MOST_CRASHES = 8
START_TIMEOUT_S = 600.0


@dataclass(slots=True)
class Child:
    """One child process, the example that it announced last, and when it has to speak again."""

    process: Any
    connection: Any
    example: Example | None = None
    deadline_s: float = 0.0

    @classmethod
    def start(cls, work: Work, job: Job) -> Child:
        """A child that does `work`."""
        # Not forked: torch's threads do not survive a fork, and the parent has no torch.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=run_child, args=(there, work, job), daemon=True)
        process.start()
        there.close()
        return cls(process, here, deadline_s=time.monotonic() + START_TIMEOUT_S)

    def heard(self, message: tuple[Any, ...], case_timeout_s: float) -> None:
        """It spoke; imports and faulty kernels come without an example and have no such limit."""
        if message[0] == "case":
            self.example = Example(*message[1:])
        elif message[0] in ("result", "next", "canaries"):
            self.example = None
        limit_s = START_TIMEOUT_S if self.example is None else case_timeout_s
        self.deadline_s = time.monotonic() + limit_s

    def how_it_ended(self) -> str:
        """In words, once its connection is closed."""
        self.process.join()
        code = self.process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"the process ended with {name}"

    def stop(self) -> None:
        """End it, whatever it is at."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def certify_in_process(job: Job, progress: Progress) -> KernelReport:
    """The report of `job`, made in this process. Raises TargetError."""
    began = time.monotonic()
    collected = Collected(job)
    certify_checks(_Here(lambda message: _take(collected, message, progress), collected), job)
    progress.end()
    report = collected.report(MOST_CRASHES)
    report.seconds = time.monotonic() - began
    return report


@dataclass(frozen=True, slots=True)
class _Here:
    """A connection to this very process."""

    send: Callable[[tuple[Any, ...]], None]
    collected: Collected

    def recv(self) -> str | None:
        return self.collected.left.pop(0) if self.collected.left else None


def certify_in_child(job: Job, progress: Progress) -> KernelReport:
    """The report of `job`, made in `job.workers` child processes. Raises TargetError."""
    began = time.monotonic()
    collected = Collected(job)
    crew = _Crew(job, collected, progress)
    try:
        crew.run()
    finally:
        crew.stop()
    for name, finding in collected.findings.items():
        if not finding.example:
            progress.begin(f"a smaller case: {name}")
            collected.findings[name] = smaller_crash(job, finding, Child.start)
    progress.end()
    report = collected.report(MOST_CRASHES)
    report.seconds = time.monotonic() - began
    return report


class _Crew:
    """The children of one certification."""

    def __init__(self, job: Job, collected: Collected, progress: Progress) -> None:
        self._job, self._collected, self._progress = job, collected, progress
        self._children: list[Child] = []
        self._crashes = 0
        # With several at work, only whole checks are counted.
        self._shown = progress if job.workers == 1 else None

    def run(self) -> None:
        """Until no check is left, or too many children are lost."""
        self._start()
        while self._children:
            now = time.monotonic()
            patience_s = min(child.deadline_s for child in self._children) - now
            heard = wait([child.connection for child in self._children], max(0.0, patience_s))
            for child in [c for c in self._children if c.connection in heard]:
                self._listen(child)
            now = time.monotonic()
            silent = [c for c in self._children if c.deadline_s < now and not c.connection.poll()]
            for child in silent:
                sentence = f"no answer within {self._job.case_timeout_s:g} s"
                self._lose(child, sentence, Severity.STALL)

    def stop(self) -> None:
        """End all that are still there."""
        while self._children:
            self._children.pop().stop()

    def _start(self) -> None:
        self._children.append(Child.start(certify_checks, self._job))

    def _listen(self, child: Child) -> None:
        try:
            message = child.connection.recv()
        except EOFError:
            self._lose(child, child.how_it_ended(), Severity.CRASH)
            return
        child.heard(message, self._job.case_timeout_s)
        if message[0] == "next":
            left = self._collected.left
            child.connection.send(left.pop(0) if left else None)
        elif message[0] == "end":
            self._children.remove(child)
            child.stop()
        else:
            is_first = self._collected.head is None
            _take(self._collected, message, self._shown)
            self._note(message[0], is_first=is_first)

    def _note(self, kind: str, *, is_first: bool) -> None:
        """Once the first child has loaded the target the others may begin."""
        if kind == "head" and is_first:
            if self._job.workers > 1:
                self._progress.begin("checks", len(self._collected.left))
            for _ in range(min(self._job.workers, len(self._collected.left)) - 1):
                self._start()
        elif kind in ("result", "canaries") and self._job.workers > 1:
            self._progress.advance(1)

    def _lose(self, child: Child, sentence: str, severity: Severity) -> None:
        self._children.remove(child)
        child.stop()
        self._collected.lost(child.example, sentence, severity)
        self._crashes += 1
        if self._crashes < MOST_CRASHES:
            if self._collected.left:
                self._start()
        else:
            self._collected.left.clear()


def _take(collected: Collected, message: tuple[Any, ...], progress: Progress | None) -> None:
    """Raises TargetError when the target cannot be run."""
    kind, *rest = message
    if kind in ("begin", "advance"):
        if progress is not None:
            getattr(progress, kind)(*rest)
    elif kind == "head":
        collected.begin(*rest)
    elif kind == CANARIES:
        collected.canaries = (rest[0], rest[1])
    elif kind == "result":
        collected.take_result(*rest)
    elif kind == "error":
        raise TargetError(rest[0])
    elif kind == "bug":
        raise RuntimeError(f"in the child process: {rest[0]}")
