"""Drives a prefill and a decode instance of vLLM with its Mooncake connector, as one engine.

A proxy gives a request to both at once, under one transfer id. The decode instance asks the other
one's worker for the blocks, which waits until they are computed, writes them and answers.

What takes as long as the run wants, beside the passing on of a request: a question to the bootstrap
server, a message in either direction, and a write. A write moves runs of consecutive blocks, each
by itself: it has failed if one of them has, and what the others have moved stands there.

Time stands still as long as anything moves. Where nothing does, the next deadline comes: of blocks
that nobody fetches, of a question that waits for its request, of an answer that does not come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.engine_plan import Transfer
from poolproof.targets.installed_vllm import engine_module, part_of
from poolproof.targets.target import EngineLayout, Target
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_instances import (
    InstancePair,
    Moves,
    Sizes,
    installed_pair,
    pair_layouts,
)
from poolproof.targets.vllm_mooncake_setups import (
    MOONCAKE_NOTES,
    MOONCAKE_SETUPS,
    MooncakeSetup,
)

__all__ = ["MooncakePair", "installed_vllm_mooncake", "vllm_mooncake_layouts"]

_WORKER = "poolproof.targets.vllm_mooncake_worker"
_BOOTSTRAP = "http://bootstrap:1"


class MooncakePair(InstancePair):
    """Two instances, and the wire between their workers."""

    def __init__(
        self, setup: MooncakeSetup, parts: tuple[SchedulerParts, SchedulerParts], sizes: Sizes
    ) -> None:
        make_worker = part_of(engine_module(_WORKER), "mooncake_worker_of")
        super().__init__(parts, sizes, make_worker, stops=setup.stops)
        self._wire = _Wire(self.prefill.worker, self.decode.worker)
        self._num_writing = 0
        self._loads: list[tuple[_Writing, Any, tuple[int, ...]]] = []

    def _when_asked(self, request_id: int) -> Mapping[str, Any]:
        to_decode = {
            "do_remote_decode": False,
            "do_remote_prefill": True,
            "remote_engine_id": self.prefill.worker.engine_id,
            "remote_bootstrap_addr": _BOOTSTRAP,
            "transfer_id": f"xfer-{request_id}",
        }
        self._hand_over(request_id, to_decode)
        return {
            "do_remote_decode": True,
            "do_remote_prefill": False,
            "transfer_id": f"xfer-{request_id}",
        }

    def _when_prefilled(self, request_id: int, params: Mapping[str, Any]) -> None:
        """The decode instance has it already, or is about to."""

    def _begun(self) -> Moves:
        letters, self._wire.letters = self._wire.letters, []
        yield from (self._transfer(letter) for letter in letters)
        loads, self._loads = self._loads, []
        yield from (self._begin_load(*load) for load in loads)
        worker = self.prefill.worker
        while worker.writes and self._num_writing < worker.num_sender_workers:
            yield from self._begin_write(worker.writes.pop(0))

    def _begin_write(self, write: Any) -> Moves:
        """Each run of blocks leaves by itself, and then comes."""
        self._num_writing += 1
        writing = _Writing(self, write, len(write.ranges))

        def begin(moved: Any) -> Transfer:
            places = self._new_places(len(moved.sources))

            def left(is_done: bool) -> None:
                if is_done:
                    self._loads.append((writing, moved, places))
                else:
                    writing.ended(is_done=False)

            return self._transfer(left, tuple(map(self.prefill.told, moved.sources)), places)

        return [begin(moved) for moved in write.ranges]

    def _begin_load(self, writing: _Writing, moved: Any, places: tuple[int, ...]) -> Transfer:
        def came(is_done: bool) -> None:
            writing.ended(is_done=is_done)

        blocks = tuple(map(self.decode.told, moved.targets))
        return self._transfer(came, blocks, places, is_load=True)

    def written(self) -> None:
        """A thread of the prefill instance can begin another write."""
        self._num_writing -= 1

    def _when_nothing_moves(self, *, are_both_asked: bool) -> Moves:
        """Both have nothing to do but to wait: time passes until somebody has waited enough."""
        workers = self.prefill.worker, self.decode.worker
        deadlines = [when for one in workers if (when := one.next_deadline()) is not None]
        if not deadlines or not are_both_asked:
            return ()

        def end(_: bool) -> None:
            for worker in workers:
                worker.loop.pass_time(min(deadlines) + 1)

        return (self._transfer(end),)


class _Writing:
    """A write that is in flight, until all that it moves has come or is lost."""

    def __init__(self, pair: MooncakePair, write: Any, num_left: int) -> None:
        self._pair, self._write = pair, write
        self._num_left, self._is_done = num_left, True

    def ended(self, *, is_done: bool) -> None:
        """One of its runs of blocks has come, or is lost."""
        self._num_left -= 1
        self._is_done = self._is_done and is_done
        if not self._num_left:
            self._pair.written()
            self._write.finish(self._is_done)


class _Wire:
    """Messages between both workers, and to the bootstrap server of the prefill instance.

    `letters` are on their way; each is called when it is there, and none is lost.
    """

    def __init__(self, prefill: Any, decode: Any) -> None:
        self._prefill, self._decode = prefill, decode
        self._registered: dict[str, Any] = {}
        self.letters: list[Callable[[bool], None]] = []
        for worker in (prefill, decode):
            worker.begin(self)

    def peer_of(self, worker: Any) -> Any:
        """The worker of the other instance."""
        return self._decode if worker is self._prefill else self._prefill

    def register(self, url: str, worker: Mapping[str, Any]) -> None:
        """A worker tells the server where it is, before anything else."""
        del url
        ranks = {worker["tp_rank"]: {worker["pp_rank"]: worker["addr"]}}
        entry = {"engine_id": worker["engine_id"], "worker_addr": ranks}
        self._registered[worker["dp_rank"]] = entry

    async def query(self, url: str) -> Mapping[str, Any]:
        """What the server knows, once the answer is there."""
        del url
        answer = self._decode.loop.create_future()

        def end(_: bool) -> None:
            answer.set_result(None)
            self._decode.loop.run()

        self.letters.append(end)
        await answer
        return self._registered

    def ask(self, socket: Any, message: bytes) -> None:
        """The decode instance asks for blocks."""
        self.letters.append(lambda _: self._prefill.receive(socket, message))

    def answer(self, socket: Any, message: bytes) -> None:
        """The prefill instance answers, by the socket that asked."""
        socket.answer(message)

        def end(_: bool) -> None:
            socket.deliver()
            self._decode.loop.run()

        self.letters.append(end)


def vllm_mooncake_layouts() -> list[EngineLayout]:
    """The set-ups. Raises TargetError where vLLM is not installed, or has other parts."""
    return pair_layouts(MOONCAKE_SETUPS, MooncakePair)


def installed_vllm_mooncake(name: str, declared: Mapping[str, Any]) -> Target:
    """Both instances. Raises TargetError where vLLM cannot be imported, or for rows."""
    return installed_pair(name, declared, vllm_mooncake_layouts(), MOONCAKE_NOTES)
