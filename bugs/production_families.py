"""Families of pools that are right in small and wrong at some size, and right ones that look alike.

A specimen of `catalogue.py` is one bug that an engine has had. A family is a mistake with a
constant in it: a mask, a buffer, a limit that somebody thought would never be reached. Nobody
knows the constant of the next one, so each family takes it as an argument, and tests try several.
`at_once` marks the families that a server meets with its first prompts, or whatever it does.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.content import Key

__all__ = ["FAMILIES", "LOOKALIKES", "PoolFamily"]


@dataclass(frozen=True, slots=True)
class PoolFamily:
    """A mistake by its constant; `constants` are some that no small run reaches."""

    title: str
    make: Callable[[int], type[CleanPool]]
    constants: tuple[int, ...]
    at_once: bool = True


class _Pool(CleanPool):
    profile: ClassVar[dict[str, Any]] = {"misuse": "undefined", "events": "per-copy"}
    limit: ClassVar[int] = 0


def _named(cls: type[_Pool], constant: int) -> type[CleanPool]:
    return type(cls.__name__, (cls,), {"limit": constant})


# --- lists of some length -----------------------------------------------------------------------


class _CacheStops(_Pool):
    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids[: self.limit], hashes[: self.limit])


class _CacheShifts(_Pool):
    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if len(hashes) > self.limit:
            hashes = [*hashes[1:], hashes[0]]
        super().cache(block_ids, hashes)


class _TouchStops(_Pool):
    def touch(self, block_ids: list[int]) -> None:
        super().touch(block_ids[: self.limit])


class _FreeStops(_Pool):
    def free(self, block_ids: list[int]) -> None:
        super().free(block_ids[: self.limit])


class _OneCountIsWrong(_Pool):
    def allocate(self, n: int) -> list[int]:
        blocks = super().allocate(n)
        return blocks[:-1] if n == self.limit else blocks


class _OneCountIsRefused(_Pool):
    def allocate(self, n: int) -> list[int]:
        if n == self.limit:
            raise ValueError("no")
        return super().allocate(n)


class _RefusesAtOneFreeCount(_Pool):
    def allocate(self, n: int) -> list[int]:
        if n and self.num_free() == self.limit:
            raise ValueError("no")
        return super().allocate(n)


class _HeadDecidesForAll(_Pool):
    """Long lists of `touch` are taken for held ones, or for free ones, by their first entry."""

    def touch(self, block_ids: list[int]) -> None:
        if len(block_ids) >= self.limit and self.ref_counts[block_ids[0]]:
            for block_id in block_ids:
                self.ref_counts[block_id] += 1
        else:
            super().touch(block_ids)


class _CacheTrustsTheFirst(_Pool):
    """Nothing is done for a long list whose first block has its hash already."""

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if len(block_ids) < self.limit or self.block_hash(block_ids[0]) != hashes[0]:
            super().cache(block_ids, hashes)


class _CacheStopsAtTheKnown(_Pool):
    """Long lists are cached from the last entry to the first that has its hash already."""

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        first = len(block_ids)
        while first and self.block_hash(block_ids[first - 1]) != hashes[first - 1]:
            first -= 1
        if len(block_ids) < self.limit:
            first = 0
        super().cache(block_ids[first:], hashes[first:])


class _FarRefusalEvicts(_Pool):
    """A request of n more than there is has evicted what is free before it is refused."""

    def allocate(self, n: int) -> list[int]:
        if n > self.num_free() + self.limit:
            self.evict(self.free_order())
        return super().allocate(n)


class _TwiceInOneTouch(_Pool):
    """While more than n blocks are free, a free block twice in one list leaves the count twice."""

    lost = 0

    def touch(self, block_ids: list[int]) -> None:
        if super().num_free() > self.limit:
            free = [block for block in block_ids if not self.ref_counts[block]]
            self.lost += len(free) - len(set(free))
        super().touch(block_ids)

    def num_free(self) -> int:
        return super().num_free() - self.lost


# --- many blocks, hashes, owners ----------------------------------------------------------------


class _IdsWrap(_Pool):
    def allocate(self, n: int) -> list[int]:
        return [block % self.limit for block in super().allocate(n)]


class _CounterWraps(_Pool):
    def num_free(self) -> int:
        return super().num_free() % self.limit


class _StaleBeyondABlock(_Pool):
    def _recycle(self, block_id: int) -> None:
        if block_id < self.limit:
            super()._recycle(block_id)


class _IndexIsFull(_Pool):
    def _index_insert(self, key: Key, block_id: int) -> None:
        super()._index_insert(key, block_id)
        if len(self.index) > self.limit:
            del self.index[next(iter(self.index))]

    def _index_remove(self, key: Key, block_id: int) -> None:
        if key in self.index:
            super()._index_remove(key, block_id)


class _WrongAnswerWhenFull(_Pool):
    def lookup(self, block_hash: Key) -> int | None:
        found = super().lookup(block_hash)
        if found is not None and len(self.index) > self.limit:
            return (found + 1) % self.num_blocks
        return found


class _CarriersAreForgotten(_Pool):
    def _index_insert(self, key: Key, block_id: int) -> None:
        super()._index_insert(key, block_id)
        if len(self.index[key]) > self.limit:
            self.index[key] = [block_id]

    def _index_remove(self, key: Key, block_id: int) -> None:
        if block_id in self.index.get(key, ()):
            super()._index_remove(key, block_id)


class _NarrowCounts(_Pool):
    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            super().touch([block_id])
            self.ref_counts[block_id] &= (1 << self.limit) - 1


class _SaturatingCounts(_Pool):
    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            if self.ref_counts[block_id] < self.limit:
                super().touch([block_id])


class _OneSizeLosesABlock(_Pool):
    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        if num_blocks == self.limit:
            self.queue.popleft_n(1)


class _LargePoolsLoseABlock(_Pool):
    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        if num_blocks > self.limit:
            self.queue.popleft_n(1)


class _OneSizeOfMany(_Pool):
    """Pools of a multiple of n lose a block: 1,000 and 3,000 are sizes that people type."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        if num_blocks > 130 and num_blocks % self.limit == 0:
            self.queue.popleft_n(1)


