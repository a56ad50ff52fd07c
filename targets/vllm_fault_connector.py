"""A connector for vLLM that is right, over a store outside that fails: to test vLLM's scheduler.

It does what `KVConnectorBase_V1` allows and few connectors do often: asks for time before it says
what it has, fails loads block by block, is late, keeps the blocks of ended requests until they are
sent. Whatever it offers has been stored whole, and what failed once is never offered again. vLLM
loads it by the path of this module; only its scheduler side does anything.

Options in `kv_connector_extra_config`: "loads" are "sync" (a step waits for them) or "async";
"stores" come with the "steps" that fill blocks, or at the "end" of a request; where "fails" is
false, no load does.

Of attention every block of a prefix is stored. Of recurrent layers a state is stored with the step
that vLLM hands it over in (`boundary_state_offloads`), whatever "stores" says, because it is handed
over once; and a prefix can be offered that ends with a stored state of each such group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.v1.request import RequestStatus

__all__ = ["FaultConnector", "FaultMetadata", "FaultWorkerMetadata", "Piece"]

_ASKS_EVERY = 3
"""One request in so many is not told at once."""


Key = tuple[int, bytes]
"""A cache group, and a hash of its own prefix."""


@dataclass(frozen=True)
class Piece:
    """A block of the device and its place outside, for one key. `era` counts resets."""

    key: Key
    block: int
    place: int
    era: int


@dataclass
class FaultMetadata(KVConnectorMetadata):  # type: ignore[misc]  # vLLM is no dependency
    """What a step has the worker do; `sends` and the loads are by request."""

    waited_loads: dict[str, list[Piece]] = field(default_factory=dict)
    loads: dict[str, list[Piece]] = field(default_factory=dict)
    stores: list[Piece] = field(default_factory=list)
    sends: dict[str, list[Piece]] = field(default_factory=dict)


@dataclass
class FaultWorkerMetadata(KVConnectorWorkerMetadata):  # type: ignore[misc]  # the same
    """What has been stored, and what turned out not to be readable."""

    stored: list[Piece] = field(default_factory=list)
    unreadable: list[Piece] = field(default_factory=list)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """What all workers say, one entry for each of them."""
        assert isinstance(other, FaultWorkerMetadata)
        return FaultWorkerMetadata(self.stored + other.stored, self.unreadable + other.unreadable)


class FaultConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # vLLM is no dependency
    """The scheduler side: an index over a store without limits."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        options = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._is_async = options["loads"] == "async"
        self._stores_at_end = options["stores"] == "end"
        self._block_size: int = vllm_config.cache_config.block_size
        specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        self._states = [n for n, spec in enumerate(specs) if hasattr(spec, "mamba_type")]
        self._attention = [n for n in range(len(specs)) if n not in self._states]
        self._index: dict[Key, int] = {}
        self._begun: set[Key] = set()
        self._num_places = self._era = 0
        self._ranks: int = vllm_config.parallel_config.world_size
        self._copies: dict[Piece, int] = {}
        self._asked: set[str] = set()
        self._offered: dict[str, int] = {}
        self._requests: dict[str, Any] = {}
        self._next = FaultMetadata()

    @property
    def has_states(self) -> bool:
        """Whether the model has recurrent layers."""
        return bool(self._states)

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Whole blocks that are stored. A step that loads still has to compute a token.

        Who waits for a load may have all of a prompt, since vLLM computes the last token anew; but
        not from a state, which has passed that token.
        """
        if int(request.request_id) % _ASKS_EVERY == 0 and request.request_id not in self._asked:
            self._asked.add(request.request_id)
            return None, False
        first, most = num_computed_tokens // self._block_size, len(request.block_hashes)
        if self._states or not self._is_async:
            most = min(most, (request.num_tokens - 1) // self._block_size)
        end = first
        while end < most and self._has(self._attention, request, end):
            end += 1
        while end > first and not self._has(self._states, request, end - 1):
            end -= 1
        self._offered[request.request_id] = first
        num_tokens = (end - first) * self._block_size
        return num_tokens, self._is_async and num_tokens > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """What was offered and taken is loaded."""
        self._asked.discard(request.request_id)
        first = self._offered.pop(request.request_id, 0)
        if not num_external_tokens:
            return
        end = first + num_external_tokens // self._block_size
        wanted = [(group, n) for group in self._attention for n in range(first, end)]
        wanted += [(group, end - 1) for group in self._states]
        tables = blocks.get_block_ids()
        pieces = [
            Piece(key, tables[group][n], self._index[key], self._era)
            for group, n in wanted
            for key in [(group, request.block_hashes[n])]
        ]
        loads = self._next.loads if self._is_async else self._next.waited_loads
        loads[request.request_id] = pieces

    def build_connector_meta(self, scheduler_output: Any) -> FaultMetadata:
        """Loads that were begun, blocks that this step fills, and what ended requests leave."""
        metadata, self._next = self._next, FaultMetadata()
        if not self._stores_at_end:
            state = scheduler_output.kv_connector_block_state
            for request_id, count in scheduler_output.num_scheduled_tokens.items():
                request, tables = self._requests[request_id], state.resolve_block_ids(request_id)
                computed = request.num_computed_tokens + count
                metadata.stores += self._unstored(request, tables, computed)
        if self._states:
            metadata.stores += self._handed_over(scheduler_output)
        return metadata

    def _has(self, groups: list[int], request: Any, place: int) -> bool:
        """Whether all of these groups have what belongs to the end of that block of a request."""
        return all((group, request.block_hashes[place]) in self._index for group in groups)

    def _handed_over(self, scheduler_output: Any) -> list[Piece]:
        """States at the ends of blocks, of requests that this step computes."""
        offered = scheduler_output.kv_connector_block_state.boundary_state_offloads
        return [
            piece
            for request_id, entries in offered.items()
            if request_id in scheduler_output.num_scheduled_tokens
            for group, block, boundary in entries
            if block and boundary % self._block_size == 0
            for place in [boundary // self._block_size - 1]
            for piece in self._begin(group, self._requests[request_id].block_hashes[place], block)
        ]

    def update_connector_output(self, connector_output: Any) -> None:
        """What all ranks have stored can be offered; what one of them cannot read is no more."""
        said = connector_output.kv_connector_worker_meta or FaultWorkerMetadata()
        for piece in said.stored:
            copies = self._copies.pop(piece, 0) + 1
            if copies < self._ranks:
                self._copies[piece] = copies
            elif piece.era == self._era:
                self._index[piece.key] = piece.place
        for piece in said.unreadable:
            if self._index.get(piece.key) == piece.place:
                del self._index[piece.key]

    def on_new_request(self, request: Any) -> None:
        """A request comes."""
        self._requests[request.request_id] = request

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """As with all groups; there is one."""
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Whether its blocks are needed until they are sent. Who was aborted leaves nothing."""
        self._requests.pop(request.request_id, None)
        self._asked.discard(request.request_id)
        self._offered.pop(request.request_id, None)
        ended = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)
        if not self._stores_at_end or request.status not in ended:
            return False, None
        # The last token was sampled, and no step that is answered has computed its KV.
        pieces = self._unstored(request, block_ids, request.num_tokens - 1)
        if pieces:
            self._next.sends[request.request_id] = pieces
        return bool(pieces), None

    def has_pending_push_work(self) -> bool:
        """Whether anything waits to be told to the worker."""
        return bool(self._next.sends)

    def reset_cache(self) -> bool:
        """Nothing that is stored, or is on its way, is offered again."""
        self._index.clear()
        self._begun.clear()
        self._era += 1
        return True

    def _unstored(
        self, request: Any, tables: Sequence[Sequence[int]], num_computed: int
    ) -> list[Piece]:
        """Full blocks of known tokens that were never stored, of groups of attention."""
        pieces = []
        for group in self._attention:
            table = tables[group]
            full = min(len(request.block_hashes), num_computed // self._block_size, len(table))
            for key, block in zip(request.block_hashes[:full], table[:full], strict=True):
                pieces += self._begin(group, key, block)
        return pieces

    def _begin(self, group: int, block_hash: bytes, block: int) -> list[Piece]:
        """What there is to store; nothing where that was begun before."""
        key = (group, block_hash)
        if key in self._begun:
            return []
        self._begun.add(key)
        self._num_places += 1
        return [Piece(key, block, self._num_places - 1, self._era)]

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Workers are simulated."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Workers are simulated."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """Workers are simulated."""

    def wait_for_save(self) -> None:
        """Workers are simulated."""
