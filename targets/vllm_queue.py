"""A free queue over block objects, as vLLM's `FreeKVCacheBlockQueue`, as a native queue target.

The blocks are objects of the class that stands beside the queue, or plain stand-ins. What the
queue raises passes through. Not driven: cursors over the queue (`iter_blocks_after`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.targets.linked_blocks import LinkedBlocks
from poolproof.targets.target import Target, source_of

__all__ = [
    "PlainBlock",
    "VllmQueue",
    "block_class_beside",
    "has_queue_shape",
    "queue_beside",
    "vllm_queue_target",
]

_SHAPE = ("popleft", "remove", "append", "get_all_free_blocks")


class PlainBlock:
    """A block for a queue whose module shows no block class of its own."""

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.prev_free_block: Any = None
        self.next_free_block: Any = None


class VllmQueue:
    """One queue over `num_blocks` blocks, all of them queued at first."""

    def __init__(
        self, queue_class: Callable[[list[Any]], Any], block_class: type, num_blocks: int
    ) -> None:
        self._blocks = [block_class(block_id) for block_id in range(num_blocks)]
        self._queue = queue_class(list(self._blocks))
        hidden: Any = None
        for verb in ("popleft_n", "append_n", "prepend_n"):
            if not callable(getattr(self._queue, verb, None)):
                setattr(self, verb, hidden)
        links = LinkedBlocks.find(self._queue, self._blocks, num_blocks)
        self.free_order: Callable[[], list[int]] = self._all_free
        self.free_neighbours: Any = None
        if links is not None:
            self.free_order = links.free_order
            self.free_neighbours = links.free_neighbours

    def popleft(self) -> int:
        block_id: int = self._queue.popleft().block_id
        return block_id

    def popleft_n(self, count: int, /) -> list[int]:
        return [block.block_id for block in self._queue.popleft_n(count)]

    def remove(self, block_id: int, /) -> None:
        self._queue.remove(self._blocks[block_id])

    def append(self, block_id: int, /) -> None:
        self._queue.append(self._blocks[block_id])

    def append_n(self, block_ids: list[int], /) -> None:
        self._queue.append_n([self._blocks[block_id] for block_id in block_ids])

    def prepend_n(self, block_ids: list[int], /) -> None:
        self._queue.prepend_n([self._blocks[block_id] for block_id in block_ids])

    def num_free(self) -> Any:
        return self._queue.num_free_blocks

    def _all_free(self) -> list[int]:
        return [block.block_id for block in self._queue.get_all_free_blocks()]


def has_queue_shape(cls: type) -> bool:
    """Whether the class is a queue over block objects, by its methods."""
    return all(callable(getattr(cls, name, None)) for name in _SHAPE) and not hasattr(
        cls, "free_order"
    )


def queue_beside(pool_class: type) -> type | None:
    """The queue class that the module of a pool, or of one of its bases, shows; None if none."""
    for base in pool_class.__mro__:
        module = sys.modules.get(base.__module__)
        for value in vars(module).values() if module else ():
            if isinstance(value, type) and has_queue_shape(value):
                return value
    return None


def vllm_queue_target(name: str, cls: type, version: str | None) -> Target:
    """The queue-level target of such a class. Raises TargetError for a class of another shape."""
    if not has_queue_shape(cls):
        missing = [verb for verb in _SHAPE if not callable(getattr(cls, verb, None))]
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{verb}()' for verb in missing)}, which a free "
            "queue over block objects has; run `poolproof new FILE` for a native skeleton"
        )
    block_class = block_class_beside(cls)
    notes = () if block_class else ("no block class stands beside it: stand-in blocks are used",)

    def make(num_blocks: int, enable_caching: bool) -> VllmQueue:  # noqa: ARG001 -- a queue caches nothing
        return VllmQueue(cls, block_class or PlainBlock, num_blocks)

    return Target(
        name=name,
        level=Level.QUEUE,
        shape="queue",
        profile=Profile.from_mapping({**Profile().to_json(), "misuse": "undefined"}),
        version=version,
        source=source_of(cls),
        make=make,
        real_class=cls,
        notes=notes,
    )


def block_class_beside(queue_class: type) -> type | None:
    """The class of the queue's module whose instances have the published links."""
    module = sys.modules.get(queue_class.__module__)
    for value in vars(module).values() if module else ():
        if (
            isinstance(value, type)
            and value is not queue_class
            and {"block_id", "prev_free_block", "next_free_block"} <= _attributes(value)
        ):
            return value
    return None


def _attributes(cls: type) -> set[str]:
    """The attributes that a class declares, or names in its constructor; nothing is built."""
    names: set[str] = set()
    for base in cls.__mro__:
        names.update(vars(base), vars(base).get("__annotations__", ()))
        code = getattr(vars(base).get("__init__"), "__code__", None)
        names.update(code.co_names if code else ())
    return names
