"""The workers of a Ray cluster as a coordinator sees them. Imports no Ray (`ray_link.py` does).

A worker lost to its machine or the network is reported as lost without a culprit, and another one
with a new number takes its place; one lost to the target keeps its number, and its next order
starts afresh. A machine on which the target cannot be loaded is named and left out.
"""

from __future__ import annotations

import importlib.util
import pickle
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from poolproof.contract.errors import PoolproofError
from poolproof.contract.target import TargetError
from poolproof.fuzz.cluster.companion import Companion
from poolproof.fuzz.cluster.host import HostAnswer, HostSetup, Refusal
from poolproof.fuzz.cluster.link_messages import (
    Answered,
    Connected,
    Give,
    Gone,
    LinkEvent,
    Open,
    Ready,
    Refused,
    WorkerLost,
)
from poolproof.fuzz.messages import WorkerOrder
from poolproof.fuzz.workers import Arrival, LostWorker

__all__ = ["ClusterError", "RayWorkers", "check_reachable"]


class ClusterError(PoolproofError):
    """The cluster cannot be used; the text says why and what to do."""


_TCP_PATIENCE_S = 10.0


class RayWorkers:
    """Workers on a cluster. The constructor returns when the first of them is ready.

    `num_workers` is how many are wanted, None for one per CPU, also of machines that join
    later. `say` gets lines that a user should see. Raises ClusterError, here and in `wait`.
    """

    def __init__(
        self,
        address: str,
        setup: HostSetup,
        num_workers: int | None,
        say: Callable[[str], None],
        *,
        connect_timeout_s: float = 60.0,
        start_timeout_s: float = 180.0,
    ) -> None:
        self._address = address
        self._say = say
        self._ready: set[int] = set()
        self._busy: set[int] = set()
        self._fresh: set[int] = set()
        self._refusals: list[Refused] = []
        # Ray's own reports of lost machines go to standard output.
        self._link = Companion("poolproof.fuzz.cluster.ray_link", is_silent=True)
        try:
            self._link.line.send(Open(address, setup.packed(), num_workers))
            self._num_processors = self._await_connection(connect_timeout_s)
            self._await_first(num_workers, start_timeout_s)
        except BaseException:
            self.close()
            raise

    @property
    def num_workers(self) -> int:
        return len(self._ready)

    @property
    def process_id(self) -> int:
        """The process that speaks to Ray, for callers that measure it."""
        return self._link.process_id

    def idle(self) -> Sequence[int]:
        return sorted(self._ready - self._busy)

    def is_fresh(self, worker: int) -> bool:
        return worker in self._fresh

    def give(self, worker: int, order: WorkerOrder) -> None:
        self._busy.add(worker)
        self._fresh.discard(worker)
        try:
            self._link.line.send(Give(worker, pickle.dumps(order)))
        except OSError as error:
            raise ClusterError(self._ended("the connection to it broke")) from error

    def wait(self, timeout_s: float) -> Sequence[Arrival]:
        return [
            arrival
            for event in self._events(timeout_s)
            for arrival in self._taken_in(event)
        ]  # fmt: skip

    def close(self) -> None:
        self._link.close()

    def _await_connection(self, timeout_s: float) -> int:
        for event in self._events(timeout_s):
            if isinstance(event, Connected):
                return event.num_processors
            assert isinstance(event, Gone)
            raise ClusterError(f"cannot join the Ray cluster at {self._address}: {event.sentence}")
        raise ClusterError(
            f"what listens at {self._address} does not answer as the head of a Ray cluster within "
            f"{timeout_s:g} s; name the address that `ray start` printed, not that of its client "
            "or dashboard"
        )

    def _await_first(self, num_wanted: int | None, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not self._ready:
            left = until - time.monotonic()
            # Those that are wanted beyond the processors would wait for ever.
            num_expected = min(num_wanted or self._num_processors, self._num_processors)
            if self._refusals and (len(self._refusals) >= num_expected or left <= 0):
                first = self._refusals[0]
                raise ClusterError(
                    f"no machine of the Ray cluster at {self._address} can work for this "
                    f"campaign; {first.machine} says: {first.sentence}"
                )
            if left <= 0:
                raise ClusterError(
                    f"no worker started on the Ray cluster at {self._address} within "
                    f"{timeout_s:g} s, since no processor of it is free; see `ray status`"
                )
            for event in self._events(left):
                self._taken_in(event)

    def _events(self, timeout_s: float) -> Iterator[LinkEvent]:
        """What has come, once something has, until there is no more for now."""
        line = self._link.line
        try:
            while line.poll(timeout_s):
                timeout_s = 0
                yield line.recv()
        except (EOFError, OSError) as error:
            raise ClusterError(self._ended("its head does not answer any more")) from error

    def _taken_in(self, event: LinkEvent) -> list[Arrival]:
        if isinstance(event, Ready):
            self._ready.add(event.worker)
            self._fresh.add(event.worker)
        elif isinstance(event, WorkerLost):
            self._ready.discard(event.worker)
            self._busy.discard(event.worker)
            return [Arrival(event.worker, LostWorker(None, sentence=event.sentence))]
        elif isinstance(event, Answered):
            self._busy.discard(event.worker)
            return [self._arrival(event)]
        elif isinstance(event, Refused):
            self._note_refusal(event)
        elif isinstance(event, Connected):
            self._num_processors = event.num_processors
        elif isinstance(event, Gone):
            raise ClusterError(self._ended(event.sentence))
        return []

    def _arrival(self, event: Answered) -> Arrival:
        answer: HostAnswer = pickle.loads(event.answer)  # noqa: S301 -- from our own host
        if isinstance(answer, Refusal):
            if answer.is_ours:
                raise RuntimeError(f"{answer.machine}: {answer.sentence}")
            raise TargetError(f"{answer.machine}: {answer.sentence}")
        if isinstance(answer, LostWorker):
            self._fresh.add(event.worker)
        return Arrival(event.worker, answer)

    def _note_refusal(self, event: Refused) -> None:
        if event not in self._refusals:
            self._say(f"left out   {event.machine}: {event.sentence}")
        self._refusals.append(event)

    def _ended(self, sentence: str) -> str:
        return (
            f"the Ray cluster at {self._address} cannot go on with this: {sentence}; what was "
            "reported is kept in --folder, and the same command goes on with it"
        )


def check_reachable(address: str) -> None:
    """Raises ClusterError if nothing listens; Ray itself would keep trying for minutes."""
    if importlib.util.find_spec("ray") is None:
        raise ClusterError("--ray needs Ray: pip install 'poolproof[ray]'")
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()) or "/" in host:
        raise ClusterError(
            f"--ray {address} is no address of a cluster; it is HOST:PORT as `ray start` printed "
            "it, or `auto` on one of the cluster's machines"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), _TCP_PATIENCE_S).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ClusterError(
            f"no Ray cluster answers at {address}: {reason}; start one with `ray start --head` and "
            "name the address that it prints"
        ) from error
