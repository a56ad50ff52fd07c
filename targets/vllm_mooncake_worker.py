"""The worker side of vLLM's Mooncake connector, unmodified, over a transfer engine of ours.

Its constructor, `register_kv_caches`, `start_load_kv`, `get_transfer_results` and all coroutines of
its sender and its receiver are vLLM's own. Replaced in its module are what asks for a device, ranks
or a network: `TransferEngine`, the platform, `get_ip` and the like; `asyncio.new_event_loop`, which
makes a loop that runs at once what it is given (`virtual_loop.py`), so that its threads have
nothing to do; the clock, which is that of the loop; and `httpx` and `make_zmq_socket`, which reach
what stands between the instances by the loop's `wire`. Of its methods one is replaced, that which
listens on a socket: what comes is put into its queue by the wire.

A write is begun where the worker gives it to its executor, and carried out by `_send_blocks` once
the run has ended it, with the result that the run has decided.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

import httpx
import zmq
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake import mooncake_connector

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.targets.installed_vllm import engine_module
from poolproof.targets.quiet_logs import only_our_faults
from poolproof.targets.virtual_loop import VirtualLoop

__all__ = [
    "BlockRange",
    "EngineWrite",
    "MooncakeWorker",
    "SendingSocket",
    "Socket",
    "mooncake_worker_of",
]


@dataclass(frozen=True, slots=True)
class BlockRange:
    """Consecutive blocks that one descriptor of a write moves, and where to."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]


@dataclass(slots=True)
class EngineWrite:
    """A call of the transfer engine: what it moves, and the rest of the worker's own function."""

    ranges: tuple[BlockRange, ...]
    finish: Callable[[bool], None]


class _Engine(HandedOver):
    """In place of Mooncake's transfer engine, which writes into another process's memory."""

    def __init__(self) -> None:
        self.result = 0

    def initialize(self, host: str, metadata: str, protocol: str, device: str) -> int:
        del host, metadata, protocol, device
        return 0

    def get_rpc_port(self) -> int:
        return 0

    def batch_register_memory(self, addresses: list[int], sizes: list[int]) -> int:
        del addresses, sizes
        return 0

    def batch_transfer_sync_write(
        self, session: str, sources: list[int], targets: list[int], lengths: list[int]
    ) -> int:
        """It was carried out before it is called here."""
        del session, sources, targets, lengths
        return self.result


class _Clock(HandedOver):
    """In place of the module `time`: the clock of the loop that runs."""

    @staticmethod
    def perf_counter() -> float:
        return asyncio.get_running_loop().time()

    @staticmethod
    def monotonic() -> float:
        return 0.0


def _wire() -> Any:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.wire


class _HttpClient(HandedOver):
    """In place of `httpx.AsyncClient`: what it asks for is a bootstrap server."""

    def __init__(self, timeout: float) -> None:
        del timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing is open."""

    async def get(self, url: str) -> httpx.Response:
        return httpx.Response(200, json=await _wire().query(url), request=httpx.Request("GET", url))

    async def post(self, url: str, json: dict[str, Any]) -> httpx.Response:
        _wire().register(url, json)
        return httpx.Response(200, request=httpx.Request("POST", url))


class Socket(HandedOver):
    """In place of the receiver's socket, by which it asks one worker for blocks."""

    def __init__(self, wire: Any) -> None:
        self._wire = wire
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._on_their_way: deque[bytes] = deque()
        self._seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """What comes now, nobody hears."""

    def setsockopt(self, option: int, milliseconds: int) -> None:
        assert option == zmq.RCVTIMEO
        self._seconds = milliseconds / 1000

    async def send(self, message: bytes) -> None:
        self._wire.ask(self, message)

    async def recv(self) -> bytes:
        try:
            return await asyncio.wait_for(self._answers.get(), self._seconds)
        except asyncio.TimeoutError as error:
            raise zmq.Again from error

    def answer(self, message: bytes) -> None:
        """An answer is on its way; one that was sent first comes first."""
        self._on_their_way.append(message)

    def deliver(self) -> None:
        """The next answer is there."""
        self._answers.put_nowait(self._on_their_way.popleft())


class SendingSocket(HandedOver):
    """In place of the sender's socket; whom it answers is the socket that asked."""

    async def send_multipart(self, parts: tuple[Socket, bytes]) -> None:
        _wire().answer(*parts)


def _socket(context: Any, address: str, kind: int, *, bind: bool, linger: int) -> Socket:
    del context, address, linger
    assert kind == zmq.DEALER
    assert not bind
    return Socket(_wire())


def _with(module: types.ModuleType, **names: Any) -> types.ModuleType:
    """A module like that one, but for these names."""
    changed = types.ModuleType(module.__name__)
    vars(changed).update(vars(module))
    vars(changed).update(names)
    return changed


