"""The worker sides of vLLM's connectors, simulated: what they move when, and what they report.

The scheduler side of a connector is vLLM's own. What it tells its workers stands in the metadata of
each step; a worker side here turns that into transfers, and what has ended into the
`KVConnectorOutput` of a step, as the real worker (named with each class) does. Nothing is repaired:
a worker that would report nothing here reports nothing.

A step's report holds what had ended when its worker was asked, which is while the step ran. So what
a later step began is never in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from poolproof.contract.engine_plan import Transfer

__all__ = ["Moves", "Reported", "SimpleCpuWorker", "WorkerSide"]


@dataclass(slots=True)
class Moves:
    """What a step's metadata begins, and which transfers are over before it is computed."""

    transfers: list[Transfer] = field(default_factory=list)
    flushes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Reported:
    """What a worker says after a step, named as in vLLM's `KVConnectorOutput`."""

    finished_sending: set[str] = field(default_factory=set)
    finished_recving: set[str] = field(default_factory=set)
    invalid_block_ids: set[int] = field(default_factory=set)
    worker_meta: Any = None


class WorkerSide(Protocol):
    """One connector's worker. `number` makes numbers for transfers, `step` counts steps."""

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """What the metadata of step number `step` has the worker do."""

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """A transfer has ended; False if it is none of this worker's."""

    def report(self, step: int, metadata: Any) -> Reported:
        """What it says after step number `step`, whose metadata that is."""


@dataclass(slots=True)
class _Begun:
    """A transfer that began with a step; `key` is how the connector calls it."""

    step: int
    key: Any
    is_load: bool


class _Ends:
    """Transfers that have begun and ended, until they are reported."""

    def __init__(self) -> None:
        self._begun: dict[int, _Begun] = {}
        self._ended: list[tuple[_Begun, bool]] = []

    def begin(self, transfer_id: int, step: int, key: Any, *, is_load: bool) -> None:
        self._begun[transfer_id] = _Begun(step, key, is_load)

    def in_flight(self, keys: Iterable[Any] | None = None) -> list[int]:
        """Transfers that have not ended: all, or those that are called so."""
        wanted = None if keys is None else set(keys)
        return [n for n, one in self._begun.items() if wanted is None or one.key in wanted]

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        begun = self._begun.pop(transfer_id, None)
        if begun is not None:
            self._ended.append((begun, is_done))
        return begun is not None

    def take(self, step: int) -> list[tuple[_Begun, bool]]:
        """What has ended of that which began with this step or before."""
        taken = [entry for entry in self._ended if entry[0].step <= step]
        self._ended = [entry for entry in self._ended if entry[0].step > step]
        return taken


class SimpleCpuWorker:
    """`SimpleCPUOffloadWorker` of `vllm/v1/simple_kv_offload/worker.py`.

    Loads are launched on a stream of their own, which waits for nothing. Stores are launched on
    another, which waits for the step that names them. Each stream is first in, first out. It cannot
    say that a transfer has failed. A step with `need_flush` waits for all that began before it.
    """

    def __init__(self, worker_metadata: Callable[..., Any]) -> None:
        self._worker_metadata = worker_metadata
        self._ends = _Ends()

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """The load and the store of a step, if it has them."""
        moves = Moves(flushes=self._ends.in_flight() if metadata.need_flush else [])
        if metadata.load_cpu_blocks:
            transfer_id = number()
            self._ends.begin(transfer_id, step, metadata.load_event, is_load=True)
            pairs = (tuple(metadata.load_gpu_blocks), tuple(metadata.load_cpu_blocks))
            moves.transfers.append(Transfer(transfer_id, True, False, *pairs))
        if metadata.store_gpu_blocks:
            transfer_id = number()
            self._ends.begin(transfer_id, step, metadata.store_event, is_load=False)
            pairs = (tuple(metadata.store_gpu_blocks), tuple(metadata.store_cpu_blocks))
            moves.transfers.append(Transfer(transfer_id, False, False, *pairs, follows=True))
        return moves

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """An event has completed."""
        return self._ends.arrived(transfer_id, is_done=is_done)

    def report(self, step: int, metadata: Any) -> Reported:
        """Events are known by number; whose loads they are stands in the metadata of this step."""
        said = Reported()
        stored: dict[int, int] = {}
        for begun, _ in self._ends.take(step):
            if begun.is_load:
                said.finished_recving.update(metadata.load_event_to_reqs.get(begun.key) or ())
            else:
                stored[begun.key] = 1
        if stored:
            said.worker_meta = self._worker_metadata(completed_store_events=stored)
        return said
