"""Block tables over which a hit may end inside a block: recurrent states with hashes finer than it.

A prompt that is cut into chunks leaves a state at the end of each. Where that end lies inside a
block, at the end of a hash block, the state gets a key there, and so does the block of attention
beside it, which holds the keys and values up to that token. Somebody else's prompt may begin with
just these tokens: it takes the whole blocks as ever, and copies of those two.

Whoever left such a state goes on in the same block. Before that the state is copied into a free
block, with its key; where none is free the key goes. Copies are carried out in the order in which
they are told, before the next forward pass: what they read has been computed by then. So nothing
is found inside a block that the step being scheduled will write.
"""

from __future__ import annotations

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_group import LaidOutGroup, Layout
from poolproof.impl.kv_cache_tables import (
    NULL_BLOCK,
    GroupTables,
    Need,
    NewBlocks,
    RequestTables,
)


class InsideTables(GroupTables):
    """The tables of all requests, of groups that read everything or hold states, in equal blocks.

    `copies` are pairs of a source and a destination block that wait to be carried out.
    """

    def __init__(self, layout: Layout, pool: BlockPool) -> None:
        super().__init__(layout, pool)
        self.copies: list[tuple[int, int]] = []
        self._size, self._step = layout.alignment, layout.hash_block_size

    def lookup(self, hashes: list[bytes], max_tokens: int) -> tuple[tuple[list[int], ...], int]:
        """As for whole blocks; a longer hit has one block more in each group, to be copied."""
        blocks, num_whole = super().lookup(hashes, max_tokens)
        bound = self._bound(hashes, max_tokens)
        for end in range(bound - bound % self._step, num_whole, -self._step):
            tails = [self._tail(group, hashes, end) for group in self.layout.groups]
            if end % self._size and None not in tails:
                found = [
                    [*self._whole(group, hashes, end // self._size), tail]
                    for group, tail in zip(self.layout.groups, tails, strict=True)
                    if tail is not None
                ]
                return tuple(found), end
        return blocks, num_whole

    def keep(self, request_id: str, hashes: list[bytes], end: int) -> None:
        """Give a key to what the next step leaves inside a block, at token `end`."""
        held = self.requests[request_id]
        held.inside = held.kept = end
        for group, table in zip(self.layout.groups, held.tables, strict=True):
            block_id = table[end // self._size]
            block_hash = hashes[end // self._step - 1]
            self.pool.cache_partial(block_id, block_hash, num_tokens=end, group=group.index)
            self.unwritten.add(block_id)

    def withdraw(self, request_id: str, num_tokens: int) -> None:
        super().withdraw(request_id, num_tokens)
        self._forget_inside(self.requests[request_id], num_tokens)

    def cut(self, request_id: str, num_tokens: int) -> None:
        self._forget_inside(self.requests[request_id], num_tokens)
        super().cut(request_id, num_tokens)

    def _bound(self, hashes: list[bytes], max_tokens: int) -> int:
        """How many tokens the whole blocks of attention and one block more have at most."""
        bound = max_tokens
        for group in self.layout.groups:
            if group.reads_all:
                wanted = group.hashes(hashes, 0, max_tokens // self._size)
                num_found = len(self.pool.lookup_prefix(wanted, group=group.index))
                bound = min(bound, (num_found + 1) * self._size)
        return bound

    def _tail(self, group: LaidOutGroup, hashes: list[bytes], end: int) -> int | None:
        """A block that holds what a hit needs of the block in which it ends, at token `end`.

        A state has to be that of just this end. Of attention a longer beginning will do.
        """
        first = end // self._step
        last = first if group.is_state else -(-end // self._size) * self._size // self._step
        for block_hash in hashes[first - 1 : last]:
            block_id = self.pool.lookup(block_hash, group=group.index)
            if block_id is not None and block_id not in self.unwritten:
                return block_id
        return None

    def _whole(self, group: LaidOutGroup, hashes: list[bytes], end: int) -> list[int]:
        """The blocks of a hit before the one in which it ends; a state needs none of them."""
        if group.is_state:
            return [NULL_BLOCK] * end
        return self.pool.lookup_prefix(group.hashes(hashes, 0, end), group=group.index)

    def _admit(
        self,
        request_id: str,
        hits: NewBlocks,
        hashes: list[bytes],
        need: Need,
        copied: NewBlocks = (),
    ) -> NewBlocks | None:
        entry = need.num_hit // self._size
        copied = tuple(ids[entry : entry + 1] for ids in hits)
        for group, ids in zip(self.layout.groups, copied, strict=True):
            if any(ids) and ids[0] != self._tail(group, hashes, need.num_hit):
                raise ValueError(
                    f"allocate_slots: block {ids[0]}, found for request {request_id!r}, no longer "
                    "holds what was found; look up again after whatever was allocated"
                )
        whole = tuple(ids[:entry] for ids in hits)
        new = super()._admit(request_id, whole, hashes, need, copied)
        if new is not None:
            tables = self.requests[request_id].tables
            self.copies += [
                (ids[0], table[entry])
                for ids, table in zip(copied, tables, strict=True)
                if ids and table[entry] != NULL_BLOCK
            ]
        return new

    def _grow(self, held: RequestTables, need: Need) -> NewBlocks | None:
        new = super()._grow(held, need)
        if new is not None and held.kept:
            self._save(held, is_computed=held.kept <= need.num_computed)
            held.kept = 0
        return new

    def _save(self, held: RequestTables, *, is_computed: bool) -> None:
        """A state that has a key goes into a free block with it: the request goes on in its own."""
        for group, table in zip(self.layout.groups, held.tables, strict=True):
            if not group.is_state:
                continue
            source = table[held.kept // self._size]
            keys = self.pool.block_hashes(source)
            self.pool.evict([source])
            if keys and is_computed and self.pool.num_free():
                block_hash, _ = keys[0]
                (into,) = self.pool.allocate(1)
                self.pool.cache_partial(into, block_hash, num_tokens=held.kept, group=group.index)
                self.pool.free([into])
                self.copies.append((source, into))

    def _forget_inside(self, held: RequestTables, num_tokens: int) -> None:
        """What ends behind the first tokens will be written over, or is not computed at all."""
        if held.inside > num_tokens:
            entry = held.inside // self._size
            self.pool.evict([table[entry] for table in held.tables if table[entry] != NULL_BLOCK])
            held.inside = held.kept = 0