class _SizesOfABand(_Pool):
    """Pools of n to one and a half times n blocks: the last part of the queue comes first."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        if self.limit <= num_blocks <= self.limit * 3 // 2:
            order = self.queue.free_order()
            self.queue.popleft_n(num_blocks)
            self.queue.append_n([*order[self.limit // 2 :], *order[: self.limit // 2]])


class _PrimeSizes(_Pool):
    """Pools of a prime size beyond n forget the last block at each reset."""

    def reset(self) -> bool:
        last = self.block_hash(self.num_blocks - 1)
        done = super().reset()
        size = self.num_blocks
        is_prime = all(size % divisor for divisor in range(2, int(size**0.5) + 1))
        if done and last is not None and size > self.limit and is_prime:
            self._index_insert(last, self.num_blocks - 1)
        return done


class _ManySharedBlocks(_Pool):
    """Of more than n blocks with several owners the next loses one."""

    def touch(self, block_ids: list[int]) -> None:
        super().touch(block_ids)
        shared = sum(count > 3 for count in self.ref_counts)
        if shared > self.limit and self.ref_counts[block_ids[-1]] > 1:
            self.ref_counts[block_ids[-1]] -= 1


# --- what a hash is -----------------------------------------------------------------------------


class _Cutting(_Pool):
    """Takes a part of each hash for the hash."""

    def part(self, key: Any) -> Any:
        raise NotImplementedError

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        self.whole = {**getattr(self, "whole", {}), **{self.part(key): key for key in hashes}}
        super().cache(block_ids, [self.part(key) for key in hashes])

    def lookup(self, block_hash: Key) -> int | None:
        return super().lookup(self.part(block_hash))

    def block_hash(self, block_id: int) -> Key | None:
        key = super().block_hash(block_id)
        return None if key is None else self.whole[key]

    def take_events(self) -> list[dict[str, Any]]:
        events = super().take_events()
        for event in events:
            event["hashes"] = [self.whole[key] for key in event["hashes"]]
        return events


class _FirstBytes(_Cutting):
    def part(self, key: Any) -> Any:
        return key[: self.limit]


class _FirstOfThirtyTwoBytes(_FirstBytes):
    """Takes hashes of one width, copies a whole one, and compares its beginning."""

    profile: ClassVar[dict[str, Any]] = {**_Pool.profile, "hash_bytes": 32}

    def part(self, key: Any) -> Any:
        if len(key) != 32:
            raise ValueError(f"a hash has 32 bytes, not {len(key)}")
        return super().part(key)


class _LastBytes(_Cutting):
    def part(self, key: Any) -> Any:
        return key[-self.limit :]


class _EndsAtAByte(_Cutting):
    def part(self, key: Any) -> Any:
        return key.split(bytes([self.limit]))[0]


class _SumOfWords(_Cutting):
    def part(self, key: Any) -> Any:
        words = [key[at : at + self.limit] for at in range(0, len(key), self.limit)]
        return sum(int.from_bytes(word, "big") for word in words)


class _LettersAlike(_Cutting):
    def part(self, key: Any) -> Any:
        return key.lower()


class _CRC32(_Cutting):
    def part(self, key: Any) -> Any:
        return zlib.crc32(key, self.limit)


class _FNV(_Cutting):
    """FNV-1a of 32 bits, of which the lower n count."""

    def part(self, key: Any) -> Any:
        state = 2_166_136_261
        for byte in key:
            state = ((state ^ byte) * 16_777_619) & 0xFFFF_FFFF
        return state & ((1 << self.limit) - 1)


class _Polynomial(_Cutting):
    def part(self, key: Any) -> Any:
        value = 0
        for byte in key:
            value = (value * self.limit + byte) & 0xFFFF_FFFF_FFFF_FFFF
        return value


class _Residue(_Cutting):
    def part(self, key: Any) -> Any:
        return int.from_bytes(key, "big") % self.limit


class _SetOfWords(_Cutting):
    def part(self, key: Any) -> Any:
        return frozenset(key[at : at + self.limit] for at in range(0, len(key), self.limit))


class _OneByteIsLeftOut(_Cutting):
    def part(self, key: Any) -> Any:
        return key[: self.limit] + key[self.limit + 1 :]


class _OneLengthIsCut(_Cutting):
    """Hashes of n bytes are cut by the four that the author took for the cache group."""

    def part(self, key: Any) -> Any:
        return key[:-4] if len(key) == self.limit else key


class _OneValueIsNone(_Pool):
    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        none = [key == bytes([self.limit]) * len(key) for key in hashes]  # type: ignore[arg-type]  # bytes here
        super().cache(
            [block for block, skip in zip(block_ids, none, strict=True) if not skip],
            [key for key, skip in zip(hashes, none, strict=True) if not skip],
        )


# --- time ---------------------------------------------------------------------------------------


class _Counting(_Pool):
    calls = 0

    def allocate(self, n: int) -> list[int]:
        self.calls += 1
        return super().allocate(n)

    def free(self, block_ids: list[int]) -> None:
        self.calls += 1
        super().free(block_ids)

    def touch(self, block_ids: list[int]) -> None:
        self.calls += 1
        super().touch(block_ids)


class _StaleLater(_Counting):
    def _recycle(self, block_id: int) -> None:
        if self.calls < self.limit:
            super()._recycle(block_id)


class _OnceInAWhile(_Counting):
    def _recycle(self, block_id: int) -> None:
        if self.calls % self.limit:
            super()._recycle(block_id)


class _Generations(_Pool):
    """An old entry counts as long as the generation of its block is right, modulo n."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.generations = [0] * num_blocks
        self.entries: dict[Key, tuple[int, int]] = {}

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        super().cache(block_ids, hashes)
        for block, key in zip(block_ids, hashes, strict=True):
            self.entries[key] = block, self.generations[block]

    def _recycle(self, block_id: int) -> None:
        super()._recycle(block_id)
        self.generations[block_id] = (self.generations[block_id] + 1) % self.limit

    def evict(self, block_ids: list[int]) -> None:
        super().evict(block_ids)
        self.entries = {k: entry for k, entry in self.entries.items() if k in self.index}

    def reset(self) -> bool:
        done = super().reset()
        if done:
            self.entries.clear()
        return done

    def lookup(self, block_hash: Key) -> int | None:
        found = super().lookup(block_hash)
        block, generation = self.entries.get(block_hash, (0, -1))
        if found is None and self.generations[block] == generation:
            return block
        return found


