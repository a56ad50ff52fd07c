"""Blocks of one device, the tables that sequences have of them, and the arithmetic of both.

A physical block is a place for the KV of `block_size` tokens. Only the bookkeeping is here; the
memory itself is the cache engine's. The allocator is a stack: the block that was freed last is
handed out first, since no content outlives its last reference here. It has no prefix cache;
`poolproof.impl.block_pool` has one. The shape is that of vLLM 0.2.7.

A table leads from the logical blocks of one sequence to the physical ones. Under a sliding window
the blocks are used in a ring: once there are as many as the window has, logical block i lies where
block i - window lay, whose tokens leave the window one by one as those of block i are written. The
table therefore keeps the distinct blocks alone, and the number of logical blocks; whatever counts,
frees, copies or swaps blocks meets each of them once (vllm#1556, vllm#3347).

How many blocks tokens take, and which blocks a step writes, is said by `BlockLayout` alone: when
admission, allocation and swapping each have a formula of their own, they drift apart, and
something fails after it was said to fit (vllm#17834, vllm#40946).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from poolproof.impl.sizing import require_int


class Device(Enum):
    """Where a block lies."""

    GPU = "gpu"
    CPU = "cpu"


class PhysicalTokenBlock:
    """Block number `block_number` of a device, and how many block tables contain it."""

    __slots__ = ("block_number", "device", "ref_count")

    def __init__(self, device: Device, block_number: int) -> None:
        self.device = device
        self.block_number = block_number
        self.ref_count = 0

    def __repr__(self) -> str:
        return f"{self.device.value} block {self.block_number} (ref_count {self.ref_count})"


class BlockTable:
    """Logical block i lies in `blocks[i % len(blocks)]`, for i below `num_logical_blocks`.

    All blocks lie on `device`. `num_tokens` counts the tokens for which there are slots to write,
    each private to the sequence when it was given; lookahead slots come on top and count for
    nothing, since what is written there may be rejected.
    """

    __slots__ = ("blocks", "device", "num_logical_blocks", "num_tokens")

    def __init__(
        self,
        device: Device,
        blocks: list[PhysicalTokenBlock],
        num_logical_blocks: int,
        num_tokens: int,
    ) -> None:
        self.device = device
        self.blocks = blocks
        self.num_logical_blocks = num_logical_blocks
        self.num_tokens = num_tokens

    def copy(self) -> BlockTable:
        """The same table for another sequence; who counts references has to count it."""
        return BlockTable(self.device, list(self.blocks), self.num_logical_blocks, self.num_tokens)

    def block_numbers(self) -> list[int]:
        """The physical block number of each logical block."""
        numbers = [block.block_number for block in self.blocks]
        if len(numbers) == self.num_logical_blocks:
            return numbers
        rounds, remainder = divmod(self.num_logical_blocks, len(numbers))
        return numbers * rounds + numbers[:remainder]


class BlockAllocator:
    """Hands out the blocks 0..num_blocks-1 of a device, the highest number first.

    Raises ValueError for a `num_blocks` that is no int or negative; 0 is a device without memory,
    such as a CPU without swap space.
    """

    def __init__(self, device: Device, num_blocks: int) -> None:
        require_int(f"num_{device.value}_blocks", num_blocks, at_least=0)
        self.device = device
        self.num_blocks = num_blocks
        self.blocks = [PhysicalTokenBlock(device, number) for number in range(num_blocks)]
        self._free_blocks = list(self.blocks)

    def allocate(self) -> PhysicalTokenBlock:
        """A free block, with one reference. Raises MemoryError when there is none."""
        if not self._free_blocks:
            raise MemoryError(
                f"allocate: all {self.num_blocks} {self.device.value} blocks are in use"
            )
        block = self._free_blocks.pop()
        block.ref_count = 1
        return block

    def share(self, block: PhysicalTokenBlock) -> None:
        """One reference more. Raises ValueError for a block that is free or not of this device."""
        self._require_held("share", block)
        block.ref_count += 1

    def free(self, block: PhysicalTokenBlock) -> None:
        """One reference less; the last one gives the block back.

        Raises ValueError for a block that is free already, or not of this device.
        """
        self._require_held("free", block)
        block.ref_count -= 1
        if not block.ref_count:
            self._free_blocks.append(block)

    def get_num_free_blocks(self) -> int:
        """How many blocks `allocate` can hand out now."""
        return len(self._free_blocks)

    def free_order(self) -> list[int]:
        """The numbers of the free blocks in the order in which `allocate` will hand them out."""
        return [block.block_number for block in reversed(self._free_blocks)]

    def ref_count(self, block_number: int) -> int:
        """How many references the block has."""
        return self.blocks[block_number].ref_count

    def _require_held(self, operation: str, block: PhysicalTokenBlock) -> None:
        number = block.block_number
        if not 0 <= number < self.num_blocks or self.blocks[number] is not block:
            raise ValueError(
                f"{operation}: {block!r} is none of these {self.num_blocks} "
                f"{self.device.value} blocks"
            )
        if not block.ref_count:
            raise ValueError(f"{operation}: {block!r} is free already")


class Growth(NamedTuple):
    """What it takes to write the next tokens of a table.

    written: indices into the table's blocks that exist and will be written, ascending.
    has_older: whether the first of them has older tokens that will still be read.
    num_new: physical blocks to be added.
    num_logical_blocks: what the table has afterwards.
    """

    written: range
    has_older: bool
    num_new: int
    num_logical_blocks: int


class BlockLayout:
    """Blocks of `block_size` tokens, in a ring of `sliding_window` tokens unless that is None.

    Raises ValueError for a block size below 1 or a window that is no positive multiple of it.
    """

    def __init__(self, block_size: int, sliding_window: int | None) -> None:
        require_int("block_size", block_size, at_least=1)
        if sliding_window is not None and (
            type(sliding_window) is not int or sliding_window < 1 or sliding_window % block_size
        ):
            raise ValueError(
                f"sliding_window must be a positive multiple of the block size {block_size}, "
                f"not {sliding_window!r}"
            )
        self.block_size = block_size
        self.sliding_window = sliding_window

    def num_logical_blocks(self, num_tokens: int) -> int:
        """The blocks that tokens fill, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def num_physical_blocks(self, num_logical_blocks: int) -> int:
        """The distinct blocks behind logical ones: at most those of the window."""
        if self.sliding_window is None:
            return num_logical_blocks
        return min(num_logical_blocks, self.sliding_window // self.block_size)

    def is_in_place(self, table: BlockTable, num_tokens: int, num_lookahead_slots: int) -> bool:
        """Whether all that is new is one token behind others in a block of the sequence's own.

        True of nearly every token, and quicker to ask than `growth`.
        """
        start = table.num_tokens
        if num_tokens != start + 1 or num_lookahead_slots or not start % self.block_size:
            return False
        return table.blocks[start // self.block_size % len(table.blocks)].ref_count == 1

    def growth(self, table: BlockTable, num_tokens: int, num_lookahead_slots: int) -> Growth:
        """What it takes to write the tokens from `table.num_tokens` on, and the lookahead.

        Raises ValueError when the tokens became fewer, when the lookahead is no int or negative,
        or when more than one token is written while the ring comes round: the second would
        overwrite what the first still reads.
        """
        require_int("num_lookahead_slots", num_lookahead_slots, at_least=0)
        start, end = table.num_tokens, num_tokens + num_lookahead_slots
        if num_tokens < start:
            raise ValueError(
                f"the sequence has {num_tokens} tokens and had {start}; "
                "free it and allocate it anew to go back"
            )
        if start == end:
            return Growth(range(0), False, 0, table.num_logical_blocks)
        window, num_blocks = self.sliding_window, len(table.blocks)
        if window is not None and end > window and end - start > 1:
            raise ValueError(
                f"{end - start} tokens cannot be written at once beyond a sliding window of "
                f"{window} tokens; append one, without lookahead"
            )
        num_logical = max(table.num_logical_blocks, self.num_logical_blocks(end))
        num_new = self.num_physical_blocks(num_logical) - num_blocks
        first, last = start // self.block_size, (end - 1) // self.block_size
        if window is not None and start >= window:
            # One token, in the ring. Behind it stand tokens that leave the window after it.
            index = first % (window // self.block_size)
            return Growth(range(index, index + 1), self.block_size > 1, num_new, num_logical)
        written = range(first, min(last + 1, num_blocks))
        return Growth(written, start % self.block_size > 0, num_new, num_logical)
