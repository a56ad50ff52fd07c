"""Pools with a planted bug, slow enough to be killed at any moment of their campaign."""

from __future__ import annotations

from poolproof.impl.block_pool import BlockPool


class ForgetsToEvict(BlockPool):
    """`evict` of two blocks at once leaves the second in the index."""

    def evict(self, block_ids: list[int]) -> None:
        super().evict(block_ids[:1])


class TouchesTwice(BlockPool):
    """A touch of the same block twice counts once."""

    def evict(self, block_ids: list[int]) -> None:
        super().evict(block_ids[:1])

    def touch(self, block_ids: list[int]) -> None:
        super().touch(list(dict.fromkeys(block_ids)))


class ManyBugs(TouchesTwice):
    """The two bugs above and three more, so that a campaign keeps finding something."""

    def free(self, block_ids: list[int]) -> None:
        super().free(block_ids[::-1] if len(block_ids) > 2 else block_ids)

    def cache(self, block_ids: list[int], hashes: list[bytes]) -> None:
        kept = 2 if len(block_ids) == 3 else len(block_ids)
        super().cache(block_ids[:kept], hashes[:kept])

    def reset(self) -> bool:
        return super().reset() or self.num_free() > 1


class WrongFromTheSixtieth(BlockPool):
    """From the sixtieth allocation on, the blocks come in the wrong order."""

    num_allocations = 0

    def allocate(self, n: int) -> list[int]:
        taken = super().allocate(n)
        self.num_allocations += bool(taken)
        return taken[::-1] if self.num_allocations >= 60 else taken