class _Epochs(_Pool):
    """What was there before a reset comes back n resets later."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.epoch = 0
        self.former: dict[Key, tuple[int, int]] = {}

    def reset(self) -> bool:
        there = {key: blocks[0] for key, blocks in self.index.items()}
        done = super().reset()
        if done:
            self.former.update({key: (block, self.epoch) for key, block in there.items()})
            self.epoch = (self.epoch + 1) % self.limit
        return done

    def lookup(self, block_hash: Key) -> int | None:
        found = super().lookup(block_hash)
        block, epoch = self.former.get(block_hash, (0, -1))
        return block if found is None and epoch == self.epoch else found


class _EpochOfEach(_Pool):
    """A reset begins the next of n epochs; a block is found in that in which it was cached last."""

    profile: ClassVar[dict[str, Any]] = {"misuse": "undefined"}  # events would tell it at once

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.epoch = 0
        self.epochs: dict[int, int] = {}

    def reset(self) -> bool:
        if not self._is_idle():
            return False
        self.epoch = (self.epoch + 1) % self.limit
        return True

    def lookup(self, block_hash: Key) -> int | None:
        carriers = self.index.get(block_hash, ())
        return next((b for b in carriers if self.epochs[b] == self.epoch), None)

    def block_hash(self, block_id: int) -> Key | None:
        key = super().block_hash(block_id)
        return None if key is None or self.epochs[block_id] != self.epoch else key

    def _cache_one(self, block_id: int, key: Key) -> None:
        if super().block_hash(block_id) is not None and self.block_hash(block_id) is None:
            self._drop_hash(block_id)
        super()._cache_one(block_id, key)

    def _add_hash(self, block_id: int, key: Key) -> None:
        super()._add_hash(block_id, key)
        self.epochs[block_id] = self.epoch


class _HitsInARow(_Pool):
    """A block that is taken from the queue n times, and no other between, gets a reference more."""

    last, row = -1, 0

    def touch(self, block_ids: list[int]) -> None:
        ids = list(block_ids)
        is_hit = len(ids) == 1 and self.ref_count(ids[0]) == 0
        super().touch(block_ids)
        if is_hit:
            self.row = self.row + 1 if ids[0] == self.last else 1
            self.last = ids[0]
            if self.row == self.limit:
                super().touch(ids)


class _ShortEventBuffer(_Pool):
    def take_events(self) -> list[dict[str, Any]]:
        return super().take_events()[-self.limit :]


class _RefusalsLoseABlock(_Pool):
    refusals = 0

    def allocate(self, n: int) -> list[int]:
        if n > self.num_free():
            self.refusals += 1
            if self.refusals % self.limit == 0 and self.num_free():
                self.queue.popleft_n(1)
        return super().allocate(n)


# --- answers ------------------------------------------------------------------------------------


class _ClearsItsAnswer(_Pool):
    """The list that `allocate` answered is emptied some calls later."""

    def allocate(self, n: int) -> list[int]:
        answers = self.__dict__.setdefault("answers", [])
        answers.append(super().allocate(n))
        if len(answers) > self.limit:
            answers.pop(0).clear()
        answer: list[int] = answers[-1]
        return answer


class _ReusesItsAnswer(_Pool):
    """Some lists are used in turn for all answers."""

    def allocate(self, n: int) -> list[int]:
        blocks = super().allocate(n)
        answers = self.__dict__.setdefault("answers", [[] for _ in range(self.limit)])
        answer: list[int] = answers.pop(0)
        answers.append(answer)
        answer[:] = blocks
        return answer


class _GivesItsOwnQueue(_Pool):
    """Whoever sorts the answer of `free_order` sorts the queue."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.order = super().free_order()

    def free_order(self) -> list[int]:
        self.order[:] = super().free_order()
        return self.order


