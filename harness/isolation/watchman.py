"""The importer's side: imports the target, then forks workers, watches, kills and reaps them.

The caller may be busy with a result for any length of time; the limits still hold, because the
process that imported the target is the one that watches. A worker's time runs only while a call
is running and the watchman itself is awake, so no worker is blamed for a suspended or overloaded
machine.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from poolproof.harness.garbage import rarely_collected
from poolproof.harness.isolation.beacon import Beacon, BeaconArena
from poolproof.harness.isolation.child_process import (
    MOST_OUTPUT_BYTES,
    become_child,
    fork_process,
    kill_family,
    kill_session,
    print_stack,
)
from poolproof.harness.isolation.limits import (
    MOST_PROCESSES,
    is_alive,
    memory_in_use_mib,
    own_time_s,
    waited_for_processor_s,
)
from poolproof.harness.isolation.outcome import (
    Died,
    Forked,
    Hung,
    OutOfMemory,
    TooManyProcesses,
    Verdict,
)
from poolproof.harness.isolation.process_tree import (
    adopt_orphans,
    children_of,
    descendants_of,
    end_children,
)
from poolproof.harness.isolation.wire import failure
from poolproof.harness.isolation.worker import leave_as_python_does, work

__all__ = ["POLL_S", "ForkWorker", "Kill", "TargetImported", "WorkerEnded", "import_and_watch"]

POLL_S = 0.05

MOST_DEAD_PROCESSES = 16 * MOST_PROCESSES
"""Children that ended and were never waited for; they cost the machine a number each."""


@dataclass(frozen=True, slots=True)
class TargetImported:
    """The target is imported."""


@dataclass(frozen=True, slots=True)
class ForkWorker:
    """Asks the watchman for a new worker; its line and its output follow as descriptors."""

    slot: int
    call_timeout_s: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Tells the watchman that this worker is not needed any more."""

    slot: int


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker exists no more."""

    slot: int
    verdict: Verdict


def import_and_watch(
    prepare: Callable[[], Any],
    control: Connection[Any, Any],
    descriptors: socket.socket,
    arena: BeaconArena,
) -> NoReturn:
    """Run `prepare`, then serve the caller until it closes the line. Does not return."""
    try:
        with rarely_collected():
            context = prepare()
    except Exception as error:  # pragma: no cover - killed before coverage has saved anything
        control.send(failure(error))
        os._exit(1)
    except BaseException as error:
        leave_as_python_does(error)
    # What the import left behind lives for ever: no worker's collector needs to look at it, nor
    # copy its pages by doing so.
    gc.collect()
    gc.freeze()
    control.send(TargetImported())
    try:
        _Watchman(context, control, descriptors, arena).serve()
    except (EOFError, OSError):
        # The caller is gone.
        os._exit(1)
    os._exit(0)


@dataclass(slots=True)
class _Child:
    """A worker as the watchman sees it: how far it was, and how long it has been there."""

    pid: int
    order: ForkWorker
    beacon: Beacon
    output: int
    seen: tuple[int, int] = (0, 0)
    still_s: float = 0.0
    waited_s: float = 0.0


class _Watchman:
    def __init__(
        self,
        context: Any,
        control: Connection[Any, Any],
        descriptors: socket.socket,
        arena: BeaconArena,
    ) -> None:
        self._context = context
        self._control = control
        self._descriptors = descriptors
        self._arena = arena
        self._children: dict[int, _Child] = {}
        self._memory_of_import_mib = memory_in_use_mib(os.getpid())
        # What an engine's import started is needed as long as the engine is.
        self._of_import = frozenset(children_of(os.getpid()))
        adopt_orphans()
        self._bell, self._rope = os.pipe()
        for end in (self._bell, self._rope):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, _ignore)
        signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until the caller closes the line; then leave no process alive."""
        try:
            looked_at = time.monotonic()
            while True:
                rung = wait([self._control, self._bell], POLL_S if self._children else None)
                if self._bell in rung:
                    os.read(self._bell, 4096)
                if self._control in rung:
                    try:
                        self._obey(self._control.recv())
                    except EOFError:
                        return
                now = time.monotonic()
                # Judged by what this process itself was awake for.
                awake_s = min(now - looked_at, 4 * POLL_S)
                looked_at = now
                for child in list(self._children.values()):
                    self._look_at(child, awake_s)
        finally:
            for child in self._children.values():
                kill_family(child.pid)
                os.waitpid(child.pid, 0)
            end_children()

    def _obey(self, order: ForkWorker | Kill) -> None:
        if isinstance(order, ForkWorker):
            self._fork(order)
        elif order.slot in self._children:
            self._lose(self._children[order.slot], None)

    def _fork(self, order: ForkWorker) -> None:
        _, received, _, _ = socket.recv_fds(self._descriptors, 1, 2)
        line, output = received
        beacon = self._arena[order.slot]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        parent = os.getpid()
        try:
            pid = fork_process()
        except OSError as error:
            self._control.send(WorkerEnded(order.slot, failure(error)))
            os.close(line)
            os.close(output)
            return
        if pid == 0:
            # Coverage follows a child only into what it calls.
            self._be_worker(order, line, output, beacon, parent)  # pragma: no cover - see above
        os.close(line)
        self._children[order.slot] = _Child(pid, order, beacon, output)

    def _be_worker(
        self, order: ForkWorker, line: int, output: int, beacon: Beacon, parent: int
    ) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become_child(output, parent)
            # Until it ends, what it started is found below it, and is its own.
            adopt_orphans()
            self._control.close()
            self._descriptors.close()
            os.close(self._bell)
            os.close(self._rope)
            for sibling in self._children.values():
                os.close(sibling.output)
            work(self._context, Connection(line), beacon, output, order.memory_mib)
        except BaseException as error:
            leave_as_python_does(error)

    def _look_at(self, child: _Child, awake_s: float) -> None:
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid:
            kill_session(pid)
            self._forget(child, Died(status=Died.status_of(status)))
            return
        if os.fstat(child.output).st_size > MOST_OUTPUT_BYTES:
            os.ftruncate(child.output, 0)
        waited_s = waited_for_processor_s(child.pid)
        own_s = own_time_s(awake_s, waited_s - child.waited_s)
        child.waited_s = waited_s
        seen = (child.beacon.calls, child.beacon.progress)
        if not child.beacon.busy:
            child.still_s = 0.0
            return
        child.still_s = child.still_s + own_s if seen == child.seen else 0.0
        child.seen = seen
        child.beacon.note_still(child.still_s)
        if child.beacon.came_back_twice:
            self._lose(child, Forked())
            return
        if _too_many_below(child.pid):
            self._lose(child, TooManyProcesses(number=MOST_PROCESSES))
            return
        limit_mib = child.order.memory_mib
        if memory_in_use_mib(child.pid) > self._memory_of_import_mib + limit_mib:
            self._lose(child, OutOfMemory(mib=limit_mib))
        elif child.still_s >= child.order.call_timeout_s:
            self._lose(child, Hung(seconds=child.order.call_timeout_s))

    def _lose(self, child: _Child, verdict: Verdict | None) -> None:
        """Kill a worker: for the verdict, or because it is not needed any more."""
        if isinstance(verdict, Hung | OutOfMemory):
            # Not of who multiplies: each moment makes it more.
            print_stack(child.pid, child.output)
        kill_family(child.pid)
        _, status = os.waitpid(child.pid, 0)
        self._forget(child, verdict or Died(status=Died.status_of(status)))

    def _forget(self, child: _Child, verdict: Verdict) -> None:
        os.close(child.output)
        del self._children[child.order.slot]
        # What was below it has been adopted: by nobody else, for living workers keep their own.
        workers = {other.pid for other in self._children.values()}
        end_children(but=self._of_import | workers)
        self._control.send(WorkerEnded(child.order.slot, verdict))


def _too_many_below(pid: int) -> bool:
    """Whether too many processes live below a worker, or far too many have died there."""
    below = descendants_of(pid, MOST_DEAD_PROCESSES)
    if len(below) <= MOST_PROCESSES:
        return False
    return len(below) > MOST_DEAD_PROCESSES or sum(map(is_alive, below)) > MOST_PROCESSES


def _ignore(*_: object) -> None:
    """A handler, for with SIG_DFL or SIG_IGN the bell would not ring."""
