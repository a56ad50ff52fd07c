"""The worker sides of vLLM's connectors, simulated: what they move when, and what they report.

The scheduler side of a connector is vLLM's own. What it tells its workers stands in the metadata of
each step; a worker side here turns that into transfers, and what has ended into the
`KVConnectorOutput` of a step, as the real worker (named with each class) does. Nothing is repaired:
a worker that would report nothing here reports nothing.

A step's report holds what had ended when its worker was asked, which is while the step ran. So what
a later step began is never in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from poolproof.contract.engine_plan import Transfer

__all__ = [
    "FaultWorker",
    "Moves",
    "MultiWorker",
    "OffloadingWorker",
    "Reported",
    "SimpleCpuWorker",
    "WorkerSide",
]


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
    failed_recving: set[str] = field(default_factory=set)
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

    def in_flight(self) -> list[int]:
        """Transfers that have not ended."""
        return list(self._begun)

    def up_to(self, keys: Iterable[Any]) -> list[int]:
        """Transfers that have not ended, up to the last of their kind that is called so.

        What is first in and first out has ended where one behind it has.
        """
        wanted = set(keys)
        last = {one.is_load: n for n, one in self._begun.items() if one.key in wanted}
        return [n for n, one in self._begun.items() if n <= last.get(one.is_load, -1)]

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


class OffloadingWorker:
    """`OffloadingConnectorWorker` of `vllm/distributed/.../v1/offloading/worker.py`.

    Its transfers are those of `vllm/v1/kv_offload/cpu/gpu_worker.py`: each waits for the stream of
    the model as it stands when it is submitted, and for the one before it in its direction. Loads
    are submitted with the forward pass of the step that names them, stores one step later, so both
    follow that step. A step waits for the jobs that are to be flushed; stores of its own among them
    are submitted before it. A job that fails ends the worker, so none does.
    """

    def __init__(self, worker_metadata: Callable[..., Any], blocks_per_chunk: int) -> None:
        self._worker_metadata = worker_metadata
        self._blocks_per_chunk = blocks_per_chunk
        self._loads: dict[int, str] = {}
        self._ends = _Ends()

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """The jobs of a step."""
        moves = Moves()
        for job_id, job in metadata.load_jobs.items():
            self._loads[job_id] = job.req_id
            pairs = self._pairs(job.dst_spec, job.src_spec)
            moves.transfers.append(self._begin(step, job_id, number(), pairs, is_load=True))
        flushed = metadata.jobs_to_flush or set()
        for job_id, job in sorted(metadata.store_jobs.items(), key=lambda j: j[0] not in flushed):
            pairs = self._pairs(job.src_spec, job.dst_spec)
            moves.transfers.append(self._begin(step, job_id, number(), pairs, is_load=False))
        moves.flushes = self._ends.up_to(flushed)
        return moves

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """A job has completed."""
        return self._ends.arrived(transfer_id, is_done=is_done)

    def report(self, step: int, metadata: Any) -> Reported:
        """All jobs that have completed, and the requests whose loads are among them."""
        del metadata
        said, jobs = Reported(), {}
        for begun, _ in self._ends.take(step):
            jobs[begun.key] = 1
            if begun.key in self._loads:
                said.finished_recving.add(self._loads.pop(begun.key))
        if jobs:
            said.worker_meta = self._worker_metadata(completed_jobs=jobs)
        return said

    def _begin(
        self,
        step: int,
        job_id: int,
        transfer_id: int,
        pairs: tuple[tuple[int, ...], tuple[int, ...]],
        *,
        is_load: bool,
    ) -> Transfer:
        self._ends.begin(transfer_id, step, job_id, is_load=is_load)
        return Transfer(transfer_id, is_load, False, *pairs, follows=True)

    def _pairs(self, device: Any, host: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Blocks and places. A chunk has several places, and a group may begin inside one."""
        blocks, chunks = [int(b) for b in device.block_ids], [int(c) for c in host.block_ids]
        size, places = self._blocks_per_chunk, []
        for count, first in zip(device.group_sizes, device.block_indices, strict=True):
            skipped = first % size if count else 0
            num_chunks = -(-(skipped + count) // size)
            whole = [chunk * size + sub for chunk in chunks[:num_chunks] for sub in range(size)]
            places += whole[skipped : skipped + count]
            chunks = chunks[num_chunks:]
        return tuple(blocks), tuple(places)


BAD_PLACE = 5
"""Of the places of a store that fails, one in so many cannot be read."""


class FaultWorker:
    """The worker of `vllm_fault_connector.py`.

    A step waits for its loads, and each is whole or fails at once, as its place decides; or loads
    move block by block, in any order, and each may be lost. A failed block is reported with the
    next step, and its request once all of its blocks have ended. With `tells_requests` a failure is
    told with the request alone, as vLLM wants it for several cache groups; and where nothing
    `fails`, all that a step waits for can be read.
    """

    def __init__(
        self,
        worker_metadata: Callable[..., Any],
        *,
        tells_requests: bool = False,
        fails: bool = True,
    ) -> None:
        self._worker_metadata = worker_metadata
        self._tells_requests = tells_requests
        self._fails = fails
        self._failed: set[str] = set()
        self._ends = _Ends()
        self._left: dict[tuple[str, bool], int] = {}
        self._stored: dict[int, list[Any]] = {}
        self._unreadable: dict[int, list[Any]] = {}

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """Loads that the step waits for, its stores, and what takes longer."""
        moves = Moves()
        waited = [piece for pieces in metadata.waited_loads.values() for piece in pieces]
        bad = [piece for piece in waited if self._is_bad(piece)]
        self._unreadable[step] = bad
        self._stored[step] = list(metadata.stores)  # other ranks read the same metadata
        good = [piece for piece in waited if piece not in bad]
        moves.transfers += [
            Transfer(number(), is_load, True, *_pairs(pieces), fails=fails)
            for pieces, is_load, fails in (
                (good, True, False),
                (bad, True, True),
                (metadata.stores, False, False),
            )
            if pieces
        ]
        for pieces_of, is_load in ((metadata.loads, True), (metadata.sends, False)):
            for request_id, pieces in pieces_of.items():
                self._left[request_id, is_load] = len(pieces)
                for piece in pieces:
                    transfer_id = number()
                    self._ends.begin(transfer_id, step, (request_id, piece), is_load=is_load)
                    moves.transfers.append(
                        Transfer(transfer_id, is_load, False, (piece.block,), (piece.place,))
                    )
        return moves

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """A block has been moved, or was lost."""
        return self._ends.arrived(transfer_id, is_done=is_done)

    def report(self, step: int, metadata: Any) -> Reported:
        """Which blocks failed, which requests are through, and what is stored now."""
        del metadata
        said = Reported()
        stored, unreadable = self._stored.pop(step), self._unreadable.pop(step)
        said.invalid_block_ids.update(piece.block for piece in unreadable)
        for begun, is_done in self._ends.take(step):
            request_id, piece = begun.key
            if not is_done and begun.is_load:
                unreadable.append(piece)
                if self._tells_requests:
                    self._failed.add(request_id)
                else:
                    said.invalid_block_ids.add(piece.block)
            elif not begun.is_load and is_done:
                stored.append(piece)
            self._left[request_id, begun.is_load] -= 1
            if not self._left[request_id, begun.is_load]:
                del self._left[request_id, begun.is_load]
                (said.finished_recving if begun.is_load else said.finished_sending).add(request_id)
        said.failed_recving = self._failed & said.finished_recving
        self._failed -= said.failed_recving
        said.worker_meta = self._worker_metadata(stored=stored, unreadable=unreadable)
        return said

    def _is_bad(self, piece: Any) -> bool:
        return self._fails and piece.place % BAD_PLACE == BAD_PLACE - 1


def _pairs(pieces: Iterable[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    listed = list(pieces)
    return tuple(piece.block for piece in listed), tuple(piece.place for piece in listed)


class MultiWorker:
    """The worker side of `MultiConnector`, of `kv_connector/v1/multi_connector.py`.

    Each of its connectors does what its own part of the metadata says, over a store of its own. A
    request that several of them send is reported once the last has sent it.
    """

    def __init__(self, workers: Sequence[WorkerSide], worker_metadata: Callable[..., Any]) -> None:
        self._workers = list(workers)
        self._worker_metadata = worker_metadata
        self._more_to_send: dict[str, int] = {}

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """What each of them begins. The places of one are none of another's."""
        self._more_to_send.update(metadata.extra_async_saves or {})
        moves = Moves()
        for which, (worker, part) in enumerate(zip(self._workers, metadata.metadata, strict=True)):
            begun = worker.begin(step, part, number)
            moves.flushes += begun.flushes
            for transfer in begun.transfers:
                places = tuple(place * len(self._workers) + which for place in transfer.places)
                moves.transfers.append(replace(transfer, places=places))
        return moves

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """It is one of one of them."""
        return any(worker.arrived(transfer_id, is_done=is_done) for worker in self._workers)

    def report(self, step: int, metadata: Any) -> Reported:
        """What all of them say; the scheduler's parts get their own back."""
        said, parts = Reported(), []
        for worker, part in zip(self._workers, metadata.metadata, strict=True):
            one = worker.report(step, part)
            said.finished_recving |= one.finished_recving
            said.invalid_block_ids |= one.invalid_block_ids
            parts.append(one.worker_meta)
            for request_id in one.finished_sending:
                if self._more_to_send.get(request_id):
                    self._more_to_send[request_id] -= 1
                else:
                    self._more_to_send.pop(request_id, None)
                    said.finished_sending.add(request_id)
        if any(part is not None for part in parts):
            said.worker_meta = self._worker_metadata(metadata=tuple(parts))
        return said
