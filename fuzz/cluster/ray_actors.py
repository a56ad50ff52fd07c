"""The workers of a campaign as actors of a Ray cluster: started, replaced, asked.

Everything that Ray reports, from any of its threads, goes into one queue; `heard` turns it into
events for the coordinator. An order is carried out at most once: nothing is repeated here.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import ray

from poolproof.fuzz.cluster.host import Hosting, Refusal
from poolproof.fuzz.cluster.link_messages import (
    Answered,
    Give,
    Gone,
    LinkEvent,
    Ready,
    Refused,
    WorkerLost,
)
from poolproof.fuzz.cluster.relay import Relay

__all__ = ["Actors", "Answer", "ClusterSize", "cluster_size", "watch_cluster"]

_LOOK_EVERY_S = 2.0
_LONGEST_PAUSE_S = 60.0
_FAILED_STARTS_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of an actor's call: its value, or why there is none."""

    worker: int
    value: bytes | None
    sentence: str


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """The cluster at the moment: processors, and whether Ray still runs on this machine."""

    num_processors: int
    is_here: bool


def cluster_size() -> ClusterSize:
    """Look at the cluster; takes as long as its head takes to answer."""
    here = ray.get_runtime_context().get_node_id()
    alive = [node for node in ray.nodes() if node["Alive"]]
    processors = sum(node["Resources"].get("CPU", 0) for node in alive)
    return ClusterSize(int(processors), any(node["NodeID"] == here for node in alive))


def watch_cluster(put: Callable[[ClusterSize], None], is_over: threading.Event) -> None:
    """Look at the cluster every few seconds. For a thread of its own."""
    while not is_over.wait(_LOOK_EVERY_S):
        put(cluster_size())


class Actors:
    """As many workers as are wanted, or as the cluster has CPUs."""

    def __init__(
        self,
        setup: tuple[int, bytes],
        num_wanted: int | None,
        news: SimpleQueue[Any],
    ) -> None:
        self._setup = setup
        self._num_wanted = num_wanted
        self._news = news
        # Nothing is restarted or repeated by Ray: a new worker has to be told everything anew.
        self._class: Any = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Relay)
        self._starting: dict[int, Any] = {}
        self._ready: dict[int, Any] = {}
        self._refused: dict[int, Any] = {}
        self._next = 0
        self._num_failed_starts = 0
        self._pause_until = 0.0

    def fill(self, size: ClusterSize) -> None:
        """Start the workers that are missing; they wait in Ray until there is a processor."""
        if time.monotonic() < self._pause_until:
            return
        wanted = size.num_processors if self._num_wanted is None else self._num_wanted
        present = len(self._starting) + len(self._ready) + len(self._refused)
        for _ in range(wanted - present):
            worker, self._next = self._next, self._next + 1
            actor = self._starting[worker] = self._class.remote(self._setup)
            self._listen(worker, actor.begin.remote())

    def give(self, give: Give) -> None:
        """Hand an order to its worker."""
        self._listen(give.worker, self._ready[give.worker].work.remote(give.order))

    def heard(self, answer: Answer) -> Iterator[LinkEvent]:
        """The events that follow from an answer."""
        worker = answer.worker
        if worker in self._starting:
            yield from self._begun(answer, self._starting.pop(worker))
        elif answer.value is not None:
            yield Answered(worker, answer.value)
        else:
            _end(self._ready.pop(worker))
            yield WorkerLost(worker, answer.sentence)

    def _begun(self, answer: Answer, actor: Any) -> Iterator[LinkEvent]:
        if answer.value is None:
            _end(actor)
            yield from self._failed_to_start(answer.sentence)
            return
        self._num_failed_starts = 0
        said: Hosting | Refusal = pickle.loads(answer.value)  # noqa: S301 -- from our own host
        if isinstance(said, Refusal):
            self._refused[answer.worker] = actor
            yield Refused(said.machine, said.sentence)
        else:
            self._ready[answer.worker] = actor
            yield Ready(answer.worker)

    def _failed_to_start(self, sentence: str) -> Iterator[LinkEvent]:
        """A machine may vanish while a worker starts; repeated failures have another cause."""
        self._num_failed_starts += 1
        self._pause_until = time.monotonic() + min(_LONGEST_PAUSE_S, 2.0**self._num_failed_starts)
        if self._num_failed_starts == _FAILED_STARTS_IN_A_ROW:
            if not self._ready:
                yield Gone(f"its workers do not start: {sentence}")
            yield Refused("a machine of the cluster", f"its worker does not start: {sentence}")

    def _listen(self, worker: int, reference: Any) -> None:
        def note(future: Any) -> None:
            error = future.exception()
            value = None if error is not None else future.result()
            self._news.put(Answer(worker, value, "" if error is None else _cause_of(error)))

        reference.future().add_done_callback(note)


def _end(actor: Any) -> None:
    """Make sure that nothing of it is left, so that its CPU is free."""
    with contextlib.suppress(Exception):
        ray.kill(actor)


def _cause_of(error: BaseException) -> str:
    """Ray's messages have many lines; the exception at their end, or else their beginning."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.match(r"[\w.]+(Error|Exception): ", line)]
    return (causes[-1:] or lines[:1] or [type(error).__name__])[0]
