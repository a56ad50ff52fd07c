"""The targets of the files in 0.1.0/: a bug at each level that 0.1.0 knew."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import free_queue
import simple_manager
import stale_index

Pool = stale_index.Pool
"""The index entry stays when its block is handed out again."""


class Queue(free_queue.Queue):
    """`append` says that the block stands in the queue, and forgets to count it."""

    def append(self, block_id: int) -> None:
        super().append(block_id)
        self.length -= len(self.free_order()) == 2


class Manager(simple_manager.Manager):
    """A sequence that ends keeps its last block."""

    def finish(self, seq_id: int) -> None:
        if seq_id in self.sequences:
            self.sequences[seq_id].table[-1:] = []
        super().finish(seq_id)
