"""For rows of the profile: a correct oddity that needs the value, and what is refused under it.

Other files show that every check finds bugs and that nothing correct is accused; this one, that a
row means something. The oddity holds under the value and is accused under the others, so the row
is needed. The specimen is refused under the value, so that stating the row excuses no more than
the design it is for. Designs of public engines, told where the oddity is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from poolproof.bugs.clean_groups import CleanHybridManager
from poolproof.bugs.clean_manager import CleanManager, CleanSequence, Copies
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.content import Key

__all__ = ["MANAGER_ROWS", "POOL_ROWS", "STRICTEST", "RowExample", "stated"]


@dataclass(frozen=True, slots=True)
class RowExample:
    """A value of a row, and two targets.

    `right` declares the value and holds. `without` are rows that contradict it, under which the
    same class is accused; none where every other value promises less. `wrong` declares the value,
    too, and is refused, first by one of `invariants`. With `weak_hashes` all of this is so where
    hashes are cut to so many bits.
    """

    row: str
    value: str | int | None
    right: type
    without: dict[str, Any]
    wrong: type
    invariants: tuple[str, ...]
    weak_hashes: int = 0

    @property
    def name(self) -> str:
        """The row and its value as they stand on a command line."""
        return f"{self.row}={self.value}"


STRICTEST = object()
"""In place of another value, for `stated`: nobody promises more."""


def stated(  # noqa: PLR0917 - the columns of a table
    row: str,
    value: str | int | None,
    other: Any,
    right: type,
    wrong: type,
    invariants: tuple[str, ...],
    *,
    rows: Mapping[str, Any],
    weak_hashes: int = 0,
) -> RowExample:
    """Both classes under `rows` and the value; `other` is the value that contradicts it, if any."""
    profile = {**rows, row: value}
    without = {} if other is STRICTEST else {row: other}
    right, wrong = (_with_profile(cls, profile) for cls in (right, wrong))
    return RowExample(row, value, right, without, wrong, invariants, weak_hashes)


def _with_profile(cls: type, rows: Mapping[str, Any]) -> type:
    return type(cls.__name__, (cls,), {"profile": dict(rows), "__doc__": cls.__doc__})


class PrependingPool:
    """Blocks without a hash are put at the head one by one, as in the Jenga pool of MAX."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "unhashed-lifo", "misuse": "undefined"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.enable_caching = enable_caching
        self.waiting = OrderedDict.fromkeys(range(num_blocks))
        self.owners = [0] * num_blocks
        self.hashes: dict[int, Key] = {}

    def allocate(self, n: int) -> list[int]:
        if n > len(self.waiting):
            raise MemoryError
        taken = [self.waiting.popitem(last=False)[0] for _ in range(n)]
        self.evict(taken)
        for block_id in taken:
            self.owners[block_id] = 1
        return taken

    def touch(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.waiting.pop(block_id, None)
            self.owners[block_id] += 1

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.owners[block_id] -= 1
            if not self.owners[block_id]:
                self._queue(block_id)

    def cache(self, block_ids: list[int], hashes: list[Key]) -> None:
        if self.enable_caching:
            self.hashes.update(zip(block_ids, hashes, strict=True))

    def lookup(self, block_hash: Key) -> int | None:
        return next((b for b, known in self.hashes.items() if known == block_hash), None)

    def evict(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.hashes.pop(block_id, None)

    def num_free(self) -> int:
        return len(self.waiting)

    def free_order(self) -> list[int]:
        return list(self.waiting)

    def _queue(self, block_id: int) -> None:
        self.waiting[block_id] = None
        self.waiting.move_to_end(block_id, last=block_id in self.hashes)


class WorstReusedLast(PrependingPool):
    """What nobody can find goes to the tail, behind hashes that could still be hit."""

    def _queue(self, block_id: int) -> None:
        self.waiting[block_id] = None
        self.waiting.move_to_end(block_id, last=block_id not in self.hashes)


class CountsThenQueues(CleanPool):
    """`free` counts down the whole list, then queues every entry that nobody holds.

    So do vLLM 0.10.2 to 0.20.2: a block that stands twice in one list is queued twice.
    """

    profile: ClassVar[dict[str, Any]] = {"repeats_in_free": "forbidden", "misuse": "undefined"}

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.ref_counts[block_id] -= 1
        self._queue_freed([b for b in block_ids if self._joins_queue(b)])


class ForgetsTheLast(CountsThenQueues):
    """Of several blocks the last is counted down and never queued."""

    def free(self, block_ids: list[int]) -> None:
        for block_id in block_ids:
            self.ref_counts[block_id] -= 1
        joining = [b for b in block_ids if self._joins_queue(b)]
        self._queue_freed(joining[:-1] if len(joining) > 1 else joining)


class CachesWhatItIsGiven(CleanPool):
    """`cache` does not ask whether a block is the null block; its callers never name that one.

    So do the pools of vLLM up to 0.20.2, where the manager slices null blocks away.
    """

    profile: ClassVar[dict[str, Any]] = {
        "null_block": 0,
        "null_in_lists": "uncached",
        "misuse": "undefined",
    }

    def _may_be_hashed(self, block_id: int) -> bool:  # noqa: ARG002 - what is odd about it
        return True


class QueuesTheNullBlock(CachesWhatItIsGiven):
    """Freeing a table with the null block in it queues that one, too."""

    def _joins_queue(self, block_id: int) -> bool:
        return not self.ref_counts[block_id]


class DiesWithItsOwner(CleanPool):
    """A block that nobody holds can be found by nobody: there is sharing and no retention."""

    profile: ClassVar[dict[str, Any]] = {"retention": "while-held", "events": "per-hash"}


class OutlivesItsOwner(DiesWithItsOwner):
    """The hash of a block that was freed alone stays."""

    def _forget_freed(self, freed: Sequence[int]) -> None:
        super()._forget_freed(freed if len(freed) > 1 else ())


POOL_ROWS: tuple[RowExample, ...] = (
    RowExample(
        "eviction", "unhashed-lifo", PrependingPool,
        {"eviction": "unhashed-first"}, WorstReusedLast, ("ORD",),
    ),
    RowExample(
        "repeats_in_free", "forbidden", CountsThenQueues,
        {"repeats_in_free": "allowed"}, ForgetsTheLast, ("I1",),
    ),
    RowExample(
        "null_in_lists", "uncached", CachesWhatItIsGiven,
        {"null_in_lists": "ignored"}, QueuesTheNullBlock, ("I1",),
    ),
    RowExample(
        "retention", "while-held", DiesWithItsOwner,
        {"retention": "exact"}, OutlivesItsOwner, ("IDX",),
    ),
)  # fmt: skip


class InsertsAtTheEnd(CleanManager):
    """A tree that gets a request's blocks when it gives them back, as in LightLLM."""

    profile: ClassVar[dict[str, Any]] = {"publishes": "finish", "duplicates": "first"}


class InsertsWhatWasNeverComputed(InsertsAtTheEnd):
    """The end of a request publishes all blocks that it holds, also for what was only scheduled."""

    def _publish_at_end(self, sequence: CleanSequence) -> None:
        if sequence.place == "device":
            covered = len(sequence.table) * self.block_size
            self._publish_up_to(sequence, min(covered, len(sequence.tokens)))


class SharesAmongTheLiving(CleanManager):
    """Requests share what they hold at the same time; the cache dies with its last owner."""

    # Who finds more than that reads the right KV all the same: only an exact index tells.
    profile: ClassVar[dict[str, Any]] = {"retention": "while-held", "index": "exact"}


class RemembersTheDead(SharesAmongTheLiving):
    """The pool keeps the hashes of what was freed one by one."""

    pool_class = OutlivesItsOwner


class OtherOrderUncached(CleanManager):
    """With a cache the tail goes back first; without one nobody minds, and the head does."""

    profile: ClassVar[dict[str, Any]] = {"uncached_order": "head-first"}


class OrdersSwapped(OtherOrderUncached):
    """The flag is read the wrong way round."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        caches = options.get("enable_caching", True)
        self.release_order = "head-first" if caches else "tail-first"


class LastGroupFirst(CleanHybridManager):
    """The groups give back in the reverse of the order in which they take."""

    profile: ClassVar[dict[str, Any]] = {
        "null_block": 0,
        "groups": "full+sliding:8",
        "group_order": "last-to-first",
    }


class FirstGroupFirstOnPreemption(LastGroupFirst):
    """One of the ways to lose blocks was forgotten."""

    def preempt(self, seq_id: int) -> None:
        for part in self.parts:
            part.preempt(seq_id)


class ReservesGeneration(CleanManager):
    """An admission takes the blocks for a whole generation of up to six tokens."""

    profile: ClassVar[dict[str, Any]] = {"generation_tokens": 6}


class ReservesOnce(ReservesGeneration):
    """A preempted request comes back without the room for what it has yet to generate."""

    def preempt(self, seq_id: int) -> None:
        super().preempt(seq_id)
        self._came_back.add(seq_id)

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self._came_back: set[int] = set()

    def _known_or_new(
        self, seq_id: int, tokens: list[int], extra_keys: tuple[Any, ...] | None
    ) -> CleanSequence:
        sequence = super()._known_or_new(seq_id, tokens, extra_keys)
        if seq_id in self._came_back:
            sequence.num_reserved = 0
        return sequence


class HashesAllButTheLast(CleanManager):
    """A request has its sampled token when its blocks are hashed, all tokens but the last.

    So does the block manager of MAX, whose requests get their tokens before they are committed.
    """

    # Judged by content, a key that comes a token late is no fault.
    profile: ClassVar[dict[str, Any]] = {"sampled": "with-step", "index": "exact"}

    def _publish(self, sequence: CleanSequence) -> None:
        self._publish_up_to(sequence, min(sequence.num_computed, self._num_known(sequence) - 1))

    def _num_known(self, sequence: CleanSequence) -> int:
        return len(sequence.tokens) + len(sequence.drafts) + (sequence.sampled is not None)


class HashesTheLastAsWell(HashesAllButTheLast):
    """A block is full of tokens, and found, before the last of them is computed."""

    def _publish(self, sequence: CleanSequence) -> None:
        known = sequence.tokens[:]
        if sequence.sampled is not None:
            sequence.tokens.append(sequence.sampled)
        is_whole = sequence.num_computed == len(known)
        covered = len(sequence.tokens) if is_whole else sequence.num_computed
        self._publish_up_to(sequence, min(covered, len(sequence.table) * self.block_size))
        sequence.tokens[:] = known


class OneUserABlock(CleanManager):
    """A cached block serves one request at a time, as the slots of llama.cpp's server do."""

    profile: ClassVar[dict[str, Any]] = {"held_blocks": "exclusive"}


class OneUserAfterTheStep(OneUserABlock):
    """Who uses a block is noted when the step runs: two requests of one step get the same."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self._given_now: set[int] = set()

    def _is_usable(self, block: int) -> bool:
        return super()._is_usable(block) or block in self._given_now

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        super()._take_hits(sequence, hits)
        self._given_now.update(hits)

    def step(self, batch: list[tuple[int, int]], **told: Any) -> None:
        super().step(batch, **told)
        self._given_now.clear()


class CopiesForItsForks(OneUserABlock):
    """A fork gets copies of everything, so that no block ever has two users."""

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        computed = -(-self.sequences[seq_id].num_computed // self.block_size)
        if computed > self.pool.num_free():
            return "later"
        super().fork(seq_id, child_id)
        child = self.sequences[child_id]
        shared, child.table = child.table, self.pool.allocate(computed)
        self.pool.free(shared)
        return list(zip(shared, child.table, strict=True))


class OneUserOfTheFirstBlock(CopiesForItsForks):
    """Whether a prefix is in use is told from its first block alone."""

    def _find(self, sequence: CleanSequence, entry: int) -> int | None:
        if entry == 0:
            return super()._find(sequence, entry)
        return self.pool.lookup(self._key(sequence, entry))


class LeavesOutWhatIsHeld(OneUserABlock):
    """A block leaves the index with its user, and enters it again when it is given back."""

    profile: ClassVar[dict[str, Any]] = {
        "held_blocks": "exclusive",
        "duplicates": "first",
        "hits": "exact",
    }

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.held_keys: dict[int, Key] = {}

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        super()._take_hits(sequence, hits)
        for entry, block in enumerate(hits):
            self.held_keys[block] = self._key(sequence, entry)
        self.pool.evict(hits)

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        full = num_tokens // self.block_size
        if not self.enable_caching or sequence.loading:
            return
        for entry in range(sequence.num_published, full):
            self.held_keys[sequence.table[entry]] = self._key(sequence, entry)
        sequence.num_published = max(sequence.num_published, full)

    def _forget_keys(self, sequence: CleanSequence, full: int) -> None:
        for block in sequence.table[full:]:
            if self.pool.ref_count(block) == 1:
                self.held_keys.pop(block, None)
        super()._forget_keys(sequence, full)

    def _free(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            if self.pool.ref_count(block) == 1 and block in self.held_keys:
                self.pool.cache([block], [self.held_keys.pop(block)])
        super()._free(blocks)


class LosesWhatWasPreempted(LeavesOutWhatIsHeld):
    """A preempted request gives its blocks back, and not their keys."""

    def preempt(self, seq_id: int) -> None:
        for block in self.sequences[seq_id].table:
            self.held_keys.pop(block, None)
        super().preempt(seq_id)


class TakesWhatComesAgain(CleanManager):
    """What is computed for the first time gets no key: a doorkeeper, as in TinyLFU."""

    profile: ClassVar[dict[str, Any]] = {"prior_sightings": 1}


class CountsTokensWithoutTheirParents(TakesWhatComesAgain):
    """A block was seen before if its own tokens were: a child is taken ahead of its parents."""

    def _publish_entry(self, sequence: CleanSequence, entry: int) -> None:
        first = entry * self.block_size
        own = repr(sequence.tokens[first : first + self.block_size]).encode()
        if self._is_taken(own):
            self.pool.cache([sequence.table[entry]], [self._key(sequence, entry)])


class TakesTheThirdTime(CleanManager):
    """Two sightings are not enough."""

    profile: ClassVar[dict[str, Any]] = {"prior_sightings": 2, "index": "exact"}


class CountsSightingsByShortHash(TakesTheThirdTime):
    """Contents whose hashes begin alike have one counter, and are taken together."""

    def _is_taken(self, key: bytes) -> bool:
        return super()._is_taken(bytes([key[0] & 15]))


class CountsWhoAsks(CleanManager):
    """What counts is that a request asks for a prefix, refused or not, and not what it computes."""

    profile: ClassVar[dict[str, Any]] = {"prior_sightings": 1, "hits": "exact"}

    def _admit(self, sequence: CleanSequence, num_tokens: int | None) -> int | str:
        for entry in range(len(sequence.tokens) // self.block_size):
            key = self._key(sequence, entry)
            self.sightings[key] = self.sightings.get(key, 0) + 1
        return super()._admit(sequence, num_tokens)

    def _is_taken(self, key: bytes) -> bool:
        return self.sightings.get(key, 0) > self.rules.prior_sightings


class TakesTheBlockOfTheFirstTime(CountsWhoAsks):
    """The key goes to the block in which the content was seen first, whoever has that one now."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.seen_in: dict[bytes, int] = {}

    def _publish_entry(self, sequence: CleanSequence, entry: int) -> None:
        key = self._key(sequence, entry)
        block = self.seen_in.setdefault(key, sequence.table[entry])
        if self._is_taken(key):
            is_held = self.pool.ref_count(block) > 0
            self.pool.cache([block if is_held else sequence.table[entry]], [key])


class ForgetsWhatItTook(CleanManager):
    """Once a key is taken its sightings are forgotten: after an eviction they count anew."""

    profile: ClassVar[dict[str, Any]] = {"prior_sightings": 1, "hits": "exact"}

    def _publish_entry(self, sequence: CleanSequence, entry: int) -> None:
        key = self._key(sequence, entry)
        if key in self.pool.index or self._is_taken(key):
            self.pool.cache([sequence.table[entry]], [key])
            self.sightings.pop(key, None)

    def reset(self) -> bool:
        is_done = super().reset()
        if is_done:
            self.sightings.clear()
        return is_done


class ForgetsEverythingItSaw(ForgetsWhatItTook):
    """With each key that is taken the sightings of all contents are gone."""

    def _publish_entry(self, sequence: CleanSequence, entry: int) -> None:
        super()._publish_entry(sequence, entry)
        if self._key(sequence, entry) in self.pool.index:
            self.sightings.clear()


MANAGER_ROWS: tuple[RowExample, ...] = (
    RowExample(
        "publishes", "finish", InsertsAtTheEnd,
        {"publishes": "computed"}, InsertsWhatWasNeverComputed, ("IDX", "DATA"),
    ),
    RowExample(
        "retention", "while-held", SharesAmongTheLiving,
        {"retention": "exact"}, RemembersTheDead, ("IDX",),
    ),
    RowExample(
        "uncached_order", "head-first", OtherOrderUncached,
        {"uncached_order": "same"}, OrdersSwapped, ("ORD",),
    ),
    RowExample(
        "group_order", "last-to-first", LastGroupFirst,
        {"group_order": "first-to-last"}, FirstGroupFirstOnPreemption, ("ORD",),
    ),
    RowExample(
        "generation_tokens", 6, ReservesGeneration,
        {"generation_tokens": 0}, ReservesOnce, ("ADM",),
    ),
    RowExample(
        "held_blocks", "exclusive", OneUserABlock,
        {"held_blocks": "shared"}, OneUserAfterTheStep, ("I2",),
    ),
    RowExample(
        "held_blocks", "exclusive", CopiesForItsForks,
        {"held_blocks": "shared"}, OneUserOfTheFirstBlock, ("I2",),
    ),
    RowExample(
        "held_blocks", "exclusive", LeavesOutWhatIsHeld,
        {"held_blocks": "shared"}, LosesWhatWasPreempted, ("I4",),
    ),
    RowExample(
        "prior_sightings", 1, TakesWhatComesAgain,
        {"prior_sightings": 0}, CountsTokensWithoutTheirParents, ("IDX",),
    ),
    RowExample(
        "prior_sightings", 2, TakesTheThirdTime,
        {"prior_sightings": 1}, CountsSightingsByShortHash, ("IDX",),
    ),
    RowExample(
        "prior_sightings", 1, CountsWhoAsks,
        {"prior_sightings": 0}, TakesTheBlockOfTheFirstTime, ("IDX", "DATA"),
    ),
    RowExample(
        "prior_sightings", 1, ForgetsWhatItTook,
        {"prior_sightings": 0}, ForgetsEverythingItSaw, ("I4",),
    ),
    RowExample(
        "sampled", "with-step", HashesAllButTheLast,
        {"sampled": "with-append"}, HashesTheLastAsWell, ("IDX", "DATA"),
    ),
)  # fmt: skip
