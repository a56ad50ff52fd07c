"""The parts of a pool in vLLM V1's shape, each on its own: its free queue and its index of hashes.

A queue as `FreeKVCacheBlockQueue` is a native queue target, a map as `BlockHashToBlockMap` a native
index target. Their blocks are objects of the class that stands beside them, or plain stand-ins; an
index makes them when their id is first named, since it has no number of blocks. What a part raises
passes through. An index that answers with another object than the one that was inserted is a
finding, since who gets it counts references on the wrong one. Not driven: cursors over the queue
(`iter_blocks_after`).

The queue is linked through its blocks, between two sentinels. `LinkedBlocks` reads it there, for
pools and managers as well. A corrupted queue can be a ring, so a walk follows at most one link more
than there are blocks; what it met is returned and the checks say what is wrong with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.observation import Neighbours
from poolproof.contract.outside import shown
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.targets.target import Target, source_of

__all__ = [
    "LinkedBlocks",
    "has_index_shape",
    "has_queue_shape",
    "ids_of",
    "index_beside",
    "queue_beside",
    "vllm_index_target",
    "vllm_queue_target",
]


NO_BLOCK = -1
"""Stands where a link is missing or leads to the wrong sentinel, so that it looks broken."""


class LinkedBlocks:
    """The links of `blocks`, whose queue has the sentinels `head` and `tail`."""

    def __init__(self, head: Any, tail: Any, blocks: Any, num_blocks: int) -> None:
        self._head = head
        self._tail = tail
        self._blocks = blocks
        self._num_blocks = num_blocks

    @classmethod
    def find(cls, queue: Any, blocks: Any, num_blocks: int) -> LinkedBlocks | None:
        """The links of a queue under their published names; None where they have others."""
        head = getattr(queue, "fake_free_list_head", None)
        tail = getattr(queue, "fake_free_list_tail", None)
        for linked in (head, tail, blocks[0]):
            if not hasattr(linked, "prev_free_block") or not hasattr(linked, "next_free_block"):
                return None
        return cls(head, tail, blocks, num_blocks)

    def free_order(self) -> list[int]:
        """The ids that a walk from the head meets, at most one more than there are blocks."""
        tail = self._tail
        order: list[int] = []
        block = self._head.next_free_block
        for _ in range(self._num_blocks + 1):
            if block is tail or block is None:
                break
            order.append(block.block_id)
            block = block.next_free_block
        return order

    def free_neighbours(self, block_id: int) -> Neighbours:
        """The ids before and after; None inside for the queue's own ends.

        None where both links are absent. `NO_BLOCK` where one alone is, or leads astray.
        """
        block = self._blocks[block_id]
        before, after = block.prev_free_block, block.next_free_block
        if before is None and after is None:
            return None
        return (
            None if before is self._head else _id_of(before, self._tail),
            None if after is self._tail else _id_of(after, self._head),
        )


def _id_of(block: Any, wrong_end: Any) -> int:
    if block is None or block is wrong_end:
        return NO_BLOCK
    block_id: int = block.block_id
    return block_id


def ids_of(call: str, answer: Any) -> list[Any]:
    """The ids of the blocks that a call answered. Raises ViolationError for what has none."""
    try:
        return [block.block_id for block in answer]
    except (AttributeError, TypeError) as error:
        raise ViolationError(
            Violation(
                "CRASH",
                Severity.CRASH,
                f"{call} answered {shown(answer)}; it must answer a list of blocks",
            )
        ) from error


def id_of(call: str, answer: Any) -> Any:
    """The id of the one block that a call answered. Raises ViolationError for what has none."""
    try:
        return answer.block_id
    except AttributeError as error:
        raise ViolationError(
            Violation(
                "CRASH", Severity.CRASH, f"{call} answered {shown(answer)}; it must answer a block"
            )
        ) from error


_QUEUE_SHAPE = ("popleft", "remove", "append", "get_all_free_blocks")


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
        block_id: int = id_of("popleft()", self._queue.popleft())
        return block_id

    def popleft_n(self, count: int, /) -> list[int]:
        return ids_of(f"popleft_n({count})", self._queue.popleft_n(count))

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
        return ids_of("get_all_free_blocks()", self._queue.get_all_free_blocks())


def has_queue_shape(cls: type) -> bool:
    """Whether the class is a queue over block objects, by its methods."""
    return all(callable(getattr(cls, name, None)) for name in _QUEUE_SHAPE) and not hasattr(
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
        missing = [verb for verb in _QUEUE_SHAPE if not callable(getattr(cls, verb, None))]
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


_INDEX_SHAPE = ("get_one_block", "insert", "pop")


class VllmIndex:
    """One map, empty at first."""

    def __init__(self, index_class: Callable[[], Any], block_class: Callable[[int], Any]) -> None:
        self._index = index_class()
        self.key_kinds = getattr(index_class, "key_kinds", ("bytes",))
        self._block_class = block_class
        self._blocks: dict[int, Any] = {}
        hidden: Any = None
        for ours, method in (("contains", "contain"), ("num_keys", "__len__")):
            if not callable(getattr(self._index, method, None)):
                setattr(self, ours, hidden)

    def insert(self, key: Any, block_id: int, /) -> None:
        self._index.insert(key, self._block(block_id))

    def pop(self, key: Any, block_id: int, /) -> int | None:
        return self._id_of("pop", self._index.pop(key, block_id))

    def get(self, key: Any, /) -> int | None:
        return self._id_of("get_one_block", self._index.get_one_block(key))

    def contains(self, key: Any, block_id: int, /) -> bool:
        answer: bool = self._index.contain(key, block_id)
        return answer

    def num_keys(self) -> int:
        """How many keys the map has."""
        return len(self._index)

    def _block(self, block_id: int) -> Any:
        if block_id not in self._blocks:
            self._blocks[block_id] = self._block_class(block_id)
        return self._blocks[block_id]

    def _id_of(self, method: str, answer: Any) -> int | None:
        """The id of the block that was answered. Raises ViolationError for what is no block."""
        if answer is None:
            return None
        block_id: int | None = getattr(answer, "block_id", None)
        if block_id in self._blocks and self._blocks[block_id] is answer:
            return block_id
        raise ViolationError(
            Violation(
                "IDX",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"{method}() answered {answer!r:.80}, which is none of the block objects that "
                "were inserted",
            )
        )


def has_index_shape(cls: type) -> bool:
    """Whether the class is a map to block objects, by its methods."""
    return all(callable(getattr(cls, name, None)) for name in _INDEX_SHAPE) and not hasattr(
        cls, "get"
    )


def index_beside(pool_class: type) -> type | None:
    """The map that the module of a pool, or of one of its bases, shows; None if none."""
    for base in pool_class.__mro__:
        module = sys.modules.get(base.__module__)
        for value in vars(module).values() if module else ():
            if isinstance(value, type) and has_index_shape(value):
                return value
    return None


def vllm_index_target(
    name: str, cls: type, version: str | None, rows: Mapping[str, Any] | None = None
) -> Target:
    """The index-level target of such a class; `rows` are those of its profile that were stated.

    Raises TargetError for a class of another shape, and for a profile that does not exist.
    """
    if not has_index_shape(cls):
        missing = [verb for verb in _INDEX_SHAPE if not callable(getattr(cls, verb, None))]
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{verb}()' for verb in missing)}, which a map to "
            "block objects has; run `poolproof new --index FILE` for a native skeleton"
        )
    # A class derived from vLLM's asks whether its blocks are vLLM's.
    beside = (block_class_beside(base) for base in cls.__mro__)
    block_class = next(filter(None, beside), None)
    notes = () if block_class else ("no block class stands beside it: stand-in blocks are used",)

    try:
        profile = Profile.from_mapping(
            {**Profile().to_json(), "misuse": "undefined", **(rows or {})}
        )
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error

    def make(num_blocks: int, enable_caching: bool) -> VllmIndex:  # noqa: ARG001 -- a map has no size
        return VllmIndex(cls, block_class or PlainBlock)

    return Target(
        name=name,
        level=Level.INDEX,
        shape="index",
        profile=profile,
        version=version,
        source=source_of(cls),
        make=make,
        real_class=cls,
        notes=notes,
    )
