"""A physical token block: a place for the KV of `block_size` tokens on one device.

Only the bookkeeping; the memory itself is the cache engine's. Who counts references and hands
blocks out is `poolproof.impl.block_allocator`.
"""

from __future__ import annotations

from enum import Enum


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
