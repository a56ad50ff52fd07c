"""A correct block pool that shows its inside: the protocol of docs/contract.md, all of it in use.

The required methods drive it. The optional ones at the end let the checks look inside, so that
its certificate leaves nothing at pool level to inference, the links of a linked list excepted:
this queue has none.
"""

from __future__ import annotations

from collections import Counter


class Pool:
    """Blocks 0 to num_blocks - 1, reused in the order in which they were freed."""

    profile = {
        "null_block": None,
        "eviction": "lru",
        "duplicates": "last",
        "recache": "replace",
        "misuse": "raises",
    }

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.caching = enable_caching
        self.queue = dict.fromkeys(range(num_blocks))  # the free blocks, head first
        self.references = [0] * num_blocks
        self.hash_of: dict[int, bytes] = {}
        self.block_of: dict[bytes, int] = {}

    def num_free(self) -> int:
        """How many blocks can be allocated."""
        return len(self.queue)

    def allocate(self, n: int) -> list[int]:
        """The first n free blocks; whoever had cached something in them loses it now."""
        if n < 0:
            raise ValueError(f"cannot allocate {n} blocks")
        if n > len(self.queue):
            raise MemoryError(f"{n} blocks wanted, {len(self.queue)} free")
        blocks = list(self.queue)[:n]
        for block in blocks:
            del self.queue[block]
            self.references[block] = 1
            self._forget(block)
        return blocks

    def touch(self, block_ids: list[int]) -> None:
        """One more reference for each entry."""
        self._check(block_ids)
        for block in block_ids:
            self.queue.pop(block, None)
            self.references[block] += 1

    def free(self, block_ids: list[int]) -> None:
        """One reference less for each entry."""
        self._check(block_ids)
        for block, times in Counter(block_ids).items():
            if times > self.references[block]:
                raise ValueError(f"block {block} is freed more often than it is held")
        for block in block_ids:
            self.references[block] -= 1
            if self.references[block] == 0:
                self.queue[block] = None

    def cache(self, block_ids: list[int], hashes: list[bytes]) -> None:
        """Held blocks get their hashes; an older carrier of the same hash loses it."""
        if not self.caching:
            return
        self._check(block_ids)
        if len(block_ids) != len(hashes) or len(set(block_ids)) != len(block_ids):
            raise ValueError("one hash for each block, and each block once")
        if not all(self.references[block] for block in block_ids):
            raise ValueError("a block that nobody holds cannot be cached")
        for block, block_hash in zip(block_ids, hashes, strict=True):
            if self.hash_of.get(block) != block_hash:
                self._forget(block)
                if block_hash in self.block_of:
                    self._forget(self.block_of[block_hash])
                self.hash_of[block] = block_hash
                self.block_of[block_hash] = block

    def lookup(self, block_hash: bytes) -> int | None:
        """The block that carries the hash."""
        return self.block_of.get(block_hash)

    def evict(self, block_ids: list[int]) -> None:
        """The blocks lose their hashes and stay where they are."""
        if self.caching:
            self._check(block_ids)
            for block in block_ids:
                self._forget(block)

    def reset(self) -> bool:
        """Forget every hash, unless a block is held."""
        if len(self.queue) != len(self.references):
            return False
        for block in list(self.hash_of):
            self._forget(block)
        return True

    def free_order(self) -> list[int]:
        """The free queue, head first."""
        return list(self.queue)

    def ref_count(self, block_id: int) -> int:
        """How many owners the block has."""
        return self.references[block_id]

    def block_hash(self, block_id: int) -> bytes | None:
        """The hash that the block carries."""
        return self.hash_of.get(block_id)

    def _forget(self, block: int) -> None:
        block_hash = self.hash_of.pop(block, None)
        if block_hash is not None:
            del self.block_of[block_hash]

    def _check(self, block_ids: list[int]) -> None:
        for block in block_ids:
            if not 0 <= block < len(self.references):
                raise ValueError(f"there is no block {block}")
