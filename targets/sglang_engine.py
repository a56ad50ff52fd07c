"""The target `sglang-engine`: SGLang's own `Scheduler`, over its unified tree and pool of states.

Theirs are `Scheduler` with its `PrefillAdder`, `SchedulePolicy` and
`SchedulerBatchResultProcessor`, `Req`, `ScheduleBatch`, the allocators of pages and of states,
`HybridReqToTokenPool` with a `MambaPool`, and `UnifiedRadixCache` with its mamba component. So they
admit, cut into chunks, mix, retract, copy what was hit, track, checkpoint and evict.
`sglang_server.py` says how they are loaded, `sglang_scheduler.py` how they are put together.

Ours is what a server has around them:
- A round of `event_loop_normal`, or of `event_loop_overlap`, in two halves. `plan` takes in
  messages, asks `get_next_batch_to_run`, and launches; `answer` calls `process_batch_result` on the
  oldest batch. Under overlap a batch is planned before the results of the last one are looked at.
- `run_batch`: the forward pass samples what the worker is told. What it does with states is read
  off the batch (`sglang_states.py`).
- What makes a `Req` of a message, and the stream of outputs: of each request what was not sent
  yet, until it has ended.
- The configuration, which is published for the time of each call.

The chunk of the recurrent kernels, 64 tokens for a server, is 4 here, and the interval at which
decoding keeps states 8 (256). The pool of states has as many slots as a server needs at least for
its running requests (`_calculate_mamba_ratio`), so states are scarce. Blocks of the contract are
the pages of the pool for attention, then the slots for states; block 0 is the page for padding.

A request that is cancelled while it runs is computed once more before it ends, as `abort_request`
has it. A run without caching has the tree disabled and no extra buffer, as a server has.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.state_use import StateUse
from poolproof.targets.engine_target import engine_target, two_requests
from poolproof.targets.installed_sglang import SGLANG
from poolproof.targets.named_requests import NamedRequests
from poolproof.targets.sglang_engine_setups import (
    CHUNK_SIZE,
    SGLANG_SETUPS,
    TRACK_INTERVAL,
    SglangSetup,
)
from poolproof.targets.sglang_scheduler import (
    VOCABULARY,
    ServerParts,
    build_allocator,
    build_request_pool,
    build_scheduler,
    build_tree,
    configuration,
    ranks,
)
from poolproof.targets.sglang_server import SglangServer, sglang_server
from poolproof.targets.sglang_states import StateRows
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.token_names import NO_EXTRA_KEYS

__all__ = ["SglangEngine", "sglang_engine"]


class _Stream(HandedOver):
    """Takes what the result processor gives to users; `sent` is what nobody was told yet.

    Who was cancelled is told nothing any more, as the server has forgotten it.
    """

    def __init__(self) -> None:
        self.sent: list[tuple[int, list[int], bool]] = []
        self.cancelled: set[int] = set()

    def stream_output(self, requests: list[Any], _logprob: Any, skip: Any = None) -> None:
        """Of each request but `skip` what was not sent before."""
        for request in requests:
            if request is skip or request.finished_output:
                continue
            tokens = request.output_ids_through_stop
            new = tokens[request.send_token_offset :].tolist()
            request.send_token_offset = len(tokens)
            self._send(request, new, has_ended=request.finished())

    def send_output(self, _abort: Any, request: Any) -> None:
        """The scheduler ends a request outside of a step."""
        if not request.finished_output:
            self._send(request, [], has_ended=True)

    def _send(self, request: Any, new: list[int], *, has_ended: bool) -> None:
        request.finished_output = has_ended or None
        number = int(request.rid)
        if (new or has_ended) and number not in self.cancelled:
            self.sent.append((number, new, has_ended))


class SglangEngine:
    """A scheduler in `setup`, and the batches of its loop that are in flight."""

    def __init__(
        self, server: SglangServer, setup: SglangSetup, num_blocks: int, *, enable_caching: bool
    ) -> None:
        self._server = server
        self._setup = setup
        self._configuration = configuration(setup, enable_caching=enable_caching)
        self._ranks = ranks(server, setup)
        self._stream = _Stream()
        self._num_pages = num_blocks - 1 - setup.num_slots
        with self._published():
            pool = build_request_pool(server, setup, self._num_pages, enable_caching=enable_caching)
            self._allocator = build_allocator(server, setup, self._num_pages)
            self._tree = build_tree(
                server, setup, pool, self._allocator, enable_caching=enable_caching
            )
            self._pool = pool
            self._scheduler = build_scheduler(server, setup, self._tree, self._stream)
        self._rows = None
        if setup.has_states:
            self._rows = StateRows(pool, server.track_plan, CHUNK_SIZE, setup.cache_chunk_size)
        self._names = NamedRequests(enable_caching=enable_caching)
        self._messages: list[Any] = []
        self._in_flight: deque[Any] = deque()
        self._retracted: list[int] = []

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
        del priority  # all wait in one line
        named = self._names.submit(request_id, TokenChain.from_extra_keys(tokens, extra_keys))
        self._messages.append((request_id, named, max_new_tokens))

    def cancel(self, request_id: int) -> None:
        """Its user has gone; the scheduler is told before the next step."""
        self._messages.append(request_id)

    def plan(self) -> EnginePlan:
        """The first half of a round: messages, the next batch, and its launch."""
        with self._published():
            messages, self._messages = self._messages, []
            for message in messages:
                self._take_in(message)
            scheduler = self._scheduler
            waiting_before = set(scheduler.waiting_queue)
            planned = scheduler.get_next_batch_to_run(
                running_batch=scheduler.running_batch, last_batch=scheduler.last_batch
            )
            scheduler.running_batch = planned.running_batch
            batch = scheduler.last_batch = planned.batch_to_run
            preempted = tuple(
                int(request.rid)
                for request in scheduler.waiting_queue
                if request not in waiting_before
            )
            made = self._rows.copies_made() if self._rows is not None else []
            if not batch:
                self._in_flight.append(None)
                return EnginePlan((), self._block_pairs(made), preempted)
            parts = self._parts(batch, made)
            scheduler.forward_ct += 1
            batch.forward_iter = scheduler.forward_ct
            batch.input_ids = None
            flown = batch.copy() if self._setup.overlaps else batch
            self._in_flight.append(flown)
            if self._setup.overlaps:
                scheduler.result_queue.append((flown, None))
            return EnginePlan(parts, (), preempted)

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The second half: the results of the oldest batch are looked at."""
        del drafts
        batch = self._in_flight.popleft()
        if batch is not None:
            if self._setup.overlaps:
                self._scheduler.result_queue.popleft()
            with self._published():
                self._scheduler.process_batch_result(batch, self._result(batch, tokens))
        sent, self._stream.sent = self._stream.sent, []
        return [(number, self._names.given(new), ended) for number, new, ended in sent]

    def num_free(self) -> int:
        """Pages and states that are free, or in the tree and held by nobody."""
        pages = self._allocator.available_size() + self._tree.full_evictable_size()
        free: int = pages // self._setup.page_size
        if self._setup.has_states:
            free += self._pool.mamba_allocator.available_size() + self._tree.mamba_evictable_size()
        return free

    def unfinished(self) -> list[int]:
        """The requests that wait, are computed in chunks, or are decoded."""
        scheduler = self._scheduler
        batches = (scheduler.running_batch, scheduler.last_batch)
        requests = [request for batch in batches if batch is not None for request in batch.reqs]
        requests += scheduler.waiting_queue
        requests += [request for request in (scheduler.chunked_req,) if request is not None]
        left = {int(request.rid) for request in requests if not request.finished()}
        return sorted(left.union(m[0] for m in self._messages if isinstance(m, tuple)))

    @contextmanager
    def _published(self) -> Iterator[None]:
        """The configuration of this server, for as long as it is called.

        Without a device no memory can be pinned: what is to be pinned stays where it is.
        """
        tensor = self._server.memory_pool.torch.Tensor
        pin_memory = tensor.pin_memory
        tensor.pin_memory = _unpinned
        context = self._server.runtime_context._CONTEXT  # noqa: SLF001 - no accessor without a whole configuration
        before = context._config_bags, context._server_args, context.parallel._config  # noqa: SLF001 - the same
        context._config_bags, context._server_args = self._configuration  # noqa: SLF001 - the same
        context.parallel._config = self._ranks  # noqa: SLF001 - the same
        try:
            with self._server.imported():
                yield
        finally:
            tensor.pin_memory = pin_memory
            context._config_bags, context._server_args, context.parallel._config = before  # noqa: SLF001 - the same

    def _take_in(self, message: Any) -> None:
        if not isinstance(message, tuple):
            self._stream.cancelled.add(message)
            self._scheduler.abort_request(
                ServerParts(
                    rid=_name(message), abort_all=False, abort_message=None, finished_reason=None
                )
            )
            return
        request_id, named, max_new_tokens = message
        limits = self._server.sampling_params.SamplingParams(
            max_new_tokens=max_new_tokens, temperature=0
        )
        limits.normalize(None)
        request = self._server.schedule_batch.Req(
            _name(request_id),
            "",
            array("q", named),
            limits,
            eos_token_ids={STOP_TOKEN},
            vocab_size=VOCABULARY,
        )
        self._scheduler.init_req_max_new_tokens(request)
        self._scheduler._add_request_to_queue(request)  # noqa: SLF001 - the end of its intake

    def _parts(self, batch: Any, made: list[tuple[int, int]]) -> tuple[PlannedPart, ...]:
        if batch.forward_mode.is_extend():
            firsts, counts = batch.prefix_lens, batch.extend_lens
        else:
            firsts, counts = [end - 1 for end in batch.seq_lens_cpu.tolist()], [1] * len(batch.reqs)
        uses: list[tuple[StateUse, ...]] = [()] * len(batch.reqs)
        if self._rows is not None:
            uses = self._rows.uses(batch, made, self._num_pages)
        tables = [
            self._table(row, first + count)
            for row, first, count in zip(batch.req_pool_indices.tolist(), firsts, counts)
        ]
        return tuple(
            PlannedPart(int(request.rid), first, count, 0, self._in_groups(table), use)
            for request, first, count, table, use in zip(batch.reqs, firsts, counts, tables, uses)
        )

    def _in_groups(self, table: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        return (table, ()) if self._setup.has_states else (table,)

    def _table(self, row: int, end: int) -> tuple[int, ...]:
        """The pages of a row; -1 where its slots lie in none."""
        size = self._setup.page_size
        slots = self._pool.req_to_token[row, :end].tolist()
        pages = [slots[first : first + size] for first in range(0, end, size)]
        return tuple(
            page[0] // size
            if page[0] % size == 0 and page == list(range(page[0], page[0] + len(page)))
            else -1
            for page in pages
        )

    def _block_pairs(self, made: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        first = self._num_pages
        return tuple((source + first, into + first) for source, into in made)

    def _result(self, batch: Any, tokens: Mapping[int, list[int]]) -> Any:
        """What the forward pass has sampled; of a chunk inside a prompt, any token."""
        sampled = []
        for request in batch.reqs:
            number = int(request.rid)
            token = (tokens.get(number) or [1])[0]
            sampled.append(self._names.sampled(number, token))
        torch_tensor = batch.seq_lens_cpu.new_tensor
        return self._server.scheduler.GenerationBatchResult(next_token_ids=torch_tensor(sampled))


def _unpinned(tensor: Any) -> Any:
    return tensor


def _name(request_id: int) -> str:
    """All as long: a server aborts every request whose name begins with the one it is told."""
    return f"{request_id:012d}"


_NOTES = (
    NO_EXTRA_KEYS,
    "stand-ins: the constructor of Scheduler, run_batch and the model runner, the output stream",
    "stand-ins: modules of the server beside managers and mem_cache, which do nothing",
    f"chunks of recurrent kernels have {CHUNK_SIZE} tokens, for 64",
    f"decoding keeps a state each {TRACK_INTERVAL} tokens, for 256",
    "the allocators' PyTorch paths, which they take without a GPU: Triton kernels are not run",
    "speculation, sessions, LoRA, priorities, host memory, disaggregation: not driven",
    "states in int8, ReplaySSM, Mamba2's kernels, the tree in Rust, several ranks: not driven",
)


def sglang_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """The engine's classes. Raises TargetError where its sources or PyTorch are not there."""
    server = sglang_server()
    layouts = [
        EngineLayout(setup.name, setup.profile(), _maker(server, setup), setup.page_size)
        for setup in SGLANG_SETUPS
    ]
    with server.imported():
        return engine_target(
            name,
            overrides,
            layouts,
            server.scheduler.Scheduler,
            version=SGLANG.replace("-", " "),
            few_calls=partial(
                two_requests, num_tokens=9, num_blocks=8 + SGLANG_SETUPS[0].num_slots + 1
            ),
            adapter=f"the scheduler of {SGLANG.replace('-', ' ')}",
            own_modules=("sglang.srt.managers", "sglang.srt.mem_cache"),
            notes=_NOTES,
        )


def _maker(server: SglangServer, setup: SglangSetup) -> Make:
    def make(num_blocks: int, enable_caching: bool) -> SglangEngine:
        return SglangEngine(server, setup, num_blocks, enable_caching=enable_caching)

    return make
