"""A manager that compares what it finds: right whatever the hash function does.

Beside each cached block stands the whole prefix that it belongs to; of several blocks under one
hash it takes the one whose prefix is equal. An oddity, and the base of a bug that compares less.
"""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_sequence import CleanSequence, extra_keys_within

__all__ = ["ContentCheckedManager"]


class ContentCheckedManager(CleanManager):
    """Any hash will do, also one of a few bits."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.contents: dict[int, Any] = {}

    def _find(self, sequence: CleanSequence, entry: int) -> int | None:
        wanted = self._content_of(sequence, entry)
        carriers = self.pool.index.get(self._key(sequence, entry), ())
        return next((block for block in carriers if self.contents[block] == wanted), None)

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        first = sequence.num_published
        super()._publish_up_to(sequence, num_tokens)
        for entry in range(first, sequence.num_published):
            self.contents[sequence.table[entry]] = self._content_of(sequence, entry)

    def _content_of(self, sequence: CleanSequence, entry: int) -> Any:
        """What the KV of a block depends on: every token so far, and the extra keys."""
        end = (entry + 1) * self.block_size
        return sequence.tokens[:end], extra_keys_within(sequence.extra_keys or (), 0, end)
