"""Families of pools that are right in small and wrong at some size, and right ones that look alike.

A specimen of `catalogue.py` is one bug that an engine has had. A family is a mistake with a
constant in it: a mask, a buffer, a limit that somebody thought would never be reached. Nobody
knows the constant of the next one, so each family takes it as an argument, and tests try several.
`at_once` marks the families that a server meets with its first prompts, or whatever it does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.content import Key

__all__ = ["FAMILIES", "LOOKALIKES", "Family"]


@dataclass(frozen=True, slots=True)
class Family:
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


def _of(title: str, cls: type[_Pool], *constants: int, at_once: bool = True) -> Family:
    return Family(title, lambda constant: _named(cls, constant), constants, at_once)


FAMILIES: tuple[Family, ...] = (
    _of("cache takes the first n entries of a list", _CacheStops, 4, 9, 33, 70, 100),
    _of("cache of more than n entries shifts the hashes", _CacheShifts, 3, 11, 31, 64, 127),
    _of("touch takes the first n entries of a list", _TouchStops, 4, 9, 17, 65),
    _of("free takes the first n entries of a list", _FreeStops, 4, 9, 17, 65),
    _of("one count of blocks is answered with one less", _OneCountIsWrong, 13, 17, 29, 40),
    _of("one count of blocks is refused", _OneCountIsRefused, 13, 17, 37, 61),
    _of("refuses while just n blocks are free", _RefusesAtOneFreeCount, 13, 17, 50, 100),
    _of("block ids wrap", _IdsWrap, 16, 64, 100, 256, 1024),
    _of("the free counter wraps", _CounterWraps, 16, 128, 256, 1000, 2048),
    _of("blocks beyond the n-th keep their hash", _StaleBeyondABlock, 13, 100, 256, 777),
    _of("the index forgets the oldest of more than n hashes", _IndexIsFull, 5, 12, 64, 200, 1000),
    _of("with more than n hashes, answers are wrong", _WrongAnswerWhenFull, 5, 12, 64, 1000),
    _of("more than n carriers of one hash are forgotten", _CarriersAreForgotten, 8, 32, 64),
    _of("reference counts of n bits", _NarrowCounts, 5, 6, 8, 12, at_once=False),
    _of("reference counts stop at n", _SaturatingCounts, 15, 127, 255, 1000, at_once=False),
    _of("a pool of n blocks loses one", _OneSizeLosesABlock, 13, 16, 64, 65),
    _of("pools of more than n blocks lose one", _LargePoolsLoseABlock, 13, 100, 300, 2000),
    _of("the first n bytes of a hash count", _FirstBytes, 4, 6, 8, 16, 31),
    _of("of hashes of one width the first n bytes count", _FirstOfThirtyTwoBytes, 4, 8, 16, 31),
    _of("the last n bytes of a hash count", _LastBytes, 4, 7, 8, 16, 31),
    _of("a hash ends at a byte of value n", _EndsAtAByte, 0, 10, 32, 255),
    _of("words of n bytes are added up", _SumOfWords, 1, 2, 4, 8),
    _of("upper and lower case are alike", _LettersAlike, 0),
    _of("a hash whose bytes are all n means none", _OneValueIsNone, 0, 255),
    _of("stale after n calls", _StaleLater, 700, 4096, 5000),
    _of("stale at each n-th call", _OnceInAWhile, 40, 64, 100),
    _of("the event buffer keeps the last n", _ShortEventBuffer, 4, 8, 64, 256),
    _of("each n-th refusal loses a block", _RefusalsLoseABlock, 8, 64, 100, 255),
    _of("an answered list is cleared n allocations later", _ClearsItsAnswer, 1, 2, 5),
    _of("n lists are used in turn for all answers", _ReusesItsAnswer, 1, 2, 5),
    _of("free_order answers with a list of the pool's own", _GivesItsOwnQueue, 0),
    _of("take_events answers with a list of the pool's own", _GivesItsOwnEvents, 0),
    _of("the caller's change to an answer changes the pool", _KeepsWhatItAnswered, 0),
    _of("lookup answers with what equals everything", _AnswersEqualAll, 0),
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
