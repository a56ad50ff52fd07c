"""The caller's handle on the importer process: start it, order workers from it, close it.

It schedules nothing: which worker answers which call is decided in `isolation.py`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from poolproof.harness.isolation.beacon import Beacon, BeaconArena
from poolproof.harness.isolation.child_process import (
    MOST_OUTPUT_BYTES,
    become_child,
    fork_process,
    kill_family,
    kill_orphans,
    open_output,
    print_stack,
    read_tail,
)
from poolproof.harness.isolation.limits import Limits, memory_in_use_mib
from poolproof.harness.isolation.outcome import (
    Died,
    Failed,
    Hung,
    ImporterError,
    Lost,
    OutOfMemory,
)
from poolproof.harness.isolation.watchman import (
    POLL_S,
    Ended,
    Fork,
    Kill,
    Ready,
    import_and_watch,
)
from poolproof.harness.isolation.worker import leave_as_python_does

__all__ = ["Importer", "WorkerHandle"]

Verdict = Hung | OutOfMemory | Died | Failed


class WorkerHandle:
    """One worker, as its caller sees it: a line, a beacon, its output and, at last, a verdict."""

    def __init__(self, slot: int, line: Connection[bytes, bytes], beacon: Beacon) -> None:
        self.slot = slot
        self.line = line
        self.beacon = beacon
        self.output = open_output()
        self.verdict: Verdict | None = None

    def lost(self) -> Verdict:
        """What became of the call that the worker had when it was lost."""
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
        """Let go of the worker; an idle one then ends by itself."""
        self.line.close()
        self.output.close()


class Importer:
    """The process that imports the target and from which workers fork.

    The constructor returns once the import is done. Raises ImporterError when the import raises,
    ends the process or breaks a limit; the same later, when the importer itself is lost.
    """

    def __init__(self, prepare: Callable[[], Any], limits: Limits) -> None:
        self._limits = limits
        self._arena = BeaconArena()
        self._free_slots = list(reversed(range(BeaconArena.NUM_SLOTS)))
        self._workers: dict[int, WorkerHandle] = {}
        self._output = open_output()
        self._is_ready = False
        self.control, other_control = Pipe(duplex=True)
        self._descriptors, other_descriptors = socket.socketpair()
        self._pid = self._start(prepare, other_control, other_descriptors)
        other_control.close()
        other_descriptors.close()
        try:
            self._await_import()
        except BaseException:
            self.close()
            raise

    def _start(
        self, prepare: Callable[[], Any], control: Connection[Any, Any], descriptors: socket.socket
    ) -> int:
        for stream in (sys.stdout, sys.stderr):
            # Or else both processes write what was buffered. Without a console they are None.
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        parent = os.getpid()
        pid = fork_process()
        if pid:
            return pid
        try:  # pragma: no cover - coverage follows a child only into what it calls
            become_child(self._output.fileno(), parent)
            self.control.close()
            self._descriptors.close()
            import_and_watch(prepare, control, descriptors, self._arena)
        except BaseException as error:  # pragma: no cover - in the child, see above
            leave_as_python_does(error)

    def _await_import(self) -> None:
        limits = self._limits
        waited_s, looked_at = 0.0, time.monotonic()
        while not self.control.poll(POLL_S):
            now = time.monotonic()
            waited_s += min(now - looked_at, 4 * POLL_S)
            looked_at = now
            if os.fstat(self._output.fileno()).st_size > MOST_OUTPUT_BYTES:
                os.ftruncate(self._output.fileno(), 0)
            verdict: Hung | OutOfMemory | None = None
            if waited_s >= limits.import_timeout_s:
                verdict = Hung(seconds=limits.import_timeout_s)
            elif memory_in_use_mib(self._pid) > limits.import_memory_mib:
                verdict = OutOfMemory(mib=limits.import_memory_mib)
            if verdict is not None:
                print_stack(self._pid, self._output.fileno())
                raise ImporterError(replace(verdict, output_tail=read_tail(self._output)))
        message = self._receive()
        if isinstance(message, Failed):
            raise ImporterError(message)
        assert isinstance(message, Ready)
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
            self._tell(Fork(slot, call_timeout_s, memory_mib))
            socket.send_fds(
                self._descriptors, [b"."], [other_line.fileno(), worker.output.fileno()]
            )
        except OSError:
            raise self._gone() from None
        finally:
            other_line.close()
        return worker

    def kill(self, worker: WorkerHandle) -> None:
        """End a worker whatever it does; its handle is closed."""
        worker.close()
        if worker.verdict is None:
            with contextlib.suppress(OSError):
                self._tell(Kill(worker.slot))

    def _tell(self, order: Fork | Kill) -> None:
        # Not `send`: a broken pipe's traceback would hold its buffer and a view of it, and a
        # collector that meets the two in a cycle complains (CPython's BytesIO cannot be closed
        # while a view of it is left).
        self.control.send_bytes(pickle.dumps(order))

    def hear(self) -> None:
        """Take in what the watchman has said so far, without waiting."""
        while self.control.poll():
            message = self._receive()
            assert isinstance(message, Ended)
            self._workers.pop(message.slot).verdict = message.verdict
            self._free_slots.append(message.slot)

    def await_verdict(self, worker: WorkerHandle) -> None:
        """Wait until the watchman has said what became of a worker."""
        while worker.verdict is None:
            wait([self.control])
            self.hear()

    def _receive(self) -> Any:
        try:
            return self.control.recv()
        except (EOFError, OSError):
            raise self._gone() from None

    def _gone(self) -> ImporterError:
        """The importer has closed its line; why, is its exit status."""
        status = self._reap(patience_s=2.0)
        return ImporterError(Died(status=status, output_tail=read_tail(self._output)))

    def _reap(self, patience_s: float) -> int:
        """Wait for the importer to end, not for ever; the status as in `Died`."""
        pid, self._pid = self._pid, 0
        until = time.monotonic() + patience_s
        try:
            while time.monotonic() < until:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    kill_orphans(pid)
                    return Died.status_of(status)
                time.sleep(0.002)
            kill_family(pid)
            return Died.status_of(os.waitpid(pid, 0)[1])
        except ChildProcessError:
            # The caller's process ignores SIGCHLD, so that nobody can know.
            return 0

    def close(self) -> None:
        """Kill the workers and the importer, and wait for them; may be called again."""
        self.control.close()
        self._descriptors.close()
        if self._pid:
            # In the middle of an import it would not notice that the line is closed.
            self._reap(patience_s=5.0 if self._is_ready else 0.0)
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._output.close()