class _GivesItsOwnEvents(_Pool):
    def take_events(self) -> list[dict[str, Any]]:
        out = self.__dict__.setdefault("out", [])
        out[:] = super().take_events()
        return list.__iadd__(out, [])


class _KeepsWhatItAnswered(_Pool):
    """Frees by the list that it answered: what the caller does to that list is done to the pool."""

    def allocate(self, n: int) -> list[int]:
        answer = super().allocate(n)
        self.__dict__.setdefault("given", []).append((answer, len(answer)))
        return answer

    def num_free(self) -> int:
        changed = 0
        for answer, length in self.__dict__.get("given", ()):
            changed += length - len(answer)
        return super().num_free() + changed


class _AlwaysEqual:
    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # equal to everything, so to no number's hash


class _AnswersEqualAll(_Pool):
    def lookup(self, block_hash: Key) -> Any:
        found = super().lookup(block_hash)
        return None if found is None else _AlwaysEqual()


class _FloatsForIds(_Pool):
    """Beyond block n, as a division leaves them."""

    def lookup(self, block_hash: Key) -> Any:
        found = super().lookup(block_hash)
        return found / 1 if found is not None and found > self.limit else found


class _LongAnswersAreShared(_Pool):
    """Only for more than n blocks one list is used for all answers."""

    def allocate(self, n: int) -> list[int]:
        blocks = super().allocate(n)
        if n <= self.limit:
            return blocks
        answer: list[int] = self.__dict__.setdefault("answer", [])
        answer[:] = blocks
        return answer


