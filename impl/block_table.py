"""A block table: from the logical blocks of one sequence to the physical ones.

Under a sliding window the blocks are used in a ring: once there are as many as the window has,
logical block i lies where block i - window lay, whose tokens leave the window one by one as those
of block i are written. The table therefore keeps the distinct blocks alone, and the number of
logical blocks; whatever counts, frees, copies or swaps blocks meets each of them once
(vllm#1556, vllm#3347).
"""

from __future__ import annotations

from poolproof.impl.physical_block import Device, PhysicalTokenBlock


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
