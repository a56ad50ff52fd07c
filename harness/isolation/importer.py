"""The caller's handle on the importer process: start it, order workers from it, close it.

It schedules nothing: which worker answers which call is decided in `isolation.py`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from poolproof.harness.isolation.beacon import Beacon, BeaconArena
from poolproof.harness.isolation.child_process import (
    MOST_OUTPUT_BYTES,
    become_child,
    open_output,
    print_stack,
    read_tail,
)
from poolproof.harness.isolation.keeper import Keeper
from poolproof.harness.isolation.limits import MOST_PROCESSES, Limits, memory_in_use_mib
from poolproof.harness.isolation.outcome import (
    Died,
    Failed,
    Finished,
    Forked,
    Hung,
    ImporterError,
    Lost,
    Outcome,
    OutOfMemory,
    TooManyProcesses,
    Unwatched,
    Verdict,
)
from poolproof.harness.isolation.process_tree import descendants_of
from poolproof.harness.isolation.watchman import (
    POLL_S,
    ForkWorker,
    Kill,
    TargetImported,
    WorkerEnded,
    import_and_watch,
)
from poolproof.harness.isolation.wire import read_answer
from poolproof.harness.isolation.worker import leave_as_python_does

__all__ = ["Importer", "WorkerHandle"]


class WorkerHandle:
    """One worker, as its caller sees it: a line, a beacon, its output and, at last, a verdict."""

    def __init__(self, slot: int, line: Connection[bytes, bytes], beacon: Beacon) -> None:
        self.slot = slot
        self.line = line
        self.beacon = beacon
        self.output = open_output()
        self.verdict: Verdict | None = None

    def lost(self) -> Verdict:
        """What happened to the call that the worker had when it was lost."""
        assert self.verdict is not None
        if not isinstance(self.verdict, Lost):
            return self.verdict
        return replace(
            self.verdict,
            progress=self.beacon.progress,
            mark=self.beacon.last_mark,
            output_tail=read_tail(self.output),
        )

    def close(self) -> None:
        """Release the worker; an idle one then ends by itself."""
        self.line.close()
        self.output.close()


class Importer:
    """The process that imports the target and from which workers fork.

    The constructor returns once the import is done. Raises ImporterError when the import raises,
    ends the process or breaks a limit, and later, if the importer itself is lost while nothing
    runs. A call that was running learns of it, and the target is imported again.
    """

    def __init__(self, prepare: Callable[[], Any], limits: Limits) -> None:
        self._prepare = prepare
        self._limits = limits
        self._arena = BeaconArena()
        self._free_slots = list(reversed(range(BeaconArena.NUM_SLOTS)))
        self._workers: dict[int, WorkerHandle] = {}
        self._begin()

    def _begin(self) -> None:
        self._output = open_output()
        self._is_ready = False
        self.control, other_control = Pipe(duplex=True)
        self._descriptors, other_descriptors = socket.socketpair()
        self._keeper = self._start(other_control, other_descriptors)
        other_control.close()
        other_descriptors.close()
        try:
            self._await_import()
        except BaseException:
            self.close()
            raise

    def _start(self, control: Connection[Any, Any], descriptors: socket.socket) -> Keeper:
        for stream in (sys.stdout, sys.stderr):
            # Or else both processes write what was buffered. Without a console they are None.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()

        def work(keeper: int) -> NoReturn:
            try:
                become_child(self._output.fileno(), keeper)
                self.control.close()
                self._descriptors.close()
                import_and_watch(self._prepare, control, descriptors, self._arena)
            except BaseException as error:
                leave_as_python_does(error)

        lines = (control, descriptors, self.control, self._descriptors)
        return Keeper(work, self._output.fileno(), tuple(line.fileno() for line in lines))

    def _await_import(self) -> None:
        limits = self._limits
        waited_s, looked_at = 0.0, time.monotonic()
        while not self.control.poll(POLL_S):
            now = time.monotonic()
            waited_s += min(now - looked_at, 4 * POLL_S)
            looked_at = now
            if os.fstat(self._output.fileno()).st_size > MOST_OUTPUT_BYTES:
                os.ftruncate(self._output.fileno(), 0)
            verdict: Hung | OutOfMemory | TooManyProcesses | None = None
            pid = self._keeper.pid_below
            if waited_s >= limits.import_timeout_s:
                verdict = Hung(seconds=limits.import_timeout_s)
            elif memory_in_use_mib(pid) > limits.import_memory_mib:
                verdict = OutOfMemory(mib=limits.import_memory_mib)
            elif len(descendants_of(pid, MOST_PROCESSES)) > MOST_PROCESSES:
                verdict = TooManyProcesses(number=MOST_PROCESSES)
            if isinstance(verdict, Hung | OutOfMemory):
                print_stack(pid, self._output.fileno())
            if verdict is not None:
                raise ImporterError(replace(verdict, output_tail=read_tail(self._output)))
        try:
            message = self.control.recv()
        except (EOFError, OSError):
            raise ImporterError(self._how_it_ended()) from None
        if isinstance(message, Failed):
            raise ImporterError(message)
        assert isinstance(message, TargetImported)
        self._is_ready = True

    def fork(self, call_timeout_s: float, memory_mib: int) -> WorkerHandle:
        """A new worker with these limits."""
        if not self._free_slots:
            raise RuntimeError(f"more than {BeaconArena.NUM_SLOTS} workers at once")
        slot = self._free_slots.pop()
        line, other_line = Pipe(duplex=True)
        worker = WorkerHandle(slot, line, self._arena[slot])
        worker.beacon.reset()
        self._workers[slot] = worker
        try:
            self._tell(ForkWorker(slot, call_timeout_s, memory_mib))
            socket.send_fds(
                self._descriptors, [b"."], [other_line.fileno(), worker.output.fileno()]
            )
        except OSError:
            # Nothing had been asked of it; those that were asked are told, if there are any.
            del self._workers[slot]
            self._free_slots.append(slot)
            worker.close()
            self._lose_importer()
            return self.fork(call_timeout_s, memory_mib)
        finally:
            other_line.close()
        return worker

    def outcome_of(self, worker: WorkerHandle) -> Outcome[Any]:
        """The worker's answer if it is whole, otherwise what the watchman says."""
        try:
            if worker.line.poll():
                answer = worker.line.recv_bytes()
                if not worker.beacon.came_back_twice:
                    outcome = read_answer(answer)
                    if isinstance(outcome, Finished):
                        still_s = worker.beacon.longest_still_s
                        outcome = replace(outcome, longest_still_s=still_s)
                    return outcome
                # Which of the two has answered is not known.
                self.kill(worker)
                return Forked(progress=worker.beacon.progress, mark=worker.beacon.last_mark)
        except (EOFError, OSError):
            self.await_verdict(worker)
        return worker.lost()

    def kill(self, worker: WorkerHandle) -> None:
        """End a worker whatever it is doing, and close its handle."""
        worker.close()
        if worker.verdict is None:
            with contextlib.suppress(OSError):
                self._tell(Kill(worker.slot))

    def _tell(self, order: ForkWorker | Kill) -> None:
        # Not `send`: a broken pipe's traceback would hold its buffer and a view of it, and a
        # collector that meets the two in a cycle complains (CPython's BytesIO cannot be closed
        # while a view of it is left).
        self.control.send_bytes(pickle.dumps(order))

    def hear(self) -> None:
        """Read what the watchman has said so far, without waiting."""
        while self.control.poll():
            try:
                message = self.control.recv()
            except (EOFError, OSError):
                self._lose_importer()
                return
            assert isinstance(message, WorkerEnded)
            self._workers.pop(message.slot).verdict = message.verdict
            self._free_slots.append(message.slot)

    def await_verdict(self, worker: WorkerHandle) -> None:
        """Wait until the watchman has said how a worker ended."""
        while worker.verdict is None:
            wait([self.control])
            self.hear()

    def _lose_importer(self) -> None:
        """Tell the calls that ran, and import again. Raises ImporterError if none ran."""
        died = self._how_it_ended()
        self._close_lines()
        workers, self._workers = self._workers, {}
        busy = [worker for worker in workers.values() if worker.beacon.busy]
        for slot, worker in workers.items():
            # One that had just ended its call, and whose answer is lost, did not do it.
            worker.verdict = Unwatched(status=died.status, alone=busy == [worker])
            self._free_slots.append(slot)
        if not busy:
            for worker in workers.values():
                worker.close()
            raise ImporterError(died, was_imported=True) from None
        self._begin()

    def _how_it_ended(self) -> Died:
        """Why the importer has closed its line."""
        status = self._keeper.status(patience_s=2.0)
        self._keeper.close()
        # It closed its line and went on, and was killed for it.
        known = -signal.SIGKILL if status is None else Died.status_of(status)
        return Died(status=known, output_tail=read_tail(self._output))

    def _close_lines(self) -> None:
        self.control.close()
        self._descriptors.close()
        self._output.close()

    def close(self) -> None:
        """Kill the workers and the importer, and wait for them; may be called again."""
        self.control.close()
        self._descriptors.close()
        # It ends by itself, but in the middle of an import it would not notice.
        self._keeper.status(patience_s=5.0 if self._is_ready else 0.0)
        self._keeper.close()
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._output.close()
