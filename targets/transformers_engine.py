"""The target `transformers-engine`: Transformers' continuous batching, its whole loop, no model.

`ContinuousBatchProcessor` with its `Scheduler`, `OffloadingManager`, `PagedAttentionCache` and
inputs and outputs is the installed library's, built on the CPU as its manager builds it. Nothing is
replaced or stubbed. What the manager's thread does in each round is done here: requests and
cancellations go into the queues, `prepare_next_batch` plans, the sampled tokens are put where the
forward pass leaves them, `update_batch` hands them on. What users are given is what the output
router delivers; requests stream, so that each token is seen.

The plan of a step is read from the tensors that the model would get: the read and write indices.
They must be those of the tokens' slots (`transformers_manager.check_indices`), else the step is
wrong whatever it computes.

A request that loses its blocks is reset softly and queued again, which is what the library does
without host memory. Not driven, because they need a device: offloading to host memory (its pool is
pinned), asynchronous batching (streams and events), and the fast path for decoding (a flash
kernel's block table). Not driven either: sliding windows, whose layers read the window before they
write over it, which no plan can tell; forks; several ranks.
"""

from __future__ import annotations

import importlib
import queue
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.targets.adapter_fit import Call, require_fit
from poolproof.targets.engine_target import engine_target
from poolproof.targets.named_requests import NamedRequests
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.token_names import NO_EXTRA_KEYS
from poolproof.targets.transformers_manager import (
    CacheSize,
    ScatteredSlotsError,
    Transformers,
    blocks_of,
    check_indices,
    free_blocks,
    new_cache,
    transformers_parts,
)

__all__ = ["TransformersEngine", "transformers_engine"]

_BATCHING = "transformers.generation.continuous_batching"
_FIRST_NAME = 1 << 20
"""Names of tokens must fit into 32 bits: the library hands them over in such tensors."""
_PAGE_SIZE = 4

_CALLS = (
    Call(
        "__init__",
        named=(
            "cache",
            "config",
            "generation_config",
            "continuous_batching_config",
            "logit_processor",
            "input_queue",
            "cancel_queue",
            "output_router",
            "background_thread_status",
            "model_device",
            "model_dtype",
            "scheduler",
            "distributed_helper",
        ),
    ),
    Call("prepare_next_batch"),
    Call("update_batch"),
)


@dataclass(frozen=True)
class _Loop:
    """What the adapter uses of the loop, by the library's own names."""

    ContinuousBatchProcessor: Any
    OutputRouter: Any
    BackgroundThreadStatus: Any
    LogitsProcessors: Any
    GenerationConfig: Any
    SCHEDULER_MAPPING: Mapping[str, Any]
    torch: Any


@dataclass(frozen=True)
class _SetUp:
    """The scheduler and its limits; with `small_blocks` a sector has several blocks."""

    name: str
    scheduler: str
    max_batch_tokens: int = 16
    max_running: int = 4
    small_blocks: bool = False


_SETUPS = (
    _SetUp("fifo", "fifo"),
    _SetUp("prefill_first", "prefill_first"),
    _SetUp("fifo+chunks", "fifo", 6, 3, small_blocks=True),
    _SetUp("prefill_first+chunks", "prefill_first", 6, 3),
)


