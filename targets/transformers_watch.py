"""Transformers' continuous batching as the watch follows it: its batch processor, before a pass.

A step is followed when `prepare_next_batch` has made the tensors of the model. Block tables are
those of the cache allocators. Left out, and named: allocators other than full attention, whose
tables go round. What the library restores from host memory is unknown, and what it copies for a
fork is copied.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Sequence
from typing import Any, overload

from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.target import TargetError
from poolproof.targets.loop_watch import LoopFacts, LoopRequest, LoopStep

__all__ = ["TransformersLoop", "processor_of"]

_FULL = "FullAttentionCacheAllocator"
_ASYNCHRONOUS = (
    "asynchronous batching plans a step before the tokens of the last one are known, and is not "
    "followed; build the manager with use_async_batching=False"
)


class TransformersLoop:
    """A `ContinuousBatchProcessor`. Raises TargetError where it cannot be followed."""

    def __init__(self, processor: Any) -> None:
        if getattr(processor, "use_async_batching", False):
            raise TargetError(_ASYNCHRONOUS)
        try:
            self._allocators = allocators = list(processor.cache.cache_allocators.values())
            self._pool = processor.cache.pool
            num_blocks = max(
                (self._pool.num_sectors + self._pool.num_reserved_sectors) * one.blocks_per_sector
                for one in allocators
            )
            sizes = [int(one.tokens_per_page) for one in allocators]
            self._scheduler = processor.scheduler
            self._offloading = processor.offloading_manager
        except AttributeError as error:
            raise TargetError(
                f"{type(processor).__name__} is another than that of Transformers "
                f"{_version()} is known to be: {error}"
            ) from error
        self._processor = processor
        self._copies: list[tuple[int, int]] = []
        self._brought: dict[str, int] = {}
        self._alive: set[str] = set()
        groups = [
            CacheGroup("full", size) if type(one).__name__ == _FULL else None
            for one, size in zip(allocators, sizes, strict=True)
        ]
        if not any(groups):
            raise TargetError("no layer of full attention: windows go round, and are not followed")
        self.facts = LoopFacts(
            engine=f"Transformers {_version()}",
            scheduler=f"{type(self._scheduler).__module__}.{type(self._scheduler).__qualname__}",
            num_blocks=num_blocks,
            groups=groups,
            block_sizes=sizes,
            left_out=[
                *(f"group {number} ({type(allocators[number]).__name__})"
                  for number, group in enumerate(groups) if group is None),
                "what comes from host memory, several ranks' own memories",
            ],
            is_running=any(one.block_table or one.ledger.cached_blocks for one in allocators),
        )  # fmt: skip

    def taps(self) -> Iterable[tuple[Any, str]]:
        """`prepare_next_batch` plans and `update_batch` ends a step; blocks come and are copied."""
        yield self._processor, "prepare_next_batch"
        yield self._processor, "update_batch"
        yield self._offloading, "restore_scheduled_requests"
        for allocator, group in zip(self._allocators, self.facts.groups, strict=True):
            if group is not None:
                yield allocator, "copy_blocks"

    def planned(self, answer: Any) -> LoopStep | None:
        """By the requests of the batch; `prepare_next_batch` says whether there is one."""
        if not answer:
            return None
        requests = []
        for planned in self._processor.inputs_and_outputs.requests_in_batch:
            state, count = planned.state, planned.query_length
            name, first = state.request_id, state.position_offset - count
            tables = [
                one.block_table.get(name, ()) if group else ()
                for one, group in zip(self._allocators, self.facts.groups, strict=True)
            ]
            tokens = _Joined(state.initial_tokens, state.generated_tokens)
            brought = self._brought.pop(name, 0)
            requests.append(LoopRequest(name, tokens, first, count, tables, brought))
        live = {*self._scheduler.active_requests, *self._scheduler.waiting_requests}
        ended, self._alive = self._alive - live, live
        copies, self._copies = self._copies, []
        return LoopStep(requests, copies, sorted(ended))

    def called(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Blocks are copied for a fork, or requests come back from host memory."""
        if name == "copy_blocks":
            sources, destinations = arguments
            self._copies += zip(sources, destinations, strict=True)
        elif name == "restore_scheduled_requests":
            for planned in arguments[0]:
                if planned.state.is_cpu_offloaded:
                    self._brought[planned.state.request_id] = planned.state.position_offset

    def blocks(self) -> tuple[int, int]:
        """Blocks of free sectors are free, and so are cached ones that nobody holds."""
        held = {block for one in self._allocators for t in one.block_table.values() for block in t}
        usable = self._pool.num_sectors * max(one.blocks_per_sector for one in self._allocators)
        return len(held), usable - len(held)

    def is_at_rest(self) -> bool:
        """Whether nobody runs or waits."""
        return not self._scheduler.active_requests and not self._scheduler.waiting_requests


def processor_of(engine: Any) -> Any:
    """The batch processor of a manager, made now where its thread has not made it yet.

    The manager's own warm-up does the same; its thread then takes the one that is there. Raises
    TargetError for asynchronous batching, before anything is made.
    """
    if hasattr(engine, "prepare_next_batch"):
        return engine
    config = getattr(engine, "continuous_batching_config", None)
    if getattr(config, "use_async_batching", False):
        raise TargetError(_ASYNCHRONOUS)
    if engine.batch_processor is None:
        engine.batch_processor = engine._create_batch_processor()  # noqa: SLF001 -- as `warmup`
    return engine.batch_processor


class _Joined(Sequence[int]):
    """Two lists that grow, one behind the other."""

    def __init__(self, head: Sequence[int], tail: Sequence[int]) -> None:
        self._head, self._tail = head, tail

    def __len__(self) -> int:
        return len(self._head) + len(self._tail)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            first, end, step = index.indices(len(self))
            if step != 1:
                return [self[place] for place in range(first, end, step)]
            border = len(self._head)
            return [
                *self._head[first : min(end, border)],
                *self._tail[max(0, first - border) : max(0, end - border)],
            ]
        if index < 0:
            index += len(self)
        border = len(self._head)
        return self._head[index] if index < border else self._tail[index - border]


def _version() -> str:
    try:
        return importlib.metadata.version("transformers")
    except importlib.metadata.PackageNotFoundError:
        return "of a checkout"
