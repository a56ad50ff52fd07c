"""The block copies of one step, in the order in which they were ordered.

Copy on write orders copies that the cache engine performs before the next forward pass. Between
two of them a source can be freed and become the destination of the other, so their order counts:
a map from a source to its destinations alone, as schedulers build it, has lost it.
"""

from __future__ import annotations


class BlocksToCopy:
    """Collects (source, destination) pairs of block numbers on the GPU.

    `pairs` is right for an engine that copies one after the other.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    def add(self, copy: tuple[int, int] | None) -> None:
        """Add what `BlockSpaceManager.append_slot` returned; None is nothing."""
        if copy is not None:
            self.pairs.append(copy)

    def clear(self) -> None:
        """Forget everything: the step was carried out, or the manager was reset.

        Copies kept over a reset overwrite blocks of other sequences (xLLM#1984).
        """
        self.pairs.clear()

    def batches(self) -> list[dict[int, list[int]]]:
        """Maps from a source to its destinations, to be carried out one after the other.

        Within a map the copies may run in any order or at once, as the copy kernels do: no block
        is written twice, and none is both read and written. Nearly always there is one map.
        """
        batches: list[dict[int, list[int]]] = []
        written: set[int] = set()
        for source, destination in self.pairs:
            if (
                not batches
                or source in written
                or destination in written
                or destination in batches[-1]
            ):
                batches.append({})
                written = set()
            batches[-1].setdefault(source, []).append(destination)
            written.add(destination)
        return batches
