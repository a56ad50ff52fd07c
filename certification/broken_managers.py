"""The manager of the specification, broken in three ways: planted bugs under any profile.

The managers that specimens are made from follow most rows and not all: neither recurrent states
nor keys for chosen blocks, for instance. Where none of them is right, none of their bugs can be
planted, and a certification that had no other layout would end inconclusive. The specification
follows every row.
"""

from __future__ import annotations

from typing import Any

from poolproof.reference.native_manager import NativeSequenceManager

__all__ = ["BROKEN_MANAGERS"]


class _EndKeepsBlocks(NativeSequenceManager):
    """A sequence leaves the books, and its blocks stay taken."""

    def finish(self, seq_id: int, /) -> None:
        sequence = self._model.sequences.get(seq_id)
        if sequence is not None and sequence.loading:
            super().finish(seq_id)  # its transfer ends later, and asks for it
        else:
            self._model.sequences.pop(seq_id, None)

    def abort(self, seq_id: int, /) -> None:
        self.finish(seq_id)


class _NamesAnothersBlock(NativeSequenceManager):
    """The last entry of a table is that of the oldest sequence."""

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        table = super().block_table(seq_id, group)
        oldest = next(iter(self._model.sequences.values()))
        if table and oldest.tables[group]:
            table[-1] = oldest.tables[group][-1]
        return table


class _FindsTooMuch(NativeSequenceManager):
    """One token more is said to be cached than is."""

    def admit(self, seq_id: int, tokens: list[int], **options: Any) -> int | str:
        answer = super().admit(seq_id, tokens, **options)
        return min(answer + 1, len(tokens)) if isinstance(answer, int) else answer


BROKEN_MANAGERS: dict[str, type[NativeSequenceManager]] = {
    "an end that keeps its blocks": _EndKeepsBlocks,
    "a table that names a block of another": _NamesAnothersBlock,
    "a hit that is longer than what is cached": _FindsTooMuch,
}
"""The classes by what is wrong with them; each is called as `NativeSequenceManager` is."""