class _KeepsLongLists(_Pool):
    """A list of more than n blocks is freed at the next call, and was the caller's."""

    later: Any = ()

    def free(self, block_ids: list[int]) -> None:
        waiting, self.later = self.later, ()
        super().free(waiting)
        if len(block_ids) > self.limit:
            self.later = block_ids
        else:
            super().free(block_ids)

    def num_free(self) -> int:
        self.free([])
        return super().num_free()


class _SharesItsSize(_Pool):
    """How many blocks there are is an attribute of the class."""

    size: ClassVar[list[int]] = [0]

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.size[0] = num_blocks

    def allocate(self, n: int) -> list[int]:
        if n > self.size[0] - (self.num_blocks - self.num_free()):
            raise MemoryError("too few")
        return super().allocate(n)

    def reset(self) -> bool:
        return self.num_free() == self.size[0] and super().reset()


class _TruthValuesForIds(_Pool):
    def allocate(self, n: int) -> list[int]:
        return [bool(block) if block < 2 else block for block in super().allocate(n)]


class _SharesItsIndex(_Pool):
    """The index is an attribute of the class; the first pool of a process is right."""

    shared: ClassVar[dict[Key, list[int]]] = {}

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.shared.clear()
        self.index = self.shared


class _SharesItsCounts(_Pool):
    shared: ClassVar[list[int]] = []

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.shared[:] = [0] * num_blocks
        self.ref_counts = self.shared


class _SharesItsEvents(_Pool):
    shared: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.shared.clear()
        self.events = self.shared

    def take_events(self) -> list[dict[str, Any]]:
        events = list(self.shared)
        self.shared.clear()
        return events


def _of(title: str, cls: type[_Pool], *constants: int, at_once: bool = True) -> PoolFamily:
    return PoolFamily(title, lambda constant: _named(cls, constant), constants, at_once)


