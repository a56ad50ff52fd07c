"""The worker sides of vLLM's NIXL connectors, unmodified, over an agent of ours in NIXL's place.

`NixlPullConnectorWorker` and `NixlPushConnectorWorker` decide what is read or written and when a
peer is told, what has failed, and whose lease has run out. All of that is vLLM's own here, in
`start_load_kv`, `get_transfer_results` and the loop of the thread that pushes. The constructor of
their common base asks for a device, ranks and NIXL itself, so that its attributes are set one by
one: one rank, one region of memory, a peer whose blocks are as large, and a handshake that is done.

What moves memory and carries messages is the agent: a read or a write ends when the run wants it
to, and NIXL tells the peer of one that has ended by itself, whether or not who began it has looked.
A registration of blocks to push into takes as long as the run wants, too; heartbeats are there at
once.

The thread that pushes makes a pass over its queues wherever something wakes it, and none beside.
The clock of these modules stands still. A lease ends where the adapter says that its time is up.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import (
    base_scheduler,
    base_worker,
    pull_scheduler,
    pull_worker,
    push_scheduler,
    push_worker,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import PUSH_REG_NOTIF_PREFIX
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.tp_mapping import TPMapping

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.targets.quiet_logs import only_our_faults

__all__ = ["Message", "NixlAgent", "NixlMove", "nixl_worker_of"]

_NOW = 1_000.0
"""What the clock says: later than 0, when no heartbeat was sent yet."""


class _Clock(HandedOver):
    """In place of the module `time`."""

    @staticmethod
    def perf_counter() -> float:
        return _NOW


_MODULES = (base_scheduler, base_worker, pull_scheduler, pull_worker, push_scheduler, push_worker)
for _module in _MODULES:
    _module.time = _Clock()
    # Reads fail and leases end as often as a run wants; vLLM has an error line for each.
    only_our_faults(_module.__name__)


@dataclass(slots=True)
class NixlMove:
    """Blocks that are moved to the peer's: `told` is what the peer of who began it hears then."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    told: bytes
    state: str = "PROC"


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent to the peer; of a registration, the request whose blocks it names."""

    text: bytes
    registers: str | None = None


class NixlAgent(HandedOver):
    """What NIXL does for one worker. `moves` and `letters` have begun and nobody has seen to them.

    `on_message` is called for each that comes.
    """

    def __init__(self) -> None:
        self.peer: NixlAgent | None = None
        self.on_message: Callable[[], None] = lambda: None
        self.moves: list[NixlMove] = []
        self.letters: list[Message] = []
        self.messages: list[bytes] = []
        self.heartbeats: set[str] = set()
        self._moves: dict[int, NixlMove] = {}
        self._num_moves = 0

    def end(self, move: NixlMove, *, is_done: bool) -> None:
        """A move is over; of one that has failed the peer hears nothing."""
        move.state = "DONE" if is_done else "ERR"
        if is_done:
            self.deliver(Message(move.told))

    def deliver(self, message: Message) -> None:
        """A message reaches the peer."""
        assert self.peer is not None
        self.peer.messages.append(message.text)
        self.peer.on_message()

    def make_prepped_xfer(
        self, kind: str, _own: int, own: Any, _remote: int, remote: Any, notif_msg: bytes
    ) -> int:
        mine, others = tuple(map(int, own)), tuple(map(int, remote))
        sides = (others, mine) if kind == "READ" else (mine, others)
        self._num_moves += 1
        self._moves[self._num_moves] = NixlMove(*sides, notif_msg)
        return self._num_moves

    def transfer(self, handle: int) -> None:
        self.moves.append(self._moves[handle])

    def check_xfer_state(self, handle: int) -> str:
        return self._moves[handle].state

    def release_xfer_handle(self, handle: int) -> None:
        del self._moves[handle]

    def get_xfer_telemetry(self, handle: int) -> None:
        """Nothing is measured."""

    def check_remote_metadata(self, agent: str) -> bool:
        """The peer is always there."""
        del agent
        return True

    def send_notif(self, agent: str, notif_msg: bytes) -> None:
        del agent
        if notif_msg.startswith(PUSH_REG_NOTIF_PREFIX):
            blocks = msgspec.msgpack.decode(notif_msg[len(PUSH_REG_NOTIF_PREFIX) :])
            self.letters.append(Message(notif_msg, blocks["request_id"]))
            return
        self.deliver(Message(notif_msg))
        if notif_msg.startswith(b"HB:"):
            self.heartbeats |= set(notif_msg[3:].decode().split(","))

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        messages, self.messages = self.messages, []
        return {"peer": messages}


class _OneRank(base_worker.NixlBaseConnectorWorker, HandedOver):  # type: ignore[misc]  # vLLM is no dependency
    """One worker of one instance, in place of what the base's constructor makes of a device."""

    def __init__(self, config: Any, engine_id: str, cache: Any) -> None:
        transfer = config.kv_transfer_config
        self.vllm_config, self.kv_transfer_config, self.kv_cache_config = config, transfer, cache
        self.engine_id = engine_id
        self.nixl_wrapper = NixlAgent()
        self.block_size = config.cache_config.block_size
        groups = cache.transfer_groups
        self._lease_extension = transfer.get_from_extra_config("kv_lease_duration", 30) * 2 // 3
        self._is_hma_required = False
        self._group_spec_types = tuple(type(group.kv_cache_spec) for group in groups)
        self._set_shape()
        self._set_transfers()
        self._set_peers(cache.num_blocks)

    def _set_shape(self) -> None:
        """One rank, full-size blocks, attention alone."""
        self._bidirectional_kv_xfer_enabled = False
        self._has_mamba = self.use_mla = self.use_host_buffer = self._mixed_mem_types = False
        self.pcp_dcp_sharded = self._uses_region_group_mapping = self._is_csa_linear = False
        self.enable_permute_local_kv = self.enable_heterogeneous_attn_post_process = False
        self.tp_rank = self.pcp_rank = self.dcp_rank = 0
        self.world_size = self.pcp_size = self.dcp_size = self.pp_size = self.num_regions = 1
        self._physical_blocks_per_logical_kv_block = 1
        self._transfer_layer_group_ids: tuple[int, ...] = ()
        self.region_group_ids: list[int] = []
        self._hb_handshake_notif_only = False
        self.copy_blocks = None

    def _set_transfers(self) -> None:
        self._recving_metadata: dict[str, Any] = {}
        self._recving_transfers: dict[str, list[int]] = defaultdict(list)
        self._reqs_to_send: dict[str, float] = {}
        self._reqs_to_process: set[str] = set()
        self._replicated_pcp_done_sending: set[str] = set()
        self._invalid_block_ids: Any = queue.Queue()
        self._failed_recv_reqs: Any = queue.Queue()
        self._ready_requests: Any = queue.Queue()
        self._recv_failures: set[str] = set()
        self._pending_recv_notifs: dict[str, Any] = {}
        self.consumer_notification_counts_by_req: dict[str, int] = defaultdict(int)
        self.expected_consumer_notifications_by_req: dict[str, int] = {}
        self.xfer_stats = NixlKVConnectorStats()

    def _set_peers(self, num_blocks: int) -> None:
        self._handshake_lock = threading.RLock()
        self._handshake_futures: dict[str, Any] = {}
        self._engine_ttl = 0.0
        self._engine_last_active: dict[str, float] = {}
        self._engine_by_address: dict[Any, str] = {}
        self._engine_clock_offset: dict[str, float] = {}
        self._failed_remote_engines: set[str] = set()
        self._invalid_remote_engines: set[str] = set()
        self._invalid_engine_backoff: dict[str, Any] = {}
        self._remote_agents: dict[str, dict[tuple[int, int], str]] = {}
        self.src_xfer_handles_by_block_size = {self.block_size: 0}
        self.dst_xfer_side_handles: dict[str, dict[int, int]] = {}
        self.dst_num_blocks = {self.engine_id: num_blocks}
        self.dst_region_num_blocks = {self.engine_id: [num_blocks]}
        self.dst_region_group_ids: dict[str, list[int]] = {}
        self.dst_uses_region_group_mapping: dict[str, bool] = {}
        self.tp_mappings: dict[str, Any] = {}
        self.transfer_topo = HandedFields(
            get_engine_info=lambda _: HandedFields(
                remote_tp_size=1,
                remote_dcp_size=1,
                remote_block_size=self.block_size,
                remote_physical_blocks_per_logical=1,
            ),
            tp_ratio=lambda _: 1,
            block_size_ratio=lambda _: 1,
        )

    def meet(self, peer: _OneRank) -> None:
        """The handshake with the other instance."""
        num_groups, engine_id = len(self._group_spec_types), peer.engine_id
        self._remote_agents[engine_id] = {(0, 0): "peer"}
        self._engine_by_address["host", 0] = engine_id
        self._engine_clock_offset[engine_id] = 0.0
        self.dst_xfer_side_handles[engine_id] = {0: 0}
        self.dst_num_blocks[engine_id] = peer.dst_num_blocks[engine_id]
        self.dst_region_num_blocks[engine_id] = peer.dst_region_num_blocks[engine_id]
        self.dst_region_group_ids[engine_id] = []
        self.dst_uses_region_group_mapping[engine_id] = False
        self.tp_mappings[engine_id] = TPMapping(((0,),) * num_groups, (0,), {0: 0}, 0)

    def leases(self) -> list[str]:
        """Requests whose blocks are kept here until they were read, and whose time is not up."""
        return [name for name, deadline in self._reqs_to_send.items() if deadline > _NOW]

    def end_lease(self, request_id: str) -> None:
        """The clock has passed the deadline of a request, if it still has one."""
        if request_id in self._reqs_to_send:
            self._reqs_to_send[request_id] = _NOW

    def heard_of(self, request_id: str) -> bool:
        """Whether it was told that a request was read, and has not looked yet."""
        told = f"{request_id}:".encode()
        return any(message.startswith(told) for message in self.nixl_wrapper.messages)


