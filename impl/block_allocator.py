"""The allocator of one device's blocks: a stack of free ones, and reference counts.

The block that was freed last is handed out first, since no content outlives its last reference
here. No prefix cache: `poolproof.impl.block_pool` has one. The shape is that of `BlockAllocator`
in vLLM 0.2.7.
"""

from __future__ import annotations

from poolproof.impl.physical_block import Device, PhysicalTokenBlock
from poolproof.impl.sizing import require_int


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