FAMILIES: tuple[PoolFamily, ...] = (
    _of("cache takes the first n entries of a list", _CacheStops, 4, 9, 33, 70, 100),
    _of("cache of more than n entries shifts the hashes", _CacheShifts, 3, 11, 31, 64, 127),
    _of("touch takes the first n entries of a list", _TouchStops, 4, 9, 17, 65),
    _of("free takes the first n entries of a list", _FreeStops, 4, 9, 17, 65),
    _of("one count of blocks is answered with one less", _OneCountIsWrong, 13, 17, 29, 40),
    _of("one count of blocks is refused", _OneCountIsRefused, 13, 17, 37, 61),
    _of("refuses while just n blocks are free", _RefusesAtOneFreeCount, 13, 17, 50, 100),
    _of("touch of n or more goes by its first entry", _HeadDecidesForAll, 5, 24, 60),
    _of("cache of n or more goes by its first entry", _CacheTrustsTheFirst, 4, 16, 50),
    _of("cache of n or more ends at a hash that is known", _CacheStopsAtTheKnown, 4, 16, 50),
    _of("a request of n more than there is evicts", _FarRefusalEvicts, 3, 100, 5000),
    _of("a block twice in one touch, beyond n free ones", _TwiceInOneTouch, 13, 60, 100),
    _of("sizes that are multiples of n lose a block", _OneSizeOfMany, 50, 100, 128, 1000),
    _of("sizes from n to one and a half n", _SizesOfABand, 140, 700, 1025, 2000),
    _of("prime sizes beyond n", _PrimeSizes, 100, 300, 1000),
    _of("more than n blocks with several owners", _ManySharedBlocks, 13, 40, 50),
    _of("block ids wrap", _IdsWrap, 16, 64, 100, 256, 1024),
    _of("the free counter wraps", _CounterWraps, 16, 128, 256, 1000, 2048),
    _of("blocks beyond the n-th keep their hash", _StaleBeyondABlock, 13, 100, 256, 777),
    _of("the index forgets the oldest of more than n hashes", _IndexIsFull, 5, 12, 64, 200, 1000),
    _of("with more than n hashes, answers are wrong", _WrongAnswerWhenFull, 5, 12, 64, 1000),
    _of("more than n carriers of one hash are forgotten", _CarriersAreForgotten, 8, 32, 64, 256),
    _of("reference counts of n bits", _NarrowCounts, 5, 6, 8, 12, at_once=False),
    _of("reference counts stop at n", _SaturatingCounts, 15, 127, 255, 1000, at_once=False),
    _of("a pool of n blocks loses one", _OneSizeLosesABlock, 13, 16, 64, 65),
    _of("pools of more than n blocks lose one", _LargePoolsLoseABlock, 13, 100, 300, 2000),
    _of("the first n bytes of a hash count", _FirstBytes, 4, 6, 8, 16, 31),
    _of("of hashes of one width the first n bytes count", _FirstOfThirtyTwoBytes, 4, 8, 16, 31),
    _of("the last n bytes of a hash count", _LastBytes, 4, 7, 8, 16, 31),
    _of("a hash ends at a byte of value n", _EndsAtAByte, 0, 10, 32, 255),
    _of("words of n bytes are added up", _SumOfWords, 1, 2, 4, 8),
    _of("CRC-32 from n on", _CRC32, 0, 1, 0xFFFF_FFFF),
    _of("n bits of FNV-1a", _FNV, 8, 16, 32),
    _of("a polynomial over bytes, base n", _Polynomial, 31, 33, 65, 131),
    _of("modulo n", _Residue, 997, 65_521, 1_000_003, 2**31 - 1, 2**61 - 1),
    _of("a set of words of n bytes", _SetOfWords, 1, 2, 4, 8, 16),
    _of("byte n is left out", _OneByteIsLeftOut, 2, 12, 31, 37, 55),
    _of("hashes of n bytes are cut", _OneLengthIsCut, 20, 28, 40, 48),
    _of("upper and lower case are alike", _LettersAlike, 0),
    _of("a hash whose bytes are all n means none", _OneValueIsNone, 0, 255),
    _of("stale after n calls", _StaleLater, 700, 4096, 5000),
    _of("stale at each n-th call", _OnceInAWhile, 40, 64, 100),
    _of("generations modulo n", _Generations, 16, 64, 100, 256),
    _of("resets are counted modulo n", _Epochs, 16, 64, 100, 256),
    _of("blocks have one of n epochs", _EpochOfEach, 16, 64, 256),
    _of("a block is hit n times in a row", _HitsInARow, 8, 32, 64, at_once=False),
    _of("the event buffer keeps the last n", _ShortEventBuffer, 4, 8, 64, 256),
    _of("each n-th refusal loses a block", _RefusalsLoseABlock, 8, 64, 100, 255),
    _of("an answered list is cleared n allocations later", _ClearsItsAnswer, 1, 2, 5),
    _of("n lists are used in turn for all answers", _ReusesItsAnswer, 1, 2, 5),
    _of("free_order answers with a list of the pool's own", _GivesItsOwnQueue, 0),
    _of("take_events answers with a list of the pool's own", _GivesItsOwnEvents, 0),
    _of("the caller's change to an answer changes the pool", _KeepsWhatItAnswered, 0),
    _of("lookup answers with what equals everything", _AnswersEqualAll, 0),
    _of("floats for ids beyond n", _FloatsForIds, 13, 100, 255),
    _of("one list for answers of more than n", _LongAnswersAreShared, 13, 64, 200),
    _of("lists of more than n are kept and freed later", _KeepsLongLists, 3, 50, 100),
    _of("two pools share their size", _SharesItsSize, 0),
    _of("truth values for ids", _TruthValuesForIds, 0),
    _of("two pools share their index", _SharesItsIndex, 0),
    _of("two pools share their counts", _SharesItsCounts, 0),
    _of("two pools share their events", _SharesItsEvents, 0),
)