class TransformersEngine:
    """A batch processor, and the queues through which its manager speaks to it."""

    def __init__(
        self, parts: Transformers, loop: _Loop, setup: _SetUp, num_blocks: int, enable_caching: bool
    ) -> None:
        size = CacheSize(
            num_blocks=num_blocks, page_size=_PAGE_SIZE, small_blocks=setup.small_blocks
        )
        cache, config, batching = new_cache(
            parts,
            size,
            enable_caching=enable_caching,
            # A kernel that takes no mask: building one is most of a step's time.
            attention="flash_attention_2",
            max_batch_tokens=setup.max_batch_tokens,
            max_requests_per_batch=setup.max_running,
            max_blocks_per_request=0,
            use_async_batching=False,
            use_cuda_graph=False,
            scheduler_type=setup.scheduler,
        )
        self._RequestState = parts.RequestState
        self._new_tokens = loop.torch.tensor
        self._requests: queue.Queue[Any] = queue.Queue()
        self._cancelled: queue.Queue[str] = queue.Queue()
        self._router = loop.OutputRouter()
        self._cache = cache
        self._scheduler = loop.SCHEDULER_MAPPING[setup.scheduler](
            cache=cache,
            safety_margin=batching.safety_margin,
            max_requests_per_batch=setup.max_running,
        )
        self._processor = loop.ContinuousBatchProcessor(
            cache=cache,
            config=config,
            generation_config=loop.GenerationConfig(),
            continuous_batching_config=batching,
            logit_processor=loop.LogitsProcessors([]),
            input_queue=self._requests,
            cancel_queue=self._cancelled,
            output_router=self._router,
            background_thread_status=loop.BackgroundThreadStatus(),
            model_device=loop.torch.device("cpu"),
            model_dtype=parts.float32,
            scheduler=self._scheduler,
            distributed_helper=parts.DistributedHelper(None, None),
        )
        (self._allocator,) = cache.cache_allocators.values()
        # The first two sectors are for trash.
        self._first_block = 2 * self._allocator.blocks_per_sector
        self._names = NamedRequests(enable_caching=True, first_name=_FIRST_NAME)
        self._given: dict[str, int] = {}
        self._is_planned = False

    def submit(
        self,
        request_id: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request comes."""
        del priority  # there is one line
        named = self._names.submit(request_id, TokenChain.from_extra_keys(tokens, extra_keys))
        self._given[str(request_id)] = 0
        self._requests.put(
            self._RequestState(
                str(request_id),
                named,
                max_new_tokens=max_new_tokens,
                eos_token_id=STOP_TOKEN,
                streaming=True,
            )
        )

    def cancel(self, request_id: int) -> None:
        """Its user has gone: the loop is told before it plans the next step."""
        self._cancelled.put(str(request_id))

    def plan(self) -> EnginePlan:
        """The next step, as the tensors of the model have it."""
        before = list(self._scheduler.active_requests)
        self._is_planned = self._processor.prepare_next_batch()
        waiting = self._scheduler.waiting_requests
        preempted = tuple(int(name) for name in before if name in waiting)
        if not self._is_planned:
            return EnginePlan(preempted=preempted)
        return EnginePlan(self._parts(), preempted=preempted)

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The forward pass leaves a token for each request whose last token it computed."""
        del drafts
        if not self._is_planned:
            return []
        inputs = self._processor.inputs_and_outputs
        sampled = [
            self._sampled(int(planned.state.request_id), tokens)
            for planned in inputs.requests_in_batch
            if planned.has_new_token
        ]
        inputs.output_ids[0, : len(sampled)] = self._new_tokens(
            sampled, dtype=inputs.output_ids.dtype
        )
        self._processor.update_batch()
        self._is_planned = False
        outputs = []
        while not self._router.output_queue.empty():
            outputs.append(self._output(self._router.output_queue.get()))
        return outputs

    def num_free(self) -> int:
        """Blocks in free sectors, free blocks of sectors in use, and cached ones without owner."""
        return free_blocks(self._cache)

    def unfinished(self) -> list[int]:
        """The requests that run, wait, or have not been looked at."""
        known = (*self._scheduler.active_requests, *self._scheduler.waiting_requests)
        return [int(name) for name in known] + [-1] * self._requests.qsize()

    def _sampled(self, number: int, tokens: dict[int, list[int]]) -> int:
        """What the model samples; something also where nobody asked for it."""
        return self._names.sampled(number, tokens[number][0] if tokens.get(number) else 1)

    def _parts(self) -> tuple[PlannedPart, ...]:
        inputs = self._processor.inputs_and_outputs
        parts, reads, writes = [], list[int](), list[int]()
        for planned in inputs.requests_in_batch:
            name, count = planned.state.request_id, planned.query_length
            first = planned.state.position_offset - count
            read_at: list[list[int]] = [[]]
            written_at: list[list[int]] = [[]]
            self._cache.extend_read_and_write_indices(name, first, count, read_at, written_at)
            self._check(name, first, read_at[0], written_at[0])
            reads += read_at[0]
            writes += written_at[0]
            blocks = blocks_of(self._allocator, name, first + count)
            table = tuple(block - self._first_block for block in blocks)
            parts.append(PlannedPart(int(name), first, count, 0, (table,)))
        self._check_tensors(inputs, reads, writes, is_first=not any(part.first for part in parts))
        return tuple(parts)

    def _check(self, name: str, first: int, reads: list[int], writes: list[int]) -> None:
        try:
            check_indices(self._allocator, name, first, reads, writes)
        except ScatteredSlotsError as error:
            raise ViolationError(
                Violation("PLAN", Severity.WRONG_DATA_OF_ANOTHER, str(error))
            ) from error

    @staticmethod
    def _check_tensors(inputs: Any, reads: list[int], writes: list[int], *, is_first: bool) -> None:
        """The tensors have the indices of all requests; nothing is read where all are at 0."""
        given = inputs.write_index_storage[0, : inputs.true_write_sizes[0]].tolist()
        read = inputs.read_index_storage[0, : inputs.true_read_sizes[0]].tolist()
        if given != writes or (read != reads and not (is_first and not read)):
            raise ViolationError(
                Violation(
                    "PLAN",
                    Severity.WRONG_DATA_OF_ANOTHER,
                    f"the model is told to write at {given} and to read at {read}; the requests' "
                    f"slots are {writes} and {reads}",
                )
            )

    def _output(self, output: Any) -> tuple[int, list[int], bool]:
        given = self._given[output.request_id]
        self._given[output.request_id] = len(output.generated_tokens)
        new = self._names.given(output.generated_tokens[given:])
        return int(output.request_id), new, bool(output.is_finished())


def transformers_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """The installed library's loop. Raises TargetError where it cannot be imported or driven."""
    parts = transformers_parts()
    loop = _loop()
    require_fit(loop.ContinuousBatchProcessor, "Transformers' continuous batching", _CALLS)
    layouts = [_layout(parts, loop, setup) for setup in _SETUPS]
    return engine_target(
        name,
        overrides,
        layouts,
        loop.ContinuousBatchProcessor,
        version=parts.version,
        few_calls=_a_few_calls,
        adapter=f"Transformers' continuous batching in {parts.version}",
        notes=(
            NO_EXTRA_KEYS,
            "caching off: no block is shared and no prefix found",
            "offloading to host memory, asynchronous batching, block tables: they need a device",
            "sliding windows: a layer reads its window before it writes, which no plan tells",
            "forks, several ranks: not driven",
        ),
    )


def _loop() -> _Loop:
    wanted = {
        "ContinuousBatchProcessor": ("continuous_api", "ContinuousBatchProcessor"),
        "OutputRouter": ("continuous_api", "OutputRouter"),
        "BackgroundThreadStatus": ("continuous_api", "BackgroundThreadStatus"),
        "LogitsProcessors": ("cb_logits_processors", "ContinuousBatchingLogitsProcessorList"),
        "SCHEDULER_MAPPING": ("scheduler", "SCHEDULER_MAPPING"),
    }
    try:
        found = {
            name: getattr(importlib.import_module(f"{_BATCHING}.{module}"), theirs)
            for name, (module, theirs) in wanted.items()
        }
        generation: Any = importlib.import_module("transformers").GenerationConfig
        return _Loop(GenerationConfig=generation, torch=importlib.import_module("torch"), **found)
    except (ImportError, AttributeError) as error:
        raise TargetError(
            f"Transformers' continuous batching is not driven, because a part of it is missing: "
            f"{error}"
        ) from error


def _layout(parts: Transformers, loop: _Loop, setup: _SetUp) -> EngineLayout:
    profile = EngineProfile(
        cancelled_outputs="may-come",
        max_batch_tokens=setup.max_batch_tokens,
        max_running=setup.max_running,
    )
    return EngineLayout(setup.name, profile, _maker(parts, loop, setup), _PAGE_SIZE)


def _maker(parts: Transformers, loop: _Loop, setup: _SetUp) -> Make:
    def make(num_blocks: int, enable_caching: bool) -> TransformersEngine:
        return TransformersEngine(parts, loop, setup, num_blocks, enable_caching)

    return make


def _a_few_calls(make: Callable[[int, bool], Any]) -> None:
    """Two requests that run together, one of which is cancelled."""
    engine = make(8, True)
    for number in range(2):
        engine.submit(number, [1] * 2 * _PAGE_SIZE, max_new_tokens=3)
    engine.plan()
    engine.answer({0: [1], 1: [1]}, {})
    engine.cancel(1)
    engine.plan()
    engine.answer({0: [STOP_TOKEN]}, {})
    engine.num_free()
    engine.unfinished()
