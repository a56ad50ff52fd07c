"""The process that runs the target for one cluster worker: isolation, one child, black box.

It knows nothing of Ray: setup and orders come through a line, answers go back, all of them pickled.
A crash of the target costs a child of this process and is reported as a lost worker with its tape.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.fuzz.cluster.companion import line_to_parent
from poolproof.fuzz.messages import MESSAGE_VERSION, WorkerReport
from poolproof.fuzz.subject import LoadedTarget
from poolproof.fuzz.workers import LocalWorkers, LostWorker, Workers
from poolproof.harness.isolation import Failed, ImporterError, Isolation, Limits

__all__ = ["HostAnswer", "HostSetup", "Hosting", "Refusal", "main"]


@dataclass(frozen=True, slots=True)
class HostSetup:
    """What a host needs to know before its first order.

    `prepare` loads the target; `folder` is where the coordinator was started, and where relative
    paths are looked up if the host's machine has it.
    """

    prepare: Callable[[], LoadedTarget]
    limits: Limits
    folder: str

    def packed(self) -> tuple[int, bytes]:
        """Pack with the version first: what another version wrote is not unpickled."""
        return MESSAGE_VERSION, pickle.dumps(self)


@dataclass(frozen=True, slots=True)
class Hosting:
    """The host has loaded the target and waits for orders. `machine` is where."""

    machine: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The host cannot work, and why; a bug of ours if `is_ours`."""

    machine: str
    sentence: str
    is_ours: bool = False


HostAnswer = WorkerReport | LostWorker | Refusal
"""What an order brings."""


def main(descriptor: int) -> None:
    """Serve until the line ends."""
    with line_to_parent(descriptor) as line:
        version, packed = line.recv()
        if version != MESSAGE_VERSION:
            _send(line, _refusal(_other_version(version)))
            return
        try:
            setup: HostSetup = pickle.loads(packed)  # noqa: S301 -- from the coordinator
            with contextlib.suppress(OSError):
                os.chdir(setup.folder)
            with Isolation(setup.prepare, setup.limits) as isolation:
                _serve(line, isolation)
        except ImporterError as error:
            _send(line, _refusal(_why_not_imported(error)))
        except Exception as error:
            _send(line, _refusal(f"{type(error).__name__}: {error}"))


def _serve(line: Connection[Any, Any], isolation: Isolation[Any]) -> None:
    _send(line, Hosting(os.uname().nodename))
    workers = LocalWorkers(isolation, 1)
    try:
        while True:
            answer = _carried_out(line, workers, pickle.loads(line.recv_bytes()))  # noqa: S301 -- the same
            if answer is None:
                return
            _send(line, answer)
    finally:
        workers.close()


def _carried_out(line: Connection[Any, Any], workers: Workers, order: Any) -> HostAnswer | None:
    """The result of the order; None if the coordinator no longer waits for it."""
    if workers.is_fresh(0) and not order.begins:
        return LostWorker(None, sentence="the worker died between two orders")
    workers.give(0, order)
    while True:
        try:
            arrivals = workers.wait(0.5)
        except TargetError as error:
            return _refusal(str(error))
        except RuntimeError as error:
            return _refusal(str(error), is_ours=True)
        if arrivals:
            return arrivals[0].result
        if line.poll():
            # Nothing is sent to a host at work: this is the end of the line.
            return None


def _send(line: Connection[Any, Any], answer: Hosting | HostAnswer) -> None:
    line.send_bytes(pickle.dumps(answer))


def _refusal(sentence: str, *, is_ours: bool = False) -> Refusal:
    return Refusal(os.uname().nodename, sentence, is_ours)


def _other_version(version: int) -> str:
    return (
        f"the coordinator speaks campaign messages of version {version}, the Poolproof here "
        f"version {MESSAGE_VERSION}; install the same Poolproof on every machine"
    )


def _why_not_imported(error: ImporterError) -> str:
    outcome = error.outcome
    return outcome.message if isinstance(outcome, Failed) else str(error)
