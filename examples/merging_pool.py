"""A pool with other verbs: prefixes are acquired at once, and duplicates are merged.

`acquire` looks a prefix up and pins it in one call, in place of `lookup` and `touch`. A hash has
one carrier, the first; whoever computes the same block again is given that carrier, and `cache`
answers with the blocks that its caller holds from now on.
"""

from __future__ import annotations


class Pool:
    """Blocks 0 to num_blocks - 1, reused in the order in which they were freed."""

    profile = {
        "eviction": "lru",
        "duplicates": "first",
        # A merged block has several owners, none of whom may give it other contents.
        "recache": "forbidden",
        "misuse": "undefined",
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
        """The first n free blocks."""
        if n > len(self.queue):
            raise MemoryError(f"{n} blocks wanted, {len(self.queue)} free")
        blocks = list(self.queue)[:n]
        for block in blocks:
            self._hold(block)
            self._forget(block)
        return blocks

    def acquire(self, hashes: list[bytes]) -> list[int]:
        """The blocks of the longest cached prefix, each with one reference more."""
        blocks = []
        for block_hash in hashes:
            block = self.block_of.get(block_hash)
            if block is None:
                break
            self._hold(block)
            blocks.append(block)
        return blocks

    def free(self, block_ids: list[int]) -> None:
        """One reference less for each entry."""
        for block in block_ids:
            self.references[block] -= 1
            if self.references[block] == 0:
                self.queue[block] = None

    def cache(self, block_ids: list[int], hashes: list[bytes]) -> list[int]:
        """Which blocks the caller holds in place of `block_ids`."""
        if not self.caching:
            return block_ids
        return [
            self._cache_one(block, block_hash)
            for block, block_hash in zip(block_ids, hashes, strict=True)
        ]

    def _cache_one(self, block: int, block_hash: bytes) -> int:
        if self.hash_of.get(block) == block_hash:
            return block
        self._forget(block)
        carrier = self.block_of.setdefault(block_hash, block)
        if carrier == block:
            self.hash_of[block] = block_hash
            return block
        self._hold(carrier)
        self.free([block])
        return carrier

    def _hold(self, block: int) -> None:
        self.queue.pop(block, None)
        self.references[block] += 1

    def _forget(self, block: int) -> None:
        self.block_of.pop(self.hash_of.pop(block, b""), None)
