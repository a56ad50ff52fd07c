"""The target `sglang-hicache-engine`: SGLang 0.5.23 with a tier in host memory (HiCache).

The classes are the engine's own, unmodified: `UnifiedRadixCache` with its tree core and what
`init_hicache` builds (`sglang_hicache_parts.py`), the allocators and the rows of requests,
`PrefillAdder` and `PrefillBudget`, which admit prompts and load them back, `alloc_for_extend` and
`alloc_for_decode`, and the functions that match, checkpoint and release a request's KV.

The loop around them is ours, since `Scheduler` builds a model, and the module of requests imports
the server: what `get_next_batch_to_run`, `get_new_batch_prefill`, `update_running_batch`,
`retract_decode`, `process_batch_result_prefill` and `_decode`, `abort_request` and `flush_cache` do
with the tree is done here in their order, for requests without speculation, grammars and sessions.
`docs/engines.md` has the list.

A step waits for the loads that were started for it, as its layers do; a store and a load wait for
the steps on the stream that their controller was fenced with. Messages are read before each step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.targets.engine_target import engine_target, two_requests
from poolproof.targets.installed_sglang import SGLANG, SGLANG_STUBS
from poolproof.targets.sglang_hicache_parts import (
    Hicache,
    HicacheTree,
    TierCopy,
    hicache_parts,
    hicache_tree,
)
from poolproof.targets.sglang_unified_manager import UnifiedKvInfo, UnifiedRequest
from poolproof.targets.target import EngineLayout, Make, Target

__all__ = ["SglangHicacheEngine", "sglang_hicache_engine"]


class HicacheKvInfo(UnifiedKvInfo):
    """Without recurrent state, which a load looks for."""

    mamba_pool_idx = None


class HicacheRequest(UnifiedRequest):
    """A request as the loop and the engine's functions use it, and what it may sample."""

    kv_class = HicacheKvInfo
    host_hit_length = swa_host_hit_length = mamba_host_hit_length = 0
    auxiliary_swa_host_hit_length = 0
    storage_hit_length = storage_hit_start = 0
    host_hit_is_storage = False
    host_loaded_length = 0
    best_match_node = last_host_node = None
    num_matched_prefix_tokens = 0
    retracted_stain = is_retracted = is_aborted = False
    inflight_middle_chunks = 0
    to_finish = False
    finished_len: int | None = None  # type: ignore[assignment]  # that of a manager is never told

    def __init__(self, hicache: Hicache, number: int, prompt: _Prompt) -> None:
        super().__init__(str(number), prompt.tokens, prompt.extra_key, prompt.cache_salt)
        self.number = number
        self.sampling_params = HandedFields(max_new_tokens=prompt.max_new_tokens, ignore_eos=False)
        self.cache_request_handle = hicache.CacheRequestHandle(str(number), 0)

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len

    def owned_kv_len(self) -> int:
        """What is behind the end that its user sees belongs to nobody."""
        committed = self.kv.kv_committed_len
        if self.finished_len is None:
            return committed
        return min(committed, len(self.origin_input_ids) + self.finished_len)

    def needs_host_load_back(self) -> bool:
        return self.host_hit_length > 0

    def materialized_host_hit_len(self) -> int:
        return self.host_loaded_length

    def fulfilled_storage_hit_len(self, _prefix_len: int) -> int:
        return 0

    def finishes_with_next(self) -> bool:
        """Whether its limit is reached with one token more."""
        limit: int = self.sampling_params.max_new_tokens
        return len(self.output_ids) + 1 >= limit

    def sample(self, token: int) -> None:
        """A token was sampled; an abort, the stop token or the limit ends the request."""
        self.output_ids.append(token)
        if self.to_finish:
            self.has_ended = self.is_aborted = True
            return
        if token == STOP_TOKEN or len(self.output_ids) >= self.sampling_params.max_new_tokens:
            self.has_ended = True
            self.finished_len = len(self.output_ids)

    def retract(self) -> None:
        """It has lost its KV, and is computed again."""
        self.prefix_len = self.extend_end = 0
        self.last_node = self.lock = None
        self.kv.cache_protected_len = self.kv.cache_inserted_len = 0
        self.kv.kv_committed_len = 0
        self.num_matched_prefix_tokens = self.inflight_middle_chunks = 0
        self.is_retracted = self.retracted_stain = True


