"""The caches of the small engine, on the device and on the host, and who wrote each slot.

Kernels read and write the numbers. The notes of which request wrote which prefix where decide
nothing: they only name the culprit of a wrong output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poolproof.contract.content import TokenChain
from poolproof.kernels.serving.model import LAYERS, TinyModel
from poolproof.kernels.target import KernelTarget

__all__ = ["CacheMemory", "Written"]

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Written:
    """The request that wrote a slot, and the prefix that it wrote it for."""

    request: int
    prefix: TokenChain


class CacheMemory:
    """`num_blocks` blocks of `num_slots` slots, in each of `LAYERS` caches of keys and of values.

    A block belongs to one cache group at a time, so the layers of all groups lie in the same
    caches: a block that two groups use at once shows as a wrong output.
    """

    def __init__(
        self,
        target: KernelTarget,
        model: TinyModel,
        num_blocks: int,
        num_slots: int,
        num_host_blocks: int = 0,
    ) -> None:
        self._storage = target.storage
        self._device = _caches(model, num_blocks, num_slots)
        self._host = _caches(model, num_host_blocks, num_slots)
        self._written: dict[tuple[int, int], Written] = {}
        self._kept: dict[tuple[int, int], Written] = {}
        self.num_blocks, self.num_slots = num_blocks, num_slots
        self.num_host_blocks = num_host_blocks

    def caches(self, depth: int, block_size: int) -> tuple[Tensor, Tensor]:
        """Keys and values of one depth, for a group whose blocks have so many slots."""
        keys, values = self._device[depth]
        return keys[:, :block_size], values[:, :block_size]

    def write(
        self, depth: int, block_size: int, keys: Tensor, values: Tensor, slots: Tensor
    ) -> None:
        """Keys and values of new tokens; a slot is its block times `block_size` plus its place."""
        caches = self.caches(depth, block_size)
        if self._storage is not None:
            self._storage.write(
                keys.contiguous(), values.contiguous(), *caches, slots, values_checked=True
            )
            return
        for cache, numbers in zip(caches, (keys, values), strict=True):
            cache[slots // block_size, slots % block_size] = numbers

    def copy(self, pairs: Pairs) -> None:
        """Each destination gets what its source holds, all at once."""
        if not pairs:
            return
        for keys, values in self._device:
            if self._storage is not None:
                self._storage.copy(keys, values, list(pairs))
            else:
                for cache in (keys, values):
                    _move(cache, cache, pairs)
        _follow(self._written, self._written, pairs)

    def swap_out(self, pairs: Pairs) -> None:
        """Copy blocks of the device into blocks of the host."""
        self._swap(self._device, self._host, pairs)
        _follow(self._written, self._kept, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        """Copy blocks of the host into blocks of the device."""
        self._swap(self._host, self._device, pairs)
        _follow(self._kept, self._written, pairs)

    def note(self, block: int, place: int, written: Written) -> None:
        """Note which request writes a slot now."""
        self._written[block, place] = written

    def who_wrote(self, block: int, place: int) -> Written | None:
        """The request that wrote a slot last, also through copies."""
        return self._written.get((block, place))

    def _swap(
        self, sources: list[list[Tensor]], destinations: list[list[Tensor]], pairs: Pairs
    ) -> None:
        if not pairs:
            return
        for source_pair, destination_pair in zip(sources, destinations, strict=True):
            for source, destination in zip(source_pair, destination_pair, strict=True):
                if self._storage is not None:
                    self._storage.swap(source, destination, list(pairs))
                else:
                    _move(source, destination, pairs)


def _caches(model: TinyModel, num_blocks: int, num_slots: int) -> list[list[Tensor]]:
    shape = (num_blocks, num_slots, model.num_kv_heads, model.head_size)
    return [[torch.zeros(shape), torch.zeros(shape)] for _ in range(LAYERS)]


def _move(source: Tensor, destination: Tensor, pairs: Pairs) -> None:
    places = torch.tensor(list(pairs))
    destination[places[:, 1]] = source[places[:, 0]].clone()


def _follow(
    source: dict[tuple[int, int], Written],
    destination: dict[tuple[int, int], Written],
    pairs: Pairs,
) -> None:
    """Copy the notes with the numbers; an unwritten slot stays unwritten."""
    goes_to: dict[int, list[int]] = {}
    for block, into in pairs:
        goes_to.setdefault(block, []).append(into)
    moved = {
        (into, place): written
        for (block, place), written in source.items()
        for into in goes_to.get(block, ())
    }
    gone = {into for _, into in pairs}
    for key in [key for key in destination if key[0] in gone]:
        del destination[key]
    destination.update(moved)
