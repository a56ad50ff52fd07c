"""Correct oddities that keep their books in odd ways, and so answer misuse in ways of their own.

Books are kept from a log, by comparing, or in own numbers; misuse is rolled back, or not counted.
`PlainBooks` is what a block pool knows, as plain as can be: LRU order, duplicates kept, and it
believes its caller. All are listed with the others in `oddities.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.content import Key

__all__ = ["ComparingPool", "NumberedPool", "PureValuePool", "RecountingPool", "RollingBackPool"]


@dataclass
class Books:
    """What a pool knows, as plain as can be; the queue head first."""

    queue: list[int]
    owners: dict[int, int]
    hashes: dict[int, Key] = field(default_factory=dict)

    def copy(self) -> Books:
        return Books(list(self.queue), dict(self.owners), dict(self.hashes))

    def allocate(self, n: int) -> list[int]:
        taken, self.queue = self.queue[:n], self.queue[n:]
        for block_id in taken:
            self.hashes.pop(block_id, None)
            self.owners[block_id] = 1
        return taken

    def touch(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            if not self.owners[block_id]:
                self.queue.remove(block_id)
            self.owners[block_id] += 1

    def free(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.owners[block_id] -= 1
            if not self.owners[block_id]:
                self.queue.append(block_id)

    def evict(self, block_ids: Sequence[int]) -> None:
        for block_id in block_ids:
            self.hashes.pop(block_id, None)


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


class RollingBackPool:
    """Misuse raises: each call is done on a copy, which is thrown away if it comes out wrong."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lru", "misuse": "raises"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.enable_caching = enable_caching
        self.books = Books(list(range(num_blocks)), dict.fromkeys(range(num_blocks), 0))

    def allocate(self, n: int) -> list[int]:
        if not 0 <= n <= self.num_free():
            raise ValueError(f"{n} of {self.num_free()} blocks")
        return self.books.allocate(n)

    def touch(self, block_ids: list[int]) -> None:
        self._try(lambda books: books.touch(block_ids))

    def free(self, block_ids: list[int]) -> None:
        self._try(lambda books: books.free(block_ids))

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if self.enable_caching:
            given = dict(zip(block_ids, hashes, strict=True))
            if len(given) < len(block_ids):
                raise ValueError("a block stands twice in one call")
            self._try(lambda books: books.hashes.update(given), cached=block_ids)

    def lookup(self, block_hash: Key) -> int | None:
        return next((b for b, key in self.books.hashes.items() if key == block_hash), None)

    def evict(self, block_ids: list[int]) -> None:
        if self.enable_caching:
            self._try(lambda books: books.evict(block_ids), named=block_ids)

    def reset(self) -> bool:
        if any(self.books.owners.values()):
            return False
        self.books.hashes.clear()
        return True

    def num_free(self) -> int:
        return len(self.books.queue)

    def free_order(self) -> list[int]:
        return list(self.books.queue)

    def ref_count(self, block_id: int) -> int:
        return self.books.owners[block_id]

    def block_hash(self, block_id: int) -> Key | None:
        return self.books.hashes.get(block_id)

    def _try(
        self,
        change: Callable[[Books], None],
        *,
        cached: Sequence[int] = (),
        named: Sequence[int] = (),
    ) -> None:
        books = self.books.copy()
        try:
            change(books)
            unheld = [b for b in cached if not books.owners[b]]
            negative = [b for b, owners in books.owners.items() if owners < 0]
            strangers = [b for b in named if b not in books.owners]
        except KeyError as error:
            raise ValueError(f"there is no block {error}") from error
        if unheld or negative or strangers:
            raise ValueError(f"not with blocks {unheld or negative or strangers}")
        self.books = books


@dataclass(frozen=True)
class _Value:
    """The whole of a pool as one immutable value."""

    queue: tuple[int, ...]
    owners: tuple[int, ...]
    hashes: tuple[Key | None, ...]

    def with_owners(self, block_id: int, change: int) -> _Value:
        """Another number of owners; ids in range and numbers from 0 on, or else a ValueError."""
        if not 0 <= block_id < len(self.owners) or self.owners[block_id] + change < 0:
            raise ValueError(block_id)
        owners = list(self.owners)
        owners[block_id] += change
        queue = self.queue
        if owners[block_id] == 0:
            queue = (*queue, block_id)
        elif not self.owners[block_id]:
            queue = tuple(b for b in queue if b != block_id)
        return replace(self, owners=tuple(owners), queue=queue)

    def with_hash(self, block_id: int, key: Key | None) -> _Value:
        if not 0 <= block_id < len(self.owners) or (key is not None and not self.owners[block_id]):
            raise ValueError(block_id)
        return replace(self, hashes=(*self.hashes[:block_id], key, *self.hashes[block_id + 1 :]))


class PureValuePool:
    """Misuse is ignored: a call makes a new value, which counts only if it could be made."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lru", "misuse": "ignores"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.enable_caching = enable_caching
        self.value = _Value(tuple(range(num_blocks)), (0,) * num_blocks, (None,) * num_blocks)

    def allocate(self, n: int) -> list[int]:
        if n > self.num_free():
            raise MemoryError
        taken = list(self.value.queue[: max(n, 0)])
        for block_id in taken:
            self.value = self.value.with_hash(block_id, None).with_owners(block_id, 1)
        return taken

    def touch(self, block_ids: list[int]) -> None:
        self._change_owners(block_ids, 1)

    def free(self, block_ids: list[int]) -> None:
        self._change_owners(block_ids, -1)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if self.enable_caching and len(set(block_ids)) == len(block_ids) == len(hashes):
            self._change_hashes(block_ids, hashes)

    def lookup(self, block_hash: Key) -> int | None:
        return next((b for b, key in enumerate(self.value.hashes) if key == block_hash), None)

    def evict(self, block_ids: list[int]) -> None:
        if self.enable_caching:
            self._change_hashes(block_ids, [None] * len(block_ids))

    def reset(self) -> bool:
        if any(self.value.owners):
            return False
        self.value = replace(self.value, hashes=(None,) * len(self.value.hashes))
        return True

    def num_free(self) -> int:
        return len(self.value.queue)

    def free_order(self) -> list[int]:
        return list(self.value.queue)

    def ref_count(self, block_id: int) -> int:
        return self.value.owners[block_id]

    def block_hash(self, block_id: int) -> Key | None:
        return self.value.hashes[block_id]

    def _change_owners(self, block_ids: Sequence[int], change: int) -> None:
        value = self.value
        try:
            for block_id in block_ids:
                value = value.with_owners(block_id, change)
        except ValueError:
            return
        self.value = value

    def _change_hashes(self, block_ids: Sequence[int], keys: Sequence[Key | None]) -> None:
        value = self.value
        try:
            for block_id, key in zip(block_ids, keys, strict=True):
                value = value.with_hash(block_id, key)
        except ValueError:
            return
        self.value = value
