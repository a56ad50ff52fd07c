"""A block pool in thirty lines of Python, with one bug that real servers have shipped."""

from __future__ import annotations


class Pool:
    """Blocks 0 to num_blocks - 1, reused in the order in which they were freed."""

    profile = {"eviction": "lru", "duplicates": "last", "misuse": "undefined"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self.caching = enable_caching
        self.queue = dict.fromkeys(range(num_blocks))  # the free blocks, head first
        self.references = [0] * num_blocks
        self.hash_of: dict[int, bytes] = {}
        self.block_of: dict[bytes, int] = {}

    def num_free(self) -> int:
        return len(self.queue)

    def allocate(self, n: int) -> list[int]:
        if n > len(self.queue):
            raise MemoryError(f"{n} blocks wanted, {len(self.queue)} free")
        blocks = list(self.queue)[:n]
        for block in blocks:
            del self.queue[block]
            self.references[block] = 1
            self.hash_of.pop(block, None)
        return blocks

    def touch(self, block_ids: list[int]) -> None:
        for block in block_ids:
            self.queue.pop(block, None)
            self.references[block] += 1

    def free(self, block_ids: list[int]) -> None:
        for block in block_ids:
            self.references[block] -= 1
            if self.references[block] == 0:
                self.queue[block] = None

    def cache(self, block_ids: list[int], hashes: list[bytes]) -> None:
        for block, block_hash in zip(block_ids, hashes, strict=True):
            if self.caching and self.hash_of.get(block) != block_hash:
                self.block_of.pop(self.hash_of.pop(block, b""), None)
                self.hash_of.pop(self.block_of.get(block_hash, -1), None)
                self.hash_of[block] = block_hash
                self.block_of[block_hash] = block

    def lookup(self, block_hash: bytes) -> int | None:
        return self.block_of.get(block_hash)
