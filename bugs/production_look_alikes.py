"""Correct managers that look like members of the families of bugs, and must not be accused."""

from __future__ import annotations

import hashlib
import struct
from typing import Any, ClassVar

from poolproof.bugs.clean_manager import CleanManager, CleanSequence, Copies

__all__ = [
    "LOOK_ALIKES",
    "DeclaredRows",
    "GrowingRows",
    "HashesOfPython",
    "HashesTheOtherWay",
    "ManyTables",
    "PowersOfTwo",
]


class HashesTheOtherWay(CleanManager):
    """The last block's tokens come first, with their number, and then the parent."""

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        size = self.block_size
        tokens = sequence.tokens[entry * size : (entry + 1) * size][::-1]
        parent = sequence.keys[entry - 1] if entry else b"nobody"
        extra = self._extra_keys(sequence.extra_keys or (), entry * size, (entry + 1) * size)
        content = struct.pack(f">{len(tokens)}I", *tokens) + parent + repr(extra).encode()
        return hashlib.blake2b(content, digest_size=20).digest()


class HashesOfPython(CleanManager):
    """Hashes of tuples, which have 64 bits."""

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        size = self.block_size
        tokens = tuple(sequence.tokens[entry * size : (entry + 1) * size])
        parent = sequence.keys[entry - 1] if entry else None
        extra = self._extra_keys(sequence.extra_keys or (), entry * size, (entry + 1) * size)
        return hash((parent, tokens, repr(extra))).to_bytes(8, "big", signed=True)


class ManyTables(CleanManager):
    """Tables are made anew whenever somebody asks, as tuples."""

    def block_table(self, seq_id: int, group: int = 0) -> Any:
        return tuple(super().block_table(seq_id, group))


class GrowingRows(CleanManager):
    """Rows of 16 entries, which double when they are full."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.rows: dict[int, list[int]] = {}

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        table = super().block_table(seq_id, group)
        row = self.rows.setdefault(seq_id, [-1] * 16)
        while len(row) < len(table):
            row += [-1] * len(row)
        row[: len(table)] = table
        return row[: len(table)]


class DeclaredRows(CleanManager):
    """It has 70 rows and says so; a row has 500 tokens."""

    profile: ClassVar[dict[str, Any]] = {
        "max_sequences": 70,
        "max_tokens": 500,
        "lookahead_tokens": 2,
    }

    def _has_row(self) -> bool:
        return sum(s.place != "nowhere" for s in self.sequences.values()) < 70

    def admit(self, seq_id: int, tokens: list[int], **named: Any) -> int | str:
        return super().admit(seq_id, tokens, **named) if self._has_row() else "later"

    def load(self, seq_id: int, tokens: list[int], **named: Any) -> int | str:
        return super().load(seq_id, tokens, **named) if self._has_row() else "later"

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        return super().fork(seq_id, child_id) if self._has_row() else "later"


class PowersOfTwo(CleanManager):
    """It takes blocks of a power of two alone, from four tokens on."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        if block_size < 4 or block_size & (block_size - 1):
            raise ValueError(f"blocks have a power of two of tokens, not {block_size}")
        super().__init__(num_blocks, block_size, **options)


LOOK_ALIKES: tuple[type[CleanManager], ...] = (
    CleanManager,
    HashesTheOtherWay,
    HashesOfPython,
    ManyTables,
    GrowingRows,
    DeclaredRows,
    PowersOfTwo,
)
"""Correct, with what the families above get wrong."""
