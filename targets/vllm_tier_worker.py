"""The worker side of vLLM's tiering offloading connector, simulated.

Between device and host it is `OffloadingWorker`. Between the host and the secondary tier vLLM moves
chunks in the scheduler's process; here each such job is a transfer that moves no block and ends
when the run wants it to. What a chunk of the host holds is known by its place: a store gives it a
new one, a promotion that of the chunk outside, so that nothing has to be moved between places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from poolproof.contract.engine_plan import Transfer
from poolproof.targets.vllm_connector_workers import Moves, OffloadingWorker, Reported

__all__ = ["TieringWorker"]


class TieringWorker:
    """`OffloadingWorker` over host chunks of one block, and the jobs of `FaultTier` (its `tier`).

    A chunk that is stored while a load still reads it keeps its place, so that the load finds what
    it would find. It gets a new one where the place is the tier's as well, whose copy would change
    with it; such a load finds what stood there before.
    """

    def __init__(self, host: OffloadingWorker, tier: Any) -> None:
        self._host = host
        self._tier = tier
        self._next_place = 0
        self._place_of: dict[int, int] = {}
        self._reading: dict[int, tuple[int, ...]] = {}
        self._storing: dict[int, dict[int, int]] = {}
        self._jobs: dict[int, Any] = {}

    def begin(self, step: int, metadata: Any, number: Callable[[], int]) -> Moves:
        """The jobs of a step, and those that the tier was given since the last one."""
        moves = self._host.begin(step, metadata, number)
        moves.transfers = [self._in_places(transfer) for transfer in moves.transfers]
        for one in self._tier.take_begun():
            transfer_id = number()
            self._jobs[transfer_id] = one
            moves.transfers.append(Transfer(transfer_id, one.job.is_promotion, False, (), ()))
        return moves

    def arrived(self, transfer_id: int, *, is_done: bool) -> bool:
        """A job of the worker or of the tier has ended."""
        one = self._jobs.pop(transfer_id, None)
        if one is not None:
            if not one.is_cancelled:
                self._end(one)
            return True
        self._reading.pop(transfer_id, None)
        self._place_of.update(self._storing.pop(transfer_id, {}))
        return self._host.arrived(transfer_id, is_done=is_done)

    def report(self, step: int, metadata: Any) -> Reported:
        """The tier reports for itself."""
        return self._host.report(step, metadata)

    def _in_places(self, transfer: Transfer) -> Transfer:
        chunks = transfer.places
        if transfer.is_load:
            self._reading[transfer.transfer_id] = chunks
            return replace(transfer, places=tuple(self._place(chunk) for chunk in chunks))
        read = {chunk for reading in self._reading.values() for chunk in reading}
        kept = set(self._tier.kept.values())
        places = {
            c: place if c in read and (place := self._place(c)) not in kept else self._new_place()
            for c in chunks
        }
        self._storing[transfer.transfer_id] = places
        return replace(transfer, places=tuple(places[chunk] for chunk in chunks))

    def _end(self, one: Any) -> None:
        chunks = [int(chunk) for chunk in one.job.chunk_ids][: one.num_right]
        if one.job.is_promotion:
            outside = (self._tier.kept[key] for key in one.job.keys)
            self._place_of.update(zip(chunks, outside, strict=False))
        else:
            one.places = [self._place(chunk) for chunk in chunks]
        self._tier.end(one)

    def _place(self, chunk: int) -> int:
        return self._place_of[chunk] if chunk in self._place_of else self._new_place()

    def _new_place(self) -> int:
        self._next_place += 1
        return self._next_place - 1