class _PullWorker(pull_worker.NixlPullConnectorWorker, _OneRank):  # type: ignore[misc]  # vLLM is no dependency
    """VLLM's worker that reads."""


class _Turns(HandedOver):
    """In place of both events that a thread waits for: it makes a pass at once where it is woken.

    It is stopped where it would wait.
    """

    def __init__(self, make_pass: Callable[[], None]) -> None:
        self._make_pass = make_pass
        self._is_over = True

    def set(self) -> None:
        if self._is_over:
            self._is_over = False
            self._make_pass()

    def clear(self) -> None:
        """It was woken for this pass."""

    def is_set(self) -> bool:
        return self._is_over

    def wait(self, timeout: float | None = None) -> None:
        del timeout
        self._is_over = True


class _PushWorker(push_worker.NixlPushConnectorWorker, _OneRank):  # type: ignore[misc]  # vLLM is no dependency
    """VLLM's worker that writes, and its thread."""

    def __init__(self, config: Any, engine_id: str, cache: Any) -> None:
        super().__init__(config, engine_id, cache)
        self._push_writer_stop = self._push_writer_wake = _Turns(self._push_writer_loop)
        self.nixl_wrapper.on_message = self._message_came

    def _message_came(self) -> None:
        """It polls by itself as long as a request waits for somebody to be pushed to."""
        if self._push_finished_blocks:
            self._push_writer_wake.set()


def nixl_worker_of(scheduler: Any) -> Any:
    """The worker beside a scheduler: of its connector, with an agent of its own."""
    sides = scheduler.connector.connector_scheduler
    pushes = isinstance(sides, push_scheduler.NixlPushConnectorScheduler)
    config = scheduler.vllm_config
    worker = (_PushWorker if pushes else _PullWorker)(
        config, config.kv_transfer_config.engine_id, scheduler.kv_cache_config
    )
    worker._is_hma_required = sides._is_hma_required  # noqa: SLF001 -- it is derived alike there
    return worker