_torch = engine_module("torch")
_ONE_RANK = {
    "TransferEngine": _Engine,
    "current_platform": HandedFields(set_device=lambda _: None),
    "get_ip": lambda: "host",
    "get_tensor_model_parallel_rank": lambda: 0,
    "get_tensor_model_parallel_world_size": lambda: 1,
    "get_pp_group": lambda: HandedFields(rank_in_group=0),
    "get_current_attn_backends": lambda _: [],
    "get_current_attn_backends_and_specs": lambda *_: ([], []),
    "torch": _with(_torch, accelerator=HandedFields(current_device_index=lambda: 0)),
    "asyncio": _with(asyncio, new_event_loop=VirtualLoop),
    "_async_loop": lambda _: None,
    "httpx": _with(httpx, AsyncClient=_HttpClient),
    "make_zmq_socket": _socket,
    "time": _Clock(),
}
vars(mooncake_connector).update(_ONE_RANK)
# Writes fail and requests expire as often as a run wants; vLLM has an error line for each.
only_our_faults(mooncake_connector.__name__)


class MooncakeWorker(mooncake_connector.MooncakeConnectorWorker, HandedOver):  # type: ignore[misc]  # vLLM is no dependency
    """One worker of one instance. `writes` have begun and nobody has seen to them."""

    def __init__(self, config: Any, engine_id: str, cache: Any) -> None:
        super().__init__(config, engine_id, cache)
        self.writes: list[EngineWrite] = []

    @property
    def loop(self) -> VirtualLoop:
        """The one that its role has."""
        loop: VirtualLoop = self.receiver_loop if self.is_kv_consumer else self.sender_loop
        return loop

    def begin(self, wire: Any) -> None:
        """It has its memory registered, and is reached by `wire`."""
        self.loop.wire = wire
        self.loop.offload = self._begin_write
        self.register_kv_caches(_caches_of(self.kv_cache_config))

    def blocks_of(self, address: int, length: int) -> tuple[int, ...]:
        """Which blocks stand there in its memory."""
        for base, size in zip(self.kv_caches_base_addr, self.block_len_per_layer, strict=True):
            first, within = divmod(address - base, size)
            if 0 <= first < self.kv_cache_config.num_blocks:
                assert (within, length % size) == (0, 0)
                return tuple(range(first, first + length // size))
        raise AssertionError(f"no block of this instance is at {address}")

    def receive(self, socket: Socket, message: bytes) -> None:
        """What its listener does with what comes."""
        self.sender_worker_queue.put_nowait((socket, message))
        self.loop.run()

    def next_deadline(self) -> float | None:
        """When the time of something is up, that of blocks that are kept included."""
        kept = [one.expire_time for one in self.reqs_need_send.values() if one.p_req_id]
        timer = self.loop.next_timer()
        deadlines = [when for when in (*kept, timer) if when not in (None, float("inf"))]
        return min(deadlines, default=None)

    async def _mooncake_sender_listener(self, ready_event: Any) -> None:
        await self.register_worker_with_bootstrap()
        for _ in range(self.num_sender_tasks):
            asyncio.create_task(self._sender_worker(SendingSocket()))  # noqa: RUF006 -- the loop's queue holds them, as in vLLM
        ready_event.set()

    def _begin_write(
        self, func: Callable[..., Any], args: tuple[Any, ...], future: asyncio.Future[Any]
    ) -> None:
        _, sources, targets, lengths = args
        peer = self.loop.wire.peer_of(self)
        ranges = tuple(
            BlockRange(self.blocks_of(source, length), peer.blocks_of(target, length))
            for source, target, length in zip(sources, targets, lengths, strict=True)
        )

        def carry_out() -> None:
            try:
                future.set_result(func(*args))
            except Exception as error:  # as an executor hands it to who waits
                future.set_exception(error)

        def finish(is_done: bool) -> None:
            self.engine.result = 0 if is_done else -1
            self.loop.call_soon(carry_out)
            self.loop.run()

        self.writes.append(EngineWrite(ranges, finish))


def _caches_of(cache: Any) -> dict[str, Any]:
    """A tensor for each layer, laid out as vLLM's attention has it: block, head, token, both."""
    caches = {}
    for group in cache.kv_cache_groups:
        spec = group.kv_cache_spec
        shape = (cache.num_blocks, spec.num_kv_heads, spec.block_size, 2 * spec.head_size)
        for name in group.layer_names:
            caches[name] = _torch.empty(shape, dtype=spec.dtype)
    return caches


def mooncake_worker_of(scheduler: Any) -> MooncakeWorker:
    """The worker beside a scheduler."""
    config = scheduler.vllm_config
    engine_id = config.kv_transfer_config.engine_id
    return MooncakeWorker(config, engine_id, scheduler.kv_cache_config)
