"""The worker sides of vLLM's NIXL connector, unmodified, over an agent of ours in NIXL's place.

`NixlPullConnectorWorker` decides what is read and when a peer is told, what has failed, and whose
lease has run out. All of that is vLLM's own here, in `start_load_kv` and `get_transfer_results`.
Its constructor asks for a device, ranks and NIXL itself, so that its attributes are set one by one:
one rank, one region of memory, a peer whose blocks are as large, and a handshake that is done.

What reads memory and carries messages is the agent: a read ends when the run wants it to, and a
message is there at once. NIXL tells the peer of a read that has ended by itself, whether or not
the reader's worker has looked.

The clock of these modules stands still. A lease ends where the adapter says that its time is up.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl import (
    base_scheduler,
    base_worker,
    pull_scheduler,
    pull_worker,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.stats import NixlKVConnectorStats
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.tp_mapping import TPMapping

from poolproof.contract.adapter_fault import HandedOver

__all__ = ["NixlAgent", "NixlWorker", "Read"]

_NOW = 1_000.0
"""What the clock says: later than 0, when no heartbeat was sent yet."""


class _Clock(HandedOver):
    """In place of the module `time`."""

    @staticmethod
    def perf_counter() -> float:
        return _NOW


for _module in (base_scheduler, base_worker, pull_scheduler, pull_worker):
    _module.time = _Clock()
    # Reads fail and leases end as often as a run wants; vLLM has an error line for each.
    logging.getLogger(_module.__name__).setLevel(logging.CRITICAL)


@dataclass(slots=True)
class Read:
    """Blocks of the peer that are read into one's own; `told` is what the peer hears at the end."""

    step: int
    own: tuple[int, ...]
    remote: tuple[int, ...]
    told: bytes
    state: str = "PROC"


class NixlAgent(HandedOver):
    """What NIXL does for one worker. `begun` are reads that nobody has taken up yet.

    `step` is the number of the step whose metadata the worker gets, `asked` of the one after which
    it is asked what has ended: it can say nothing of reads that a later step began.
    """

    def __init__(self) -> None:
        self.peer: NixlAgent | None = None
        self.step = self.asked = 0
        self.begun: list[Read] = []
        self.messages: list[bytes] = []
        self.heartbeats: set[str] = set()
        self._reads: dict[int, Read] = {}
        self._num_reads = 0

    def end(self, read: Read, *, is_done: bool) -> None:
        """A read is over; of one that has failed the peer hears nothing."""
        read.state = "DONE" if is_done else "ERR"
        if is_done:
            self.send_notif("", read.told)

    def make_prepped_xfer(
        self, kind: str, _own: int, own: Any, _remote: int, remote: Any, notif_msg: bytes
    ) -> int:
        assert kind == "READ"
        read = Read(self.step, tuple(map(int, own)), tuple(map(int, remote)), notif_msg)
        self._num_reads += 1
        self._reads[self._num_reads] = read
        return self._num_reads

    def transfer(self, handle: int) -> None:
        self.begun.append(self._reads[handle])

    def check_xfer_state(self, handle: int) -> str:
        read = self._reads[handle]
        return "PROC" if read.step > self.asked else read.state

    def release_xfer_handle(self, handle: int) -> None:
        del self._reads[handle]

    def get_xfer_telemetry(self, handle: int) -> None:
        """Nothing is measured."""

    def check_remote_metadata(self, agent: str) -> bool:
        """The peer is always there."""
        del agent
        return True

    def send_notif(self, agent: str, notif_msg: bytes) -> None:
        del agent
        assert self.peer is not None
        self.peer.messages.append(notif_msg)
        if notif_msg.startswith(b"HB:"):
            self.heartbeats |= set(notif_msg[3:].decode().split(","))

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        messages, self.messages = self.messages, []
        return {"peer": messages}


class NixlWorker(pull_worker.NixlPullConnectorWorker):  # type: ignore[misc]  # vLLM is no dependency
    """One worker of one instance. `peer` and its blocks are known to those who read."""

    def __init__(self, scheduler: Any, agent: NixlAgent) -> None:
        config = scheduler.vllm_config
        transfer = config.kv_transfer_config
        cache = scheduler.kv_cache_config
        self.vllm_config, self.kv_transfer_config, self.kv_cache_config = config, transfer, cache
        self.engine_id = transfer.engine_id
        self.nixl_wrapper = agent
        self.block_size = config.cache_config.block_size
        groups = cache.transfer_groups
        self._lease_extension = transfer.get_from_extra_config("kv_lease_duration", 30) * 2 // 3
        self._is_hma_required = scheduler.connector.connector_scheduler._is_hma_required  # noqa: SLF001 -- the worker derives it alike
        self._group_spec_types = tuple(type(group.kv_cache_spec) for group in groups)
        self._set_shape()
        self._set_transfers()
        self._set_peers(cache.num_blocks)

    def _set_shape(self) -> None:
        """One rank, full-size blocks, attention alone."""
        self._bidirectional_kv_xfer_enabled = False
        self._has_mamba = self.use_mla = self.use_host_buffer = self._mixed_mem_types = False
        self.pcp_dcp_sharded = self._uses_region_group_mapping = False
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
        self.dst_region_num_blocks: dict[str, list[int]] = {}
        self.dst_region_group_ids: dict[str, list[int]] = {}
        self.dst_uses_region_group_mapping: dict[str, bool] = {}
        self.tp_mappings: dict[str, Any] = {}
        self.transfer_topo = SimpleNamespace(
            get_engine_info=lambda _: SimpleNamespace(
                remote_tp_size=1,
                remote_dcp_size=1,
                remote_block_size=self.block_size,
                remote_physical_blocks_per_logical=1,
            ),
            tp_ratio=lambda _: 1,
            block_size_ratio=lambda _: 1,
        )

    def meet(self, peer: NixlWorker) -> None:
        """The handshake with the instance whose blocks are read here."""
        num_groups, engine_id = len(self._group_spec_types), peer.engine_id
        self._remote_agents[engine_id] = {(0, 0): "peer"}
        self._engine_by_address["host", 0] = engine_id
        self._engine_clock_offset[engine_id] = 0.0
        self.dst_xfer_side_handles[engine_id] = {0: 0}
        self.dst_num_blocks[engine_id] = peer.dst_num_blocks[engine_id]
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
