"""Blocks of one request, a list for each cache group: what a manager answers.

A value that a scheduler passes on, from a lookup to an allocation or to the workers; it holds no
references and does not change when the manager's tables do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class KVCacheBlocks:
    """`blocks[g][i]` is the id of the i-th block in group g; id 0 stands where none is needed.

    True also where there is no block, since an allocation that needs none is not a refused one.
    """

    blocks: tuple[Sequence[int], ...]

    def get_block_ids(self) -> tuple[list[int], ...]:
        """The ids as lists of the caller's own."""
        return tuple(map(list, self.blocks))
