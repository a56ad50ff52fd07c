"""The tables of a manager with one group of full attention: the usual model, without a loop.

The same answers as `poolproof.impl.kv_cache_tables` gives for that layout; nothing is ever skipped
and every request has one table, so an allocation is a subtraction and a few operations in C.
"""

from __future__ import annotations

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_layout import Layout
from poolproof.impl.kv_cache_tables import GroupTables, Need, NewBlocks, RequestTables


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

    def are_enough(self, request_id: str, num_slots: int, num_to_cache: int) -> bool:
        """Whether an allocation would change nothing, for a request that has a table.

        So it is for most tokens of a decoding request. False where it takes a closer look.
        """
        held = self.requests[request_id]
        size = self._block_size
        end = len(held.tables[0]) * size
        return num_slots <= end and num_to_cache < (held.num_cached[0] + 1) * size

    def allocate(
        self, request_id: str, hits: NewBlocks, hashes: list[bytes], need: Need
    ) -> NewBlocks | None:
        held = self.requests.get(request_id)
        if held is None:
            return self._admit_one(request_id, list(hits[0]), hashes, need)
        table = held.tables[0]
        num_held = len(table)
        num_slots = num_held * self._block_size
        if need.num_computed > num_slots:
            self.require_slots(request_id, held, need.num_computed)
        if need.num_slots <= num_slots and need.num_to_fit <= num_slots:
            return self._nothing
        wanted = max(0, -(-need.num_slots // self._block_size) - num_held)
        to_fit = -(-need.num_to_fit // self._block_size) - num_held
        if max(wanted, to_fit) > self.pool.num_free():
            return None
        new = self.pool.allocate(wanted)
        table += new
        return (new,)

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