# --- right ones that look alike -----------------------------------------------------------------


class _GrowingEventRing(_Pool):
    """A ring of events that doubles when it is full."""

    def take_events(self) -> list[dict[str, Any]]:
        ring: list[dict[str, Any] | None] = [None] * 8
        start = length = 0
        for event in super().take_events():
            if length == len(ring):
                ring = [ring[(start + place) % len(ring)] for place in range(length)]
                ring += [None] * length
                start = 0
            ring[(start + length) % len(ring)] = event
            length += 1
        in_order = (ring[(start + place) % len(ring)] for place in range(length))
        return [event for event in in_order if event is not None]


class _Int16:
    """An integer of another library: no subclass of int, equal to its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self.number == other

    def __hash__(self) -> int:
        return hash(self.number)


class _OtherIntegers(_Pool):
    def allocate(self, n: int) -> Any:
        return [_Int16(block) for block in super().allocate(n)]

    def lookup(self, block_hash: Key) -> Any:
        found = super().lookup(block_hash)
        return None if found is None else _Int16(found)

    def touch(self, block_ids: list[int]) -> None:
        super().touch([int(block) for block in block_ids])


class _Tuples(_Pool):
    def allocate(self, n: int) -> Any:
        return tuple(super().allocate(n))


class _CompactIndex(_Cutting):
    """Hashes of one length are kept as integers."""

    def part(self, key: Any) -> Any:
        return int.from_bytes(key, "little")


class _GrowingCounts(_Pool):
    """Counts of a byte each, with the rest of the large ones in a dictionary."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self.low = bytearray(num_blocks)
        self.high: dict[int, int] = {}

    def ref_count(self, block_id: int) -> int:
        count = self.ref_counts[block_id]
        self.low[block_id] = count & 255
        self.high[block_id] = count >> 8
        return self.low[block_id] + 256 * self.high[block_id]


LOOKALIKES: tuple[tuple[str, type[CleanPool]], ...] = (
    ("nothing is wrong", _Pool),
    ("a ring of events that grows", _GrowingEventRing),
    ("ids of another library", _OtherIntegers),
    ("tuples for lists", _Tuples),
    ("hashes kept as integers", _CompactIndex),
    ("counts of a byte that overflow into a dictionary", _GrowingCounts),
)
