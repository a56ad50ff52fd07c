"""Allocators that nobody should trust, each with one way to fail; right in everything else."""

# The names say what each does, and a signature is the contract's even where it is not used.
# ruff: noqa: D101, ARG002

from __future__ import annotations

import ctypes
import os
import sys
from time import sleep
from typing import Any

from poolproof.impl.block_pool import BlockPool


class LoopsForEver(BlockPool):
    def touch(self, block_ids: list[int]) -> None:
        while len(block_ids) != len(set(block_ids)):
            sleep(0.01)
        super().touch(block_ids)


class EatsMemory(BlockPool):
    def evict(self, block_ids: list[int]) -> None:
        eaten = []
        while True:
            eaten.append(bytearray(1 << 20))


class ExitsTheProcess(BlockPool):
    def evict(self, block_ids: list[int]) -> None:
        os._exit(7)


class AsksToExit(BlockPool):
    def evict(self, block_ids: list[int]) -> None:
        sys.exit(3)


class Segfaults(BlockPool):
    def reset(self) -> bool:
        ctypes.string_at(0)
        return super().reset()


class CannotBeBuilt(BlockPool):
    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        raise ZeroDivisionError("no blocks today")


class DiesWhenBuilt(BlockPool):
    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        os._exit(9)


class HangsWhenBuilt(BlockPool):
    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        while True:
            sleep(0.01)


class LacksMethods:
    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        pass

    def allocate(self, n: int) -> list[int]:
        return []

    def free(self, block_ids: list[int]) -> None:
        pass


class DeclaresNonsense(BlockPool):
    profile: dict[str, Any] = {"evicton": "lru"}  # noqa: RUF012 - as a user would write it


class ReusesNewestFirst(BlockPool):
    profile: dict[str, Any] = {"eviction": "lru"}  # noqa: RUF012 - as a user would write it

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        super().__init__(num_blocks, enable_caching=enable_caching, eviction="lifo")


class KeepsStaleHashes(BlockPool):
    """The index answers with blocks that were handed out again since (nano-vllm#163)."""

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        super().__init__(num_blocks, enable_caching=enable_caching)
        self._last: dict[Any, int] = {}

    def cache(self, block_ids: list[int], hashes: list[Any], *, group: int = 0) -> None:
        super().cache(block_ids, hashes, group=group)
        self._last.update(zip(hashes, block_ids, strict=True))

    def lookup(self, block_hash: Any, *, group: int = 0) -> int | None:
        return self._last.get(block_hash)


class IsChatty(BlockPool):
    def allocate(self, count: int) -> list[int]:
        print("allocating", count, "x" * 200)
        return super().allocate(count)
