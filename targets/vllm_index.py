"""A map from hashes to block objects, as vLLM's `BlockHashToBlockMap`, as a native index target.

The blocks are objects of the class that stands beside the map, or plain stand-ins, made when their
id is first named: an index has no number of blocks. An answer that is another object than the one
that was inserted is a finding, since who gets it counts references on the wrong one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.targets.target import Target, source_of
from poolproof.targets.vllm_queue import PlainBlock, block_class_beside

__all__ = ["VllmIndex", "has_index_shape", "index_beside", "vllm_index_target"]

_SHAPE = ("get_one_block", "insert", "pop")


class VllmIndex:
    """One map, empty at first."""

    def __init__(self, index_class: Callable[[], Any], block_class: Callable[[int], Any]) -> None:
        self._index = index_class()
        self.key_kinds = getattr(index_class, "key_kinds", ("bytes",))
        self._block_class = block_class
        self._blocks: dict[int, Any] = {}
        hidden: Any = None
        for shown, method in (("contains", "contain"), ("num_keys", "__len__")):
            if not callable(getattr(self._index, method, None)):
                setattr(self, shown, hidden)

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
    return all(callable(getattr(cls, name, None)) for name in _SHAPE) and not hasattr(cls, "get")


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
        missing = [verb for verb in _SHAPE if not callable(getattr(cls, verb, None))]
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
