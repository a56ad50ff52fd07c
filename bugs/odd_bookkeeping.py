"""Correct oddities that keep their books in odd ways: from a log, by comparing, in own numbers.

They are listed with the others in `oddities.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.plain_books import Books
from poolproof.contract.content import Key

__all__ = ["ComparingPool", "NumberedPool", "RecountingPool"]

MOST_LOGGED = 8


class RecountingPool:
    """A slow one: it works all out anew from a log of its calls, and closes its books seldom."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lru", "misuse": "undefined"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.num_blocks = num_blocks
        self.enable_caching = enable_caching
        self.closed = Books(list(range(num_blocks)), dict.fromkeys(range(num_blocks), 0))
        self.log: list[tuple[str, tuple[Any, ...]]] = []

    def allocate(self, n: int) -> list[int]:
        queue = self._books().queue
        if n > len(queue):
            raise MemoryError
        self.log.append(("allocate", (n,)))
        return queue[:n]

    def touch(self, block_ids: list[int]) -> None:
        self.log.append(("touch", (tuple(block_ids),)))

    def free(self, block_ids: list[int]) -> None:
        self.log.append(("free", (tuple(block_ids),)))

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if self.enable_caching:
            self.log.append(("cache", (dict(zip(block_ids, hashes, strict=True)),)))

    def lookup(self, block_hash: Key) -> int | None:
        found = [b for b, key in self._books().hashes.items() if key == block_hash]
        return found[0] if found else None

    def evict(self, block_ids: list[int]) -> None:
        self.log.append(("evict", (tuple(block_ids),)))

    def reset(self) -> bool:
        is_idle = self.num_free() == self.num_blocks
        if is_idle:
            self.log.append(("evict", (tuple(range(self.num_blocks)),)))
        return is_idle

    def num_free(self) -> int:
        return len(self._books().queue)

    def free_order(self) -> list[int]:
        return list(self._books().queue)

    def ref_count(self, block_id: int) -> int:
        return self._books().owners[block_id]

    def block_hash(self, block_id: int) -> Key | None:
        return self._books().hashes.get(block_id)

    def _books(self) -> Books:
        """What is so after all calls since the books were closed."""
        books = self.closed.copy()
        for verb, arguments in self.log:
            if verb == "cache":
                books.hashes.update(*arguments)
            else:
                getattr(books, verb)(*arguments)
        if len(self.log) > MOST_LOGGED:
            self.closed, self.log = books.copy(), []
        return books


class ComparingPool(CleanPool):
    """Announces nothing when it happens: events are what has changed since it was last asked."""

    profile: ClassVar[dict[str, Any]] = {"events": "per-hash", "duplicates": "last"}

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.announced: Counter[Key] = Counter()

    def take_events(self) -> list[dict[str, Any]]:
        present = Counter(self.index.keys())
        gone, new = self.announced - present, present - self.announced
        self.announced = present
        return [
            {"type": what, "hashes": list(keys), "group": 0}
            for what, keys in (("removed", gone), ("stored", new))
            if keys
        ]


class _BlockId(int):
    """A number that is a type of its own."""


class NumberedPool(CleanPool):
    """Every id that it gives is of a type of its own, in tuples, and never the same object."""

    profile: ClassVar[dict[str, Any]] = {"null_block": 0, "eviction": "unhashed-first"}

    def allocate(  # type: ignore[override] # a tuple is as good as a list
        self, n: int
    ) -> tuple[int, ...]:
        return tuple(map(_BlockId, super().allocate(n)))

    def lookup(self, block_hash: Key) -> int | None:
        found = super().lookup(block_hash)
        return None if found is None else _BlockId(found)

    def free_order(self) -> tuple[int, ...]:  # type: ignore[override] # the same
        return tuple(map(_BlockId, super().free_order()))