@dataclass
class _Prompt:
    tokens: list[int]
    extra_key: str | None
    cache_salt: str | None
    max_new_tokens: int


@dataclass
class _Batch(HandedOver):
    """What one step computes, with the lengths that the engine's allocation reads.

    `chunked` is the request whose prompt the step computes in part.
    """

    reqs: list[HicacheRequest]
    tree_cache: Any
    req_to_token_pool: Any
    is_extend: bool
    chunked: HicacheRequest | None = None
    consumer_index: int = -1
    loads: list[TierCopy] = field(default_factory=list)
    device: str = "cpu"
    hisparse_coordinator: None = None
    model_config: Any = field(default_factory=lambda: HandedFields(is_encoder_decoder=False))
    prefix_lens: list[int] = field(default_factory=list)
    extend_lens: list[int] = field(default_factory=list)
    extend_num_tokens: int = 0
    seq_lens: Any = None
    seq_lens_cpu: Any = None
    req_pool_indices: Any = None
    req_pool_indices_cpu: Any = None

    def batch_size(self) -> int:
        return len(self.reqs)

    def maybe_evict_swa(self) -> None:
        """There is no window."""

    def is_dllm(self) -> bool:
        return False

    def measure_extend(self) -> None:
        """The lengths of a step that computes prompts."""
        self.prefix_lens = [request.prefix_len for request in self.reqs]
        self.extend_lens = [request.extend_len for request in self.reqs]
        self.extend_num_tokens = sum(self.extend_lens)
        self._set_lens([request.extend_end for request in self.reqs])

    def measure_decode(self) -> None:
        """The lengths of a step that computes a sampled token of each request."""
        self._set_lens([request.kv.kv_committed_len for request in self.reqs])
        rows = [request.kv.req_pool_idx for request in self.reqs]
        self.req_pool_indices = self._tensor(rows)
        self.req_pool_indices_cpu = self.req_pool_indices.clone()

    def _set_lens(self, lengths: list[int]) -> None:
        self.seq_lens = self._tensor(lengths)
        self.seq_lens_cpu = self.seq_lens.clone()

    def _tensor(self, numbers: list[Any]) -> Any:
        table = self.req_to_token_pool.req_to_token
        return table.new_tensor([int(number) for number in numbers]).long()


