# ruff: noqa: ANN001, ARG002, PLR0917, RUF012 -- the signatures that an outsider writes
"""A block pool as somebody writes it after a public description of vLLM V1's: not a test itself.

It has the description's fewer parameters and operations: no events, no eviction of single
blocks, no partial entries, and every freed block joins the tail of the free queue.
"""

from __future__ import annotations

from typing import Any


class Block:
    """One block and its links in the free queue."""

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_cnt = 0
        self.block_hash: Any = None
        self.prev_free_block: Any = None
        self.next_free_block: Any = None
        self.is_null = False


class FreeQueue:
    """Blocks between two sentinels."""

    def __init__(self, blocks: Any) -> None:
        self.num_free_blocks = 0
        self.fake_free_list_head = Block(-1)
        self.fake_free_list_tail = Block(-1)
        self.fake_free_list_head.next_free_block = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free_block = self.fake_free_list_head
        self.append_n(blocks)

    def popleft(self) -> Any:
        if not self.num_free_blocks:
            raise ValueError("the queue is empty")
        block = self.fake_free_list_head.next_free_block
        self.remove(block)
        return block

    def popleft_n(self, n: int) -> Any:
        return [self.popleft() for _ in range(n)]

    def remove(self, block: Any) -> None:
        block.prev_free_block.next_free_block = block.next_free_block
        block.next_free_block.prev_free_block = block.prev_free_block
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append(self, block: Any) -> None:
        last = self.fake_free_list_tail.prev_free_block
        last.next_free_block = block
        block.prev_free_block = last
        block.next_free_block = self.fake_free_list_tail
        self.fake_free_list_tail.prev_free_block = block
        self.num_free_blocks += 1

    def append_n(self, blocks: Any) -> None:
        for block in blocks:
            self.append(block)

    def get_all_free_blocks(self) -> Any:
        found, block = [], self.fake_free_list_head.next_free_block
        while block is not self.fake_free_list_tail:
            found.append(block)
            block = block.next_free_block
        return found


class BlockPool:
    """The pool; keys in the index are pairs of hash and group."""

    def __init__(self, num_gpu_blocks: int, enable_caching: bool, hash_block_size: int) -> None:
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.hash_block_size = hash_block_size
        self.blocks = [Block(number) for number in range(num_gpu_blocks)]
        self.free_block_queue = FreeQueue(self.blocks)
        self.cached: dict[Any, dict[int, Any]] = {}
        self.null_block = self.free_block_queue.popleft()
        self.null_block.is_null = True

    def get_new_blocks(self, num_blocks: int) -> Any:
        if num_blocks > self.free_block_queue.num_free_blocks:
            raise ValueError("too few free blocks")
        taken = self.free_block_queue.popleft_n(num_blocks)
        for block in taken:
            self.forget(block)
            block.ref_cnt = 1
        return taken

    def free_blocks(self, ordered_blocks: Any) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if block.ref_cnt == 0 and not block.is_null:
                self.free_block_queue.append(block)

    def touch(self, blocks: Any) -> None:
        for block in blocks:
            if block.ref_cnt == 0 and not block.is_null:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def cache_full_blocks(
        self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id
    ) -> None:
        for position in range(num_cached_blocks, num_full_blocks):
            block = blocks[position]
            if not block.is_null:
                key = (request.block_hashes[position], kv_cache_group_id)
                block.block_hash = key
                self.cached.setdefault(key, {})[block.block_id] = block

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: list[int]) -> Any:
        found = [self.cached.get((block_hash, group)) for group in kv_cache_group_ids]
        return [next(iter(blocks.values())) for blocks in found] if all(found) else None

    def reset_prefix_cache(self) -> Any:
        if self.free_block_queue.num_free_blocks != self.num_gpu_blocks - 1:
            return False
        for block in self.blocks:
            self.forget(block)
        return True

    def get_num_free_blocks(self) -> Any:
        return self.free_block_queue.num_free_blocks

    def get_usage(self) -> Any:
        usable = self.num_gpu_blocks - 1
        return 1 - self.get_num_free_blocks() / usable if usable else 0

    def forget(self, block: Any) -> None:
        if block.block_hash is not None:
            carriers = self.cached[block.block_hash]
            del carriers[block.block_id]
            if not carriers:
                del self.cached[block.block_hash]
            block.block_hash = None


class NestedTouch(BlockPool):
    """As between versions 0.9 and 0.10: one list of blocks for each cache group."""

    def touch(self, blocks: tuple[list[Block], ...]) -> None:
        for group in blocks:
            super().touch(group)


class NoGroups(BlockPool):
    """As before there were cache groups."""

    def cache_full_blocks(
        self, request, blocks, num_cached_blocks, num_full_blocks, block_size
    ) -> None:
        super().cache_full_blocks(
            request, blocks, num_cached_blocks, num_full_blocks, block_size, 0
        )

    def get_cached_block(self, block_hash: bytes) -> Any:
        found = super().get_cached_block(block_hash, [0])
        return found[0] if found else None


class Wrapped(BlockPool):
    """An override that only passes its arguments on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)

    def cache_full_blocks(self, *args: Any, **kwargs: Any) -> None:
        super().cache_full_blocks(*args, **kwargs)


class Reversed(BlockPool):
    """Frees head of the list last: not what any profile says."""

    profile = {"eviction": "lru"}

    def free_blocks(self, ordered_blocks: Any) -> None:
        super().free_blocks(list(ordered_blocks)[::-1])


class NeedsMore(BlockPool):
    """A method that wants something the published ones do not."""

    def cache_full_blocks(
        self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id,
        tensor_parallel_rank,
    ) -> None:  # fmt: skip
        raise AssertionError("never called")


class Hangs(BlockPool):
    """A constructor that never returns."""

    def __init__(self, num_gpu_blocks: int, enable_caching: bool, hash_block_size: int) -> None:
        while True:
            pass


class Misses:
    """Half of the shape."""

    def get_new_blocks(self, num_blocks: int) -> Any:
        raise AssertionError("never called")

    def free_blocks(self, ordered_blocks: Any) -> Any:
        raise AssertionError("never called")


class ReusesItsList(BlockPool):
    """The answer of `get_new_blocks` is one list, which the next answer overwrites."""

    def get_new_blocks(self, num_blocks: int) -> Any:
        blocks = super().get_new_blocks(num_blocks)
        self.answer = getattr(self, "answer", [])
        self.answer[:] = blocks
        return self.answer
