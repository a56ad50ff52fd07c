"""Block tables of the live requests, one for each cache group, over one pool.

Decides what an allocation needs, whether it fits, and carries it out; a refusal and a ValueError
leave everything as it was, the order of the free queue included. Token counts come from
`poolproof.impl.kv_cache_manager`, which knows what a request is. A manager with one group of full
attention, the usual model, has `FullAttentionTables`: the same answers without a loop, since
nothing is ever skipped and an allocation is a subtraction and a few operations in C.

The longest cached prefix has to serve every group at once. A length serves a group when all blocks
are cached that the next token reads there: from the first block that is not skipped to the end,
and one more where a speculative head needs proof that the sequence goes on as cached. Lengths
shrink until no group objects, each objection naming the block that is missing, so that no shorter
length that would still need it is tried. The proof block is asked for once, at the final length,
and not at each attempt (vllm#32802).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import compress, pairwise

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_group import LaidOutGroup, Layout


class PrefixLookup:
    """Looks up prefixes of a layout in a pool.

    `unwritten` has the blocks with recurrent states that the step being scheduled will write: a
    state is read when a forward pass begins, so no request of the same step may start from them.
    (Attention writes the step's keys and values before it reads any, and may.)
    """

    def __init__(
        self, layout: Layout, pool: BlockPool, unwritten: AbstractSet[int] = frozenset()
    ) -> None:
        self._layout = layout
        self._pool = pool
        self._unwritten = unwritten

    def longest(self, hashes: list[bytes], max_tokens: int) -> tuple[tuple[list[int], ...], int]:
        """The blocks of the longest hit within the first `max_tokens` tokens, and its length.

        A list for each group, with the null block 0 where a block is skipped. Changes nothing.
        """
        groups = self._layout.groups
        num_tokens = self._full_attention_bound(hashes, max_tokens)
        others = [group for group in groups if not group.reads_all]
        unsettled = list(others)
        while unsettled and num_tokens:
            group = unsettled.pop()
            missing = self._last_missing(group, hashes, num_tokens)
            if missing is not None:
                ends = (missing - group.num_proof_blocks) * group.block_size
                num_tokens = self._layout.align(ends)
                unsettled = list(others)
        return tuple(self._blocks(group, hashes, num_tokens) for group in groups), num_tokens

    def _full_attention_bound(self, hashes: list[bytes], max_tokens: int) -> int:
        """The longest aligned length that serves all full-attention groups.

        Every prefix of a hit is a hit there, so going forwards finds the end at the first miss;
        other groups only have to make room for their proof block.
        """
        bound = max_tokens
        for group in self._layout.groups:
            if group.reads_all:
                wanted = group.hashes(hashes, 0, max_tokens // group.block_size)
                num_blocks = len(self._pool.lookup_prefix(wanted, group=group.index))
            else:
                num_blocks = max_tokens // group.block_size
            bound = min(bound, (num_blocks - group.num_proof_blocks) * group.block_size)
        return self._layout.align(bound)

    def _last_missing(
        self, group: LaidOutGroup, hashes: list[bytes], num_tokens: int
    ) -> int | None:
        """The last block that a hit of this length needs in the group and that is not cached."""
        first = group.first_needed(num_tokens)
        end = num_tokens // group.block_size + group.num_proof_blocks
        wanted = group.hashes(hashes, first, end)
        for index in range(end - 1, first - 1, -1):
            block_id = self._pool.lookup(wanted[index - first], group=group.index)
            if block_id is None or (group.is_state and block_id in self._unwritten):
                return index
        return None

    def _blocks(self, group: LaidOutGroup, hashes: list[bytes], num_tokens: int) -> list[int]:
        first = group.first_needed(num_tokens)
        wanted = group.hashes(hashes, first, num_tokens // group.block_size)
        return [0] * first + self._pool.lookup_prefix(wanted, group=group.index)


NULL_BLOCK = 0

NewBlocks = tuple[Sequence[int], ...]


@dataclass(slots=True)
class Need:
    """What one allocation is about, in tokens from the start of the request.

    `num_computed`: computed, cached and loaded ones; `num_settled`: those of them whose forward
    pass is over; `num_slots`: all that need space after it; `num_to_fit`: all that the request is
    known to need space for in the end, 0 where that is not to be checked; `num_hit`: those that a
    lookup has found; `num_ahead`: those of the slots that are lookahead.
    """

    num_computed: int
    num_settled: int
    num_slots: int
    num_to_fit: int = 0
    num_hit: int = 0
    num_ahead: int = 0


@dataclass(slots=True)
class RequestTables:
    """The tables of one request, a list of block ids for each group.

    Of group g, the first `num_cached[g]` blocks need no caching any more, and the first
    `num_skipped[g]` ones are the null block. Where hits may end inside a block: at token `inside`
    a key of this request does so, and at `kept` a state that its next step would write over.
    """

    tables: tuple[list[int], ...]
    num_cached: list[int] = field(default_factory=list)
    num_skipped: list[int] = field(default_factory=list)
    inside: int = 0
    kept: int = 0


class GroupTables:
    """The tables of all requests that have any, by request id."""

    def __init__(self, layout: Layout, pool: BlockPool) -> None:
        self.layout = layout
        self.pool = pool
        self.requests: dict[str, RequestTables] = {}
        # Up to so many tokens of a request an allocation changes nothing; less where it is unknown.
        self.rooms: dict[str, int] = {}
        # Blocks with states that the step being scheduled will write; all blocks with keys that it
        # will write where hits may end inside a block.
        self.unwritten: set[int] = set()
        self._lookup = PrefixLookup(layout, pool, self.unwritten)
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
                if group.is_state or self.layout.hits_inside:
                    written = min(end, max(first, num_written // group.block_size))
                    self.unwritten.update(table[written:end])

    def withdraw(self, request_id: str, num_tokens: int) -> None:
        """Take their hashes from the blocks that reach beyond the first `num_tokens` tokens."""
        held = self.requests[request_id]
        self.rooms.pop(request_id, None)
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
        self.rooms.pop(request_id, None)
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
        self,
        request_id: str,
        hits: NewBlocks,
        hashes: list[bytes],
        need: Need,
        copied: NewBlocks = (),
    ) -> NewBlocks | None:
        """Blocks that are `copied` stay out of the queue until all are taken."""
        groups = self.layout.groups
        skipped = [group.first_needed(need.num_computed) for group in groups]
        kept: list[list[int]] = []
        for group, first in zip(groups, skipped, strict=True):
            kept.append(list(hits[group.index][first:]))
            self.require_hits(request_id, group, kept[-1], hashes, first)
        lengths = [first + len(ids) for first, ids in zip(skipped, kept, strict=True)]
        wanted = self._missing_blocks(lengths, need)
        touched = [block_id for ids in (*kept, *copied) for block_id in ids]
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
        for ids in copied:
            self.pool.free(ids)
        tables = tuple(
            [NULL_BLOCK] * first + ids + fresh
            for first, ids, fresh in zip(skipped, kept, new, strict=True)
        )
        self.requests[request_id] = RequestTables(tables, lengths, skipped)
        return new

    def _grow(self, held: RequestTables, need: Need) -> NewBlocks | None:
        wanted = self._missing_blocks(list(map(len, held.tables)), need)
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

    def _missing_blocks(self, lengths: list[int], need: Need) -> list[int]:
        """How many blocks each table lacks for the slots that are needed.

        Never less than none, though tables may be longer than that after drafts (vllm#52707).
        """
        return [
            max(0, group.num_blocks(need.num_slots, need.num_ahead) - length)
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


class FullAttentionTables(GroupTables):
    """The tables of all requests; the layout has exactly one group, which reads everything."""

    def __init__(self, layout: Layout, pool: BlockPool) -> None:
        super().__init__(layout, pool)
        (self._group,) = layout.groups
        self._block_size = self._group.block_size

    def lookup(self, hashes: list[bytes], max_tokens: int) -> tuple[tuple[list[int], ...], int]:
        wanted = self._group.hashes(hashes, 0, max_tokens // self._block_size)
        found = self.pool.lookup_prefix(wanted)
        if self._group.num_proof_blocks:
            del found[-1:]
        return (found,), len(found) * self._block_size

    def has_slots(self, request_id: str, num_slots: int) -> bool:
        """Whether the table of a request that has one is long enough."""
        return num_slots <= len(self.requests[request_id].tables[0]) * self._block_size

    def is_published(self, request_id: str, num_tokens: int) -> bool:
        """Whether every block that is full within the first `num_tokens` tokens is cached."""
        return num_tokens < (self.requests[request_id].num_cached[0] + 1) * self._block_size

    def extend(
        self, request_id: str, num_computed: int, num_slots: int, num_to_fit: int
    ) -> list[int] | None:
        """The blocks that a request lacks for `num_slots` tokens; None if there are too few.

        Too few there are as well where the rest of `num_to_fit` tokens would find none. Raises
        ValueError for tokens that are said to be computed and have no slots.
        """
        held = self.requests[request_id]
        (table,) = held.tables
        self.require_slots(request_id, held, num_computed)
        size, num_held, num_free = self._block_size, len(table), self.pool.num_free()
        wanted = -(-num_slots // size) - num_held
        if wanted > num_free or -(-num_to_fit // size) - num_held > num_free:
            return None
        new = self.pool.allocate(wanted) if wanted > 0 else []
        table += new
        return new

    def pop(self, request_id: str) -> list[list[int]]:
        # No block slides out of what reads everything, so no null block takes a place.
        self.rooms.pop(request_id, None)
        held = self.requests.pop(request_id, None)
        return [] if held is None else [held.tables[0]]

    def note_room(self, request_id: str, limit: int, *, is_cached: bool) -> None:
        """Remember up to how many tokens an allocation for this request changes nothing.

        The next ones find this out by one comparison, which is most tokens of a decoding request.
        Where they fill a block that is to be cached, they take a closer look.
        """
        held = self.requests[request_id]
        num_blocks = len(held.tables[0])
        room = num_blocks * self._block_size
        if is_cached and held.num_cached[0] < num_blocks:
            room = (held.num_cached[0] + 1) * self._block_size - 1
        self.rooms[request_id] = min(limit, room)

    def allocate(
        self, request_id: str, hits: NewBlocks, hashes: list[bytes], need: Need
    ) -> NewBlocks | None:
        # Whoever has a table is served by `extend`.
        return self._admit_one(request_id, list(hits[0]), hashes, need)

    def publish(
        self, request_id: str, hashes: list[bytes], num_tokens: int, num_written: int
    ) -> None:
        del num_written  # attention may read what its own step writes
        held = self.requests[request_id]
        first, end = held.num_cached[0], num_tokens // self._block_size
        if first < end:
            wanted = self._group.hashes(hashes, first, end)
            self.pool.cache(held.tables[0][first:end], wanted)
            held.num_cached[0] = end

    def _admit_one(
        self, request_id: str, found: list[int], hashes: list[bytes], need: Need
    ) -> NewBlocks | None:
        pool = self.pool
        num_found = len(found)
        if found:
            self.require_hits(request_id, self._group, found, hashes)
        wanted = max(0, -(-need.num_slots // self._block_size) - num_found)
        to_fit = max(wanted, -(-need.num_to_fit // self._block_size) - num_found)
        num_free = pool.num_free()
        # Hits that nobody holds leave the queue as well, each once, so they are no room for the
        # others (vllm#11565). They are counted where it matters.
        if to_fit + num_found > num_free:
            num_unheld = sum(not pool.ref_count(block_id) for block_id in set(found))
            if to_fit + num_unheld > num_free:
                return None
        pool.touch(found)
        new = pool.allocate(wanted)
        self.requests[request_id] = RequestTables(([*found, *new],), [num_found], [0])
        return (new,)