class SglangHicacheEngine:
    """The loop over `host`, and the steps and copies of it that are in flight."""

    def __init__(self, hicache: Hicache, host: HicacheTree, set_up: _SetUp) -> None:
        self._hicache, self._parts = hicache, hicache.parts
        self._host, self._tree = host, host.tree
        self._rows, self._allocator = host.rows, host.allocator
        self._page_size: int = host.tree.page_size
        self._set_up = set_up
        self._ratio = hicache.NewTokenRatioTracker.from_config()
        self._requests: dict[int, HicacheRequest] = {}
        self._messages: list[tuple[HicacheRequest, bool]] = []
        self._waiting: list[HicacheRequest] = []
        self._running: list[HicacheRequest] = []
        self._chunked: HicacheRequest | None = None
        self._chunked_to_abort: HicacheRequest | None = None
        self._last: _Batch | None = None
        self._in_flight: deque[_Batch | None] = deque()
        self._is_full = False
        self._preempted: list[int] = []
        self._failed: list[tuple[int, list[int], bool]] = []
        self._told: dict[int, TierCopy] = {}
        self._num_told = 0
        self._num_answered = 0

    def submit(
        self,
        request_id: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request comes; it is looked at before the next step."""
        del priority  # first come, first served
        whole = {kind: value for kind, value, _, end in extra_keys or () if end is None}
        extra_key = "@".join(whole["lora"]) if "lora" in whole else None
        prompt = _Prompt(tokens, extra_key, whole.get("salt"), max_new_tokens)
        request = HicacheRequest(self._hicache, request_id, prompt)
        self._requests[request_id] = request
        self._messages.append((request, False))

    def cancel(self, request_id: int) -> None:
        """Its user has gone; the scheduler is told before the next step."""
        request = self._requests.get(request_id)
        if request is not None:
            self._messages.append((request, True))

    def plan(self) -> EnginePlan:
        """Messages, then the next batch: prompts before tokens that were sampled."""
        self._read_messages()
        self._abort_chunked()
        self._tree.check_hicache_events()
        self._merge_last()
        batch = self._new_prefill()
        if batch is None and self._running:
            batch = self._next_decode()
        if batch is None and not self._unfinished():
            self._tree.sanity_check()  # what the server's check of an idle moment asks of the tree
        parts = tuple(self._part(request, batch) for request in batch.reqs) if batch else ()
        self._host.copies.num_launched += 1
        self._in_flight.append(batch)
        self._last = batch
        transfers, flushes = self._moves(batch)
        preempted, self._preempted = self._preempted, []
        return EnginePlan(
            parts, preempted=tuple(preempted), transfers=transfers, flushes=tuple(flushes)
        )

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The results of the oldest batch are looked at."""
        del drafts
        self._num_answered += 1
        batch = self._in_flight.popleft()
        outputs, self._failed = self._failed, []
        if batch is None:
            return outputs
        for copy in batch.loads:
            copy.is_done = True
        self._allocator.free_group_begin()
        for request in batch.reqs:
            sampled = tokens.get(request.number) or [1]
            if batch.is_extend:
                is_given = self._process_prefill(request, sampled[0])
            else:
                is_given = self._process_decode(request, sampled[0])
            if is_given and not request.is_aborted:
                outputs.append((request.number, sampled, request.has_ended))
            if request.has_ended:
                self._requests.pop(request.number, None)
        self._allocator.free_group_end()
        self._tree.flush_pending_backups()
        return outputs

    def arrived(self, transfer_id: int, ok: bool) -> None:
        """A copy is done."""
        del ok  # none is lost
        copy = self._told.pop(transfer_id, None)
        if copy is not None:
            copy.is_done = True

    def reset(self) -> bool:
        """`flush_cache`: only where nobody waits or runs and no copy is unacknowledged."""
        tree = self._tree
        is_idle = not (self._messages or self._unfinished() or any(self._in_flight) or self._last)
        if not is_idle or tree.ongoing_write_through or tree.ongoing_load_back:
            return False
        tree.reset()
        self._rows.clear()
        self._allocator.clear()
        return True

    def num_free(self) -> int:
        """Pages that are free, or cached and held by nobody."""
        slots: int = self._allocator.available_size() + self._tree.evictable_size()
        return slots // self._page_size

    def unfinished(self) -> list[int]:
        """The requests that wait or run."""
        unread = [request.number for request, aborts in self._messages if not aborts]
        return unread + [request.number for request in self._unfinished()]

    def _unfinished(self) -> list[HicacheRequest]:
        launched = [request for batch in self._in_flight if batch for request in batch.reqs]
        held = [*self._waiting, *self._running, *launched]
        held += [self._chunked] if self._chunked else []
        return [r for r in dict.fromkeys(held) if not r.has_ended]

    def _read_messages(self) -> None:
        """New requests and aborts, as `ingest_requests` hands them on."""
        messages, self._messages = self._messages, []
        for request, aborts in messages:
            if not aborts:
                self._waiting.append(request)
            elif not request.has_ended:
                self._abort(request)

    def _abort(self, request: HicacheRequest) -> None:
        """`abort_request`: who runs is computed once more, and ends with what that samples."""
        if request is self._chunked:
            self._chunked_to_abort = request
        if request in self._waiting:
            self._waiting.remove(request)
            self._let_go(request)
            return
        if request in self._running or (self._last and request in self._last.reqs):
            request.to_finish = True

    def _let_go(self, request: HicacheRequest) -> None:
        request.has_ended = request.is_aborted = True
        self._requests.pop(request.number, None)
        outcome = self._hicache.CacheRequestOutcome.ABORT
        self._tree.finish(request.cache_request_handle, outcome)

    def _abort_chunked(self) -> None:
        """`process_pending_chunked_abort`: no further chunk is launched."""
        request = self._chunked_to_abort
        if request is None:
            return
        if request is not self._chunked:
            self._chunked_to_abort = None
            if not request.has_ended and request.kv.holds_kv:
                self._abort(request)
            return
        request.to_finish = False
        self._let_go(request)
        self._parts.release_kv_cache(request, self._tree, checkpoint=False)
        self._chunked = self._chunked_to_abort = None

    def _merge_last(self) -> None:
        """What was prefilled joins those that decode; a part of a prompt is checkpointed."""
        excluded = []
        chunked = self._chunked
        if chunked is not None:
            excluded.append(chunked)
            if chunked.extend_end > chunked.prefix_len:
                self._checkpoint(chunked)
        last = self._last
        if last is not None and last.is_extend:
            excluded += [last.chunked] if last.chunked else []
            stays = [r for r in last.reqs if not r.finished() and r not in excluded]
            if len(stays) < len(last.reqs):
                self._is_full = False
            self._running += stays
        before = len(self._running)
        self._running = [request for request in self._running if not request.finished()]
        if len(self._running) < before or not self._running:
            self._is_full = False

    def _new_prefill(self) -> _Batch | None:
        """`_get_new_batch_prefill_raw`, with the engine's own adder."""
        if (self._is_full or not self._waiting) and self._chunked is None:
            return None
        if self._num_allocatable() <= 0 and self._chunked is None:
            self._is_full = True
            return None
        adder = self._adder()
        if self._chunked is not None:
            self._chunked.refresh_fill_ids()
            self._chunked = adder.add_chunked_req(self._chunked)
        self._admit(adder)
        admitted: list[HicacheRequest] = adder.can_run_list
        if not admitted:
            return None
        self._waiting = [request for request in self._waiting if request not in admitted]
        if adder.new_chunked_req is not None:
            self._chunked = adder.new_chunked_req
        if self._chunked is not None:
            self._chunked.inflight_middle_chunks += 1
        batch = _Batch(admitted, self._tree, self._rows, True, self._chunked)
        batch.consumer_index = self._tree.ready_to_load_host_cache()
        for request in admitted:
            request.is_retracted = False
        batch.measure_extend()
        self._hicache.alloc_for_extend(batch)
        return batch

    def _adder(self) -> Any:
        running = _Batch(self._running, self._tree, self._rows, False)
        return self._hicache.PrefillAdder(
            self._page_size,
            self._tree,
            self._allocator,
            running,
            self._ratio.current,
            self._set_up.max_batch_tokens,
            self._set_up.max_batch_tokens,
            max_prefill_bs=self._set_up.max_running,
            max_running_requests=self._set_up.max_running,
            waiting_queue_len=len(self._waiting),
        )

    def _admit(self, adder: Any) -> None:
        results = self._hicache.AddReqResult
        for request in self._waiting:
            if adder.budget_state() == results.OTHER:
                return
            held = sum(r.kv.holds_kv for r in adder.can_run_list)
            if len(adder.can_run_list) >= self._num_allocatable(held):
                self._is_full = True
            if self._is_full:
                return
            self._match(request)
            result = adder.add_one_req(
                request, has_chunked_req=self._chunked is not None, truncation_align_size=None
            )
            if result != results.CONTINUE:
                if result == results.NO_TOKEN:
                    self._is_full = bool(adder.can_run_list or self._running)
                return

    def _match(self, request: HicacheRequest) -> None:
        """`init_next_round_input`."""
        request.refresh_fill_ids()
        ids = request.full_untruncated_fill_ids
        result = self._parts.match_kv_cache(
            request, self._tree, ids, cow_mamba=False, max_prefix_len=len(ids) - 1
        )
        if result.cache_protected_len is None:
            request.kv.cache_protected_len = request.prefix_len

    def _num_allocatable(self, num_held_rows: int = 0) -> int:
        rows: int = self._rows.available_size() + num_held_rows
        return min(self._set_up.max_running - len(self._running), rows)

    def _next_decode(self) -> _Batch | None:
        """`update_running_batch`: who does not fit any more is retracted."""
        before = len(self._running)
        ending = self._ending_in_flight()
        self._running = [r for r in self._running if not r.finished() and r not in ending]
        if not self._running:
            self._is_full = False
            return None
        fits = self._decode_fits(self._running)
        if not fits and ending:
            self._is_full = False
            return None
        if fits:
            self._ratio.decay_step()
        else:
            self._retract()
        if len(self._running) < before:
            self._is_full = False
        if not self._running:
            return None
        batch = _Batch(list(self._running), self._tree, self._rows, False)
        batch.measure_decode()
        self._hicache.alloc_for_decode(batch, 1)
        return batch

    def _ending_in_flight(self) -> list[HicacheRequest]:
        """Those whose token in flight reaches their limit, as the overlapped loop skips them."""
        queued = [request for batch in self._in_flight if batch for request in batch.reqs]
        return [r for r in self._running if r in queued and r.finishes_with_next()]

    def _decode_fits(self, requests: list[HicacheRequest]) -> bool:
        size = self._page_size
        num_pages = sum(request.kv.kv_committed_len % size == 0 for request in requests)
        fits: bool = self._allocator.check_decode_capacity(
            num_tokens=num_pages * size, tree_cache=self._tree, requests=requests
        )
        return fits

    def _retract(self) -> None:
        """`retract_decode`: the request with the fewest tokens of its own goes first."""

        def kept(request: HicacheRequest) -> tuple[int, int]:
            return len(request.output_ids), -len(request.origin_input_ids)

        left = sorted(self._running, key=kept, reverse=True)
        is_first = True
        while is_first or not self._decode_fits(left):
            if len(left) == 1:
                break
            is_first = False
            request = left.pop()
            self._release_retracted(request, len(left))
            self._waiting.append(request)
        if len(left) == 1 and not self._decode_fits(left):
            request = left.pop()
            self._release_retracted(request, 0)
            request.has_ended = True
            self._requests.pop(request.number, None)
            if not request.to_finish:
                self._failed.append((request.number, [], True))
        self._running = [request for request in self._running if request in left]
        estimate = self._hicache.NewTokenRatioTracker.estimate_new_token_ratio_after_retract
        self._ratio.current = estimate(self._running)

    def _release_retracted(self, request: HicacheRequest, num_left: int) -> None:
        self._parts.release_kv_cache(request, self._tree, checkpoint=False)
        self._parts.evict_from_tree_cache(self._tree, num_left * self._hicache.retract_decode_steps)
        request.retract()
        self._preempted.append(request.number)

    def _process_prefill(self, request: HicacheRequest, token: int) -> bool:
        """Whether the request was given the token."""
        is_whole = request.inflight_middle_chunks <= 0
        if (request.finished() and is_whole) or request.is_retracted:
            return False
        if not is_whole:
            request.inflight_middle_chunks -= 1
            return False
        request.sample(token)
        if request.finished():
            self._parts.release_kv_cache(request, self._tree, checkpoint=True)
        else:
            self._checkpoint(request)
        return True

    def _process_decode(self, request: HicacheRequest, token: int) -> bool:
        """Whether the request was given the token."""
        if request.finished() or request.is_retracted:
            return False
        request.sample(token)
        if request.finished():
            self._parts.release_kv_cache(request, self._tree, checkpoint=True)
        return True

    def _checkpoint(self, request: HicacheRequest) -> None:
        self._parts.checkpoint_kv_cache(request, self._tree)

    def _moves(self, batch: _Batch | None) -> tuple[tuple[Transfer, ...], list[int]]:
        """The copies that nobody was told of, and those that are over before the step.

        The scheduler stood still for some while it planned, so what it began afterwards comes after
        them: a load that the step's layers wait for belongs to the step. One that was not fenced
        against the steps in flight may end before these.
        """
        copies = self._host.copies
        begun, copies.begun = copies.begun, []
        waited, copies.waited_for = copies.waited_for, []
        consumed = self._consumed(batch)
        transfers, flushes = [], list(waited)
        for copy in begun:
            copy.number = self._num_told
            self._num_told += 1
            is_fenced = copy.after > self._num_answered
            waits = copy in consumed and (is_fenced or not self._num_in_flight())
            if batch is not None and waits:
                batch.loads.append(copy)
            else:
                self._told[copy.number] = copy
                flushes += [copy] if copy in consumed else []
            transfers.append(self._transfer(copy, waits=waits, follows=is_fenced and not waits))
        return tuple(transfers), [c.number for c in flushes if c.number is not None]

    def _num_in_flight(self) -> int:
        """Steps that were launched before the one that is planned."""
        return self._host.copies.num_launched - 1 - self._num_answered

    def _transfer(self, copy: TierCopy, *, waits: bool, follows: bool) -> Transfer:
        assert copy.number is not None
        pages, places = self._pages(copy.device_slots, -1), self._pages(copy.host_slots, 0)
        return Transfer(copy.number, copy.is_load, waits, pages, places, follows=follows)

    def _consumed(self, batch: _Batch | None) -> list[TierCopy]:
        """The loads that the layers of a step wait for."""
        if batch is None or batch.consumer_index < 0:
            return []
        counter = self._tree.cache_controller.layer_done_counter
        before: list[TierCopy] = counter.events[batch.consumer_index].finish_event.before
        return [copy for copy in before if not copy.is_done]

    def _part(self, request: HicacheRequest, batch: _Batch) -> PlannedPart:
        end: int = request.kv.kv_allocated_len
        first = request.prefix_len if batch.is_extend else end - 1
        row = self._rows.req_to_token[request.kv.req_pool_idx, :end].tolist()
        return PlannedPart(request.number, first, end - first, 0, (self._pages(row, -1),))

    def _pages(self, slots: list[int], shift: int) -> tuple[int, ...]:
        """The pages that slots lie in, one after the other; -1 where they lie in none."""
        size = self._page_size
        return tuple(
            page + shift if run == list(range(page * size, page * size + len(run))) else -1
            for run in (slots[first : first + size] for first in range(0, len(slots), size))
            for page in (run[0] // size,)
        )


def sglang_hicache_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """The engine's classes. Raises TargetError where its sources or PyTorch are not there."""
    hicache = hicache_parts()
    return engine_target(
        name,
        overrides,
        [_layout(hicache, set_up) for set_up in _SET_UPS],
        hicache.UnifiedRadixCache,
        version=SGLANG.replace("-", " "),
        few_calls=partial(two_requests, num_tokens=9),
        adapter="SGLang's hierarchical cache, of release 0.5.23",
        notes=_NOTES,
    )


_NOTES = (
    f"stand-ins: {', '.join(SGLANG_STUBS)}; orjson, where it is missing",
    "stand-ins: the loop of the scheduler, Req and ReqKvInfo, and the server's configuration",
    "stand-ins: streams and events of the device, and the memory of both tiers",
    "a model of one layer: a load is whole when its first layer is",
    "the storage behind the host tier, sliding windows, recurrent state: not driven",
    "other policies than lru and fcfs, mixed chunks, sessions, speculation: not driven",
    "several ranks, and the check that they agree: not driven",
)

_POLICIES = {
    "write-through": "write_through",
    "selective": "write_through_selective",
    "write-back": "write_back",
}


@dataclass(frozen=True)
class _SetUp:
    """A write policy, and the size of the host tier as a share of the device's."""

    name: str
    host_share: float = 1.5
    max_batch_tokens: int = 64
    max_running: int = 6
    page_size: int = 4
    io_backend: str = "kernel"

    @property
    def overlaps(self) -> bool:
        return "overlap" in self.name.split("+")

    @property
    def settings(self) -> dict[str, str]:
        policy = _POLICIES[self.name.partition("+")[0]]
        return {"hicache_write_policy": policy, "hicache_io_backend": self.io_backend}


_SET_UPS = (
    _SetUp("write-through"),
    _SetUp("write-through+overlap+chunks", max_batch_tokens=12, max_running=3),
    _SetUp("write-through+overlap+small-host", host_share=0.5),
    _SetUp("write-through+page-1", page_size=1, max_batch_tokens=24),
    _SetUp("selective+overlap", host_share=1.0, io_backend="direct"),
    _SetUp("write-back"),
    _SetUp("write-back+overlap+chunks", max_batch_tokens=12, max_running=3),
    _SetUp("write-back+overlap+small-host", host_share=0.5),
)


def _layout(hicache: Hicache, set_up: _SetUp) -> EngineLayout:
    profile = EngineProfile(
        stale_outputs="may-drop",
        transfers="never-fail",
        transfer_order="fifo",
        cancelled_outputs="one-more",
        answers="when-full" if set_up.overlaps else "any-time",
        max_batch_tokens=set_up.max_batch_tokens,
        max_running=set_up.max_running,
        steps_in_flight=2 if set_up.overlaps else 1,
        # Admission wants a page more than fits, and rounds the prompt up to pages.
        spare_tokens=2 * set_up.page_size,
    )
    return EngineLayout(set_up.name, profile, _maker(hicache, set_up), set_up.page_size)


def _maker(hicache: Hicache, set_up: _SetUp) -> Make:
    def make(num_blocks: int, enable_caching: bool) -> SglangHicacheEngine:
        host = hicache_tree(
            hicache,
            set_up.settings,
            num_pages=num_blocks,
            num_host_pages=max(1, int(num_blocks * set_up.host_share)),
            page_size=set_up.page_size,
            num_rows=set_up.max_running + 2,
            enable_caching=enable_caching,
        )
        return SglangHicacheEngine(hicache, host, set_up)

    return make
