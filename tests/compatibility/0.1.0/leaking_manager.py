"""The manager of 0.1.0 with a bug: a sequence that ends keeps its last block."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import simple_manager


class Manager(simple_manager.Manager):
    """As in 0.1.0, but for its end of a sequence."""

    def finish(self, seq_id: int) -> None:
        if seq_id in self.sequences:
            self.sequences[seq_id].table[-1:] = []
        super().finish(seq_id)
