"""A manager that tells the worker what changed in a table, in place of showing it whole."""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager

__all__ = ["ReportingManager"]


class ReportingManager(CleanManager):
    """Before a step the worker hears the new blocks, or the whole table where it was rewritten."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.reported: dict[int, list[int]] = {}

    def take_table_update(self, seq_id: int, group: int = 0) -> tuple[bool, list[int]]:  # noqa: ARG002 - one group
        """Whether the blocks replace what the worker has, and the blocks."""
        table = self.sequences[seq_id].table
        reported = self.reported.get(seq_id, [])
        self.reported[seq_id] = list(table)
        if self._is_rewritten(reported, table):
            return True, list(table)
        return False, table[len(reported) :]

    def preempt(self, seq_id: int) -> None:
        """The worker forgets the sequence, and hears the whole table when it comes back."""
        super().preempt(seq_id)
        self.reported.pop(seq_id, None)

    def _is_rewritten(self, reported: list[int], table: list[int]) -> bool:
        return table[: len(reported)] != reported
