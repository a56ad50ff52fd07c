"""Block tables of the live requests, one for each cache group, over one pool.

Decides what an allocation needs, whether it fits, and carries it out; a refusal and a ValueError
leave everything as it was, the order of the free queue included. Token counts come from
`poolproof.impl.kv_cache_manager`, which knows what a request is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress, pairwise

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_layout import LaidOutGroup, Layout
from poolproof.impl.kv_cache_lookup import PrefixLookup

NULL_BLOCK = 0

NewBlocks = tuple[Sequence[int], ...]


@dataclass(slots=True)
class Need:
    """What one allocation is about, in tokens from the start of the request.

    `num_computed`: computed, cached and loaded ones; `num_settled`: those of them whose forward
    pass is over; `num_slots`: all that need space after it; `num_to_fit`: all that the request is
    known to need space for in the end, 0 where that is not to be checked.
    """

    num_computed: int
    num_settled: int
    num_slots: int
    num_to_fit: int = 0


@dataclass(slots=True)
class RequestTables:
    """The tables of one request, a list of block ids for each group.

    Of group g, the first `num_cached[g]` blocks need no caching any more, and the first
    `num_skipped[g]` ones are the null block.
    """

    tables: tuple[list[int], ...]
    num_cached: list[int] = field(default_factory=list)
    num_skipped: list[int] = field(default_factory=list)


class GroupTables:
    """The tables of all requests that have any, by request id."""

    def __init__(self, layout: Layout, pool: BlockPool) -> None:
        self.layout = layout
        self.pool = pool
        self.requests: dict[str, RequestTables] = {}
        # Blocks with states that the step being scheduled will write.
        self.unwritten_states: set[int] = set()
        self._lookup = PrefixLookup(layout, pool, self.unwritten_states)
        self._nothing: NewBlocks = tuple(() for _ in layout.groups)

    def lookup(self, hashes: list[bytes], max_tokens: int) -> tuple[tuple[list[int], ...], int]:
        """See `PrefixLookup.longest`."""
        return self._lookup.longest(hashes, max_tokens)

    def allocate(
        self, request_id: str, hits: NewBlocks, hashes: list[bytes], need: Need
    ) -> NewBlocks | None:
        """Make the request's tables long enough and give the blocks taken from the pool, or None.

        `hits` are empty lists for a request that has tables. Raises ValueError for hits that are
        no longer what their hashes name.
        """
        held = self.requests.get(request_id)
        if held is None:
            return self._admit(request_id, hits, hashes, need)
        self.require_slots(request_id, held, need.num_computed)
        return self._grow(held, need)

    def publish(
        self, request_id: str, hashes: list[bytes], num_tokens: int, num_written: int
    ) -> None:
        """Cache what is full within the first `num_tokens` tokens, which have slots.

        The first `num_written` were computed in earlier steps. No block beyond the last common
        boundary of all groups, nor one that no hit can need: blocks without a hash are reused
        first. A proof block may lie beyond the boundary.
        """
        held = self.requests[request_id]
        if not self.layout.use_eagle:
            num_tokens = self.layout.align(num_tokens)
        for group, table in zip(self.layout.groups, held.tables, strict=True):
            index = group.index
            end = num_tokens // group.block_size
            first = max(held.num_cached[index], held.num_skipped[index])
            if first < end:
                ids = table[first:end]
                block_hashes = group.hashes(hashes, first, end)
                if group.block_size != self.layout.alignment and not group.reads_all:
                    reached = [self.layout.is_reachable(group, i) for i in range(first, end)]
                    ids = list(compress(ids, reached))
                    block_hashes = list(compress(block_hashes, reached))
                self.pool.cache(ids, block_hashes, group=index)
                held.num_cached[index] = end
                if group.is_state:
                    written = min(end, max(first, num_written // group.block_size))
                    self.unwritten_states.update(table[written:end])

    def withdraw(self, request_id: str, num_tokens: int) -> None:
        """Take their hashes from the blocks that reach beyond the first `num_tokens` tokens."""
        held = self.requests[request_id]
        for group, table in zip(self.layout.groups, held.tables, strict=True):
            first = max(num_tokens // group.block_size, held.num_skipped[group.index])
            end = held.num_cached[group.index]
            if first < end:
                self.pool.evict(table[first:end])
                held.num_cached[group.index] = first

    def skip(self, request_id: str, num_settled: int) -> None:
        """Free the blocks that tokens after the settled ones do not need."""
        held = self.requests[request_id]
        self._skip(held, self._skips(held, num_settled))

    def num_kept(self, request_id: str, num_tokens: int) -> int:
        """How many of the first `num_tokens` computed tokens can stay when the rest is replaced.

        A block that was cached, or holds a state, cannot be written over from the middle on; and
        blocks that have slid out of a window that moves back are gone.
        """
        held = self.requests[request_id]
        for group in self.layout.groups:
            index, size = group.index, group.block_size
            if num_tokens % size and (
                group.is_state or num_tokens // size < held.num_cached[index]
            ):
                num_tokens = self.layout.align(num_tokens)
                break
        for group in self.layout.groups:
            if group.first_needed(num_tokens) < held.num_skipped[group.index]:
                return 0
        return num_tokens

    def cut(self, request_id: str, num_tokens: int) -> None:
        """Free the blocks behind those of the first `num_tokens` tokens."""
        held = self.requests[request_id]
        for group, table in zip(self.layout.groups, held.tables, strict=True):
            end = -(-num_tokens // group.block_size)
            self.pool.free(without_null(table[: end - 1 : -1] if end else table[::-1]))
            del table[end:]
            held.num_cached[group.index] = min(
                held.num_cached[group.index], num_tokens // group.block_size
            )

    def pop(self, request_id: str) -> list[list[int]]:
        """Forget a request and give its blocks, for each group in the order of the table."""
        held = self.requests.pop(request_id, None)
        return [] if held is None else [without_null(table) for table in held.tables]

    def num_common_blocks(self, request_id: str) -> list[int]:
        """For each group, how many first blocks the tables of all requests have in common."""
        if request_id not in self.requests:
            return [0] * len(self.layout.groups)
        return [
            common_length([held.tables[group.index] for held in self.requests.values()])
            if group.reads_all
            else 0
            for group in self.layout.groups
        ]

    def require_hits(
        self,
        request_id: str,
        group: LaidOutGroup,
        hits: list[int],
        hashes: list[bytes],
        first: int = 0,
    ) -> None:
        """Raises ValueError unless the hits, from block `first` on, are what their hashes name."""
        wanted = group.hashes(hashes, first, first + len(hits))
        if not self.pool.carry(hits, wanted, group=group.index):
            raise ValueError(
                f"allocate_slots: of the blocks {hits} found for request {request_id!r}, at least "
                "one no longer holds what was found; look up again after whatever was allocated"
            )

    def require_slots(self, request_id: str, held: RequestTables, num_computed: int) -> None:
        """Raises ValueError when more tokens are said to be computed than there are slots."""
        num_slots = len(held.tables[0]) * self.layout.groups[0].block_size
        if num_computed > num_slots:
            raise ValueError(
                f"request {request_id!r} has {num_slots} slots, which cannot hold "
                f"{num_computed} computed tokens; allocate slots before tokens are computed"
            )

    def _admit(
        self, request_id: str, hits: NewBlocks, hashes: list[bytes], need: Need
    ) -> NewBlocks | None:
        groups = self.layout.groups
        skipped = [group.first_needed(need.num_computed) for group in groups]
        kept: list[list[int]] = []
        for group, first in zip(groups, skipped, strict=True):
            kept.append(list(hits[group.index][first:]))
            self.require_hits(request_id, group, kept[-1], hashes, first)
        lengths = [first + len(ids) for first, ids in zip(skipped, kept, strict=True)]
        wanted = self._missing_blocks(lengths, need.num_slots)
        touched = [block_id for ids in kept for block_id in ids]
        # A hit without references leaves the queue when it is touched, so it is no room for the
        # others (vllm#11565); one that stands twice, under a colliding hash, leaves it once.
        unheld = {block_id for block_id in touched if not self.pool.ref_count(block_id)}
        room = self.pool.num_free() - len(unheld)
        held_now = [len(ids) for ids in kept]
        if sum(wanted) > room or self._outlook(held_now, skipped, need.num_to_fit) > room:
            return None
        # The hits of all groups are pinned before anything is allocated for one of them, or that
        # might evict them (vllm#44409).
        self.pool.touch(touched)
        new = self._take(wanted)
        tables = tuple(
            [NULL_BLOCK] * first + ids + fresh
            for first, ids, fresh in zip(skipped, kept, new, strict=True)
        )
        self.requests[request_id] = RequestTables(tables, lengths, skipped)
        return new

    def _grow(self, held: RequestTables, need: Need) -> NewBlocks | None:
        wanted = self._missing_blocks(list(map(len, held.tables)), need.num_slots)
        skips = self._skips(held, need.num_settled)
        room = self.pool.num_free()
        if any(skips) or need.num_to_fit:
            dropped = Counter(block_id for ids in skips for block_id in ids)
            room += sum(self.pool.ref_count(block) == times for block, times in dropped.items())
            skipped = [a + len(b) for a, b in zip(held.num_skipped, skips, strict=True)]
            held_now = [len(a) - b for a, b in zip(held.tables, skipped, strict=True)]
            if self._outlook(held_now, skipped, need.num_to_fit) > room:
                return None
        if sum(wanted) > room:
            return None
        self._skip(held, skips)
        if not any(wanted):
            return self._nothing
        new = self._take(wanted)
        for table, fresh in zip(held.tables, new, strict=True):
            table.extend(fresh)
        return new

    def _missing_blocks(self, lengths: list[int], num_slots: int) -> list[int]:
        """How many blocks each table lacks for that many slots.

        Never less than none, though tables may be longer than that after drafts (vllm#52707).
        """
        return [
            max(0, group.num_blocks(num_slots) - length)
            for group, length in zip(self.layout.groups, lengths, strict=True)
        ]

    def _outlook(self, held_now: list[int], skipped: list[int], num_to_fit: int) -> int:
        """How many more blocks the request comes to hold at once, until it has that many tokens.

        A group with a window holds no more than its peak at a time; what it holds now is part of
        that, the null blocks in its table are not (vllm#40946).
        """
        if not num_to_fit:
            return 0
        return sum(
            max(0, min(group.num_blocks(num_to_fit) - first, group.peak_blocks) - held)
            for group, held, first in zip(self.layout.groups, held_now, skipped, strict=True)
        )

    def _skips(self, held: RequestTables, num_settled: int) -> list[list[int]]:
        """For each group, the blocks that slide out of its window, the last first."""
        return [
            table[held.num_skipped[group.index] : group.first_needed(num_settled)][::-1]
            for group, table in zip(self.layout.groups, held.tables, strict=True)
        ]

    def _skip(self, held: RequestTables, skips: list[list[int]]) -> None:
        for index, ids in enumerate(skips):
            if ids:
                first = held.num_skipped[index]
                held.tables[index][first : first + len(ids)] = [NULL_BLOCK] * len(ids)
                held.num_skipped[index] = first + len(ids)
                self.pool.free(ids)

    def _take(self, wanted: list[int]) -> tuple[list[int], ...]:
        """That many blocks for each group, from one allocation."""
        taken = self.pool.allocate(sum(wanted))
        ends = [sum(wanted[:index]) for index in range(len(wanted) + 1)]
        return tuple(taken[start:end] for start, end in pairwise(ends))


def without_null(block_ids: list[int]) -> list[int]:
    """The ids of real blocks."""
    return [block_id for block_id in block_ids if block_id != NULL_BLOCK]


def common_length(tables: list[list[int]]) -> int:
    """How many first entries all lists have in common."""
    length = 0
    for column in zip(*tables, strict=False):
        if len(set(column)) > 1:
            break
        length += 1
    return length
