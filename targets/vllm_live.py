"""Watches the scheduler of a running vLLM V1: its outputs become plain step records.

What the scheduler tells the workers (`SchedulerOutput`) is what they act on, so that is what is
recorded: whole tables for new and resumed requests, later only added blocks. It is kept when a step
is scheduled and completed when its output comes back, because with asynchronous scheduling the
tokens of a step are known only then. Nothing of the scheduler is changed or repaired.

Not watched: recurrent states, encoder caches, KV connectors (blocks that others fill look as if
nobody had computed them), several ranks' own memories. docs/live.md says how to hook it in.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.contract.target import TargetError
from poolproof.reference.step_oracle import Finding, StepOracle

__all__ = ["LiveWatch", "StepReader", "groups_of", "scheduler_of", "watch"]


@dataclass(frozen=True, slots=True)
class _Scheduled:
    """One request of a step that was scheduled."""

    request: Any
    first: int
    count: int
    drafts: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    replaced: bool


class StepReader:
    """Turns scheduler outputs, in their order, into step records."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Any, list[_Scheduled]]] = deque()
        self._number = 0
        self._unknown = count(-1, -1)

    def scheduled(self, output: Any, requests: Mapping[str, Any]) -> None:
        """A step was scheduled; `requests` are the scheduler's, by id."""
        counts, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
        parts = []

        def add(request_id: str, first: int, blocks: Any, *, replaced: bool) -> None:
            tables = tuple(tuple(group) for group in blocks or ())
            drafted = tuple(drafts.get(request_id, ()))
            request, number = requests[request_id], counts[request_id]
            parts.append(_Scheduled(request, first, number, drafted, tables, replaced))

        for new in output.scheduled_new_reqs:
            add(new.req_id, new.num_computed_tokens, new.block_ids, replaced=True)
        told = output.scheduled_cached_reqs
        for request_id, first, blocks in zip(
            told.req_ids, told.num_computed_tokens, told.new_block_ids, strict=True
        ):
            add(request_id, first, blocks, replaced=request_id in told.resumed_req_ids)
        self._waiting.append((output, parts))

    def finished(self, output: Any) -> StepRecord | None:
        """The output of a step has come back; its record, None for a step that is not known.

        Empty steps, of which nothing comes back, are passed over.
        """
        ended: list[str] = []
        while self._waiting:
            scheduled, parts = self._waiting.popleft()
            ended += [*scheduled.finished_req_ids, *(scheduled.preempted_req_ids or ())]
            if scheduled is output:
                self._number += 1
                copies = getattr(output, "kv_cache_block_copies", None) or ()
                return StepRecord(
                    self._number,
                    tuple(self._computed(part) for part in parts),
                    tuple((copy.src_block_id, copy.dst_block_id) for copy in copies),
                    tuple(ended),
                )
        return None

    def _computed(self, part: _Scheduled) -> ComputedTokens:
        request, end = part.request, part.first + part.count
        tokens = [*request.all_token_ids[: end - len(part.drafts)], *part.drafts]
        # A request that was aborted meanwhile: what was sampled is nobody's to know.
        tokens += [next(self._unknown) for _ in range(end - len(tokens))]
        lora = request.lora_request
        images = tuple(
            Image(f.identifier, f.mm_position.offset, f.mm_position.length)
            for f in request.mm_features
        )
        chain = TokenChain(
            tuple(tokens),
            None if lora is None else (lora.lora_name, lora.lora_path),
            request.cache_salt,
            images,
        )
        return ComputedTokens(
            request.request_id, chain, part.first, part.count, part.blocks, part.replaced
        )


class LiveWatch:
    """A scheduler under watch: `findings` so far, and the oracle's `counts`.

    `report` is called with each finding as soon as it is seen.
    """

    def __init__(self, scheduler: Any, report: Callable[[Finding], None] | None = None) -> None:
        config = scheduler.kv_cache_manager.kv_cache_config
        groups, sizes = groups_of(config)
        self._oracle = StepOracle(config.num_blocks, groups, sizes)
        self._reader = StepReader()
        self._report = report
        self.counts = self._oracle.counts
        self.findings: list[Finding] = []

    def scheduled(self, output: Any, requests: Mapping[str, Any]) -> None:
        """To be called with what `schedule` returned."""
        self._reader.scheduled(output, requests)

    def finished(self, output: Any) -> None:
        """To be called before `update_from_output`."""
        record = self._reader.finished(output)
        for finding in self._oracle.record(record) if record is not None else ():
            self.findings.append(finding)
            if self._report is not None:
                self._report(finding)


def watch(scheduler: Any, report: Callable[[Finding], None] | None = None) -> LiveWatch:
    """Watch a scheduler object from now on; it must not have scheduled anything yet.

    Raises TargetError where it cannot be watched.
    """
    watched = LiveWatch(scheduler, report)
    schedule, update = scheduler.schedule, scheduler.update_from_output

    def schedule_and_tell(*arguments: Any, **named: Any) -> Any:
        output = schedule(*arguments, **named)
        watched.scheduled(output, scheduler.requests)
        return output

    def tell_and_update(output: Any, *arguments: Any, **named: Any) -> Any:
        watched.finished(output)
        return update(output, *arguments, **named)

    scheduler.schedule, scheduler.update_from_output = schedule_and_tell, tell_and_update
    return watched


def scheduler_of(llm: Any) -> Any:
    """The scheduler of a `vllm.LLM` that runs in this process. Raises TargetError otherwise."""
    core: Any = getattr(llm.llm_engine.engine_core, "engine_core", None)
    if core is None or not hasattr(core, "scheduler"):
        raise TargetError(
            "the engine core runs in another process; set VLLM_ENABLE_V1_MULTIPROCESSING=0 before "
            "vllm is imported, or set POOLPROOF_WATCH for its server (docs/live.md)"
        )
    return core.scheduler


def groups_of(config: Any) -> tuple[list[CacheGroup], list[int]]:
    """The cache groups of a `KVCacheConfig` and their block sizes.

    Raises TargetError for a kind of group that is not watched.
    """
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    groups, sizes = [], []
    for group in config.kv_cache_groups:
        spec = group.kv_cache_spec
        if isinstance(spec, interface.SlidingWindowSpec):
            groups.append(CacheGroup("sliding", spec.block_size, spec.sliding_window))
        elif isinstance(spec, interface.ChunkedLocalAttentionSpec):
            groups.append(CacheGroup("chunked", spec.block_size, spec.attention_chunk_size))
        elif isinstance(spec, interface.FullAttentionSpec):
            groups.append(CacheGroup("full", spec.block_size))
        else:
            raise TargetError(f"cache groups of {type(spec).__name__} are not watched")
        sizes.append(spec.block_size)
    return groups, sizes
