"""A manager in a hundred lines: sequences of tokens over blocks, with a prefix cache.

Free blocks stand in an ordered dictionary, the one to be reused first at its head. A full block is
named by a number: the one that its tokens have behind the name of the block before. No hash is
involved, so no two contents have one name. `poolproof certify examples/simple_manager.py:Manager`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Sequence:
    """Its tokens, its blocks, how many tokens are computed, and the names of its full blocks."""

    tokens: list[int]
    extra_keys: Any
    table: list[int]
    computed: int
    names: list[int] = field(default_factory=list)


class Manager:
    """Blocks 0 to num_blocks - 1 of `block_size` tokens each."""

    profile = {"eviction": "lru", "duplicates": "first", "reserves": "sequence"}

    def __init__(self, num_blocks: int, block_size: int, *, enable_caching: bool = True) -> None:
        self.num_blocks, self.block_size, self.caching = num_blocks, block_size, enable_caching
        self.free = dict.fromkeys(range(num_blocks))
        self.references = [0] * num_blocks
        self.sequences: dict[int, Sequence] = {}
        self.names: dict[Any, int] = {}  # (name before, tokens, extra keys) -> name
        self.block_of: dict[int, int] = {}
        self.name_of: dict[int, int] = {}
        # What a certificate looks at, straight from the structures.
        self.num_free = self.free.__len__
        self.ref_count = self.references.__getitem__
        self.is_cached = self.name_of.__contains__

    def free_order(self) -> list[int]:
        return list(self.free)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return self.sequences[seq_id].table

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:
        size = self.block_size
        sequence = Sequence(list(tokens), extra_keys, [], 0)
        hits = []
        # The last token is always computed, or there would be nothing to sample from.
        for _ in range((len(tokens) - 1) // size if self.caching else 0):
            block = self.block_of.get(self._next_name(sequence))
            if block is None:
                break
            hits.append(block)
        needed = -(-len(tokens) // size)
        # A hit that nobody holds leaves the free blocks, too.
        waiting = sum(not self.references[block] for block in hits)
        if needed - len(hits) + waiting > len(self.free):
            return "never" if needed > self.num_blocks else "later"
        for block in hits:
            self.free.pop(block, None)
            self.references[block] += 1
        del sequence.names[len(hits) :]
        sequence.table = hits + self._take(needed - len(hits))
        sequence.computed = len(hits) * size
        self.sequences[seq_id] = sequence
        return sequence.computed

    def append(self, seq_id: int, tokens: list[int]) -> str | None:
        sequence = self.sequences[seq_id]
        missing = -(-(len(sequence.tokens) + len(tokens)) // self.block_size) - len(sequence.table)
        if missing > len(self.free):
            return "later"
        sequence.tokens += tokens
        sequence.table += self._take(missing)
        return None

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, count in batch:
            sequence = self.sequences[seq_id]
            sequence.computed += count
            # Found from now on: the step has written them.
            while self.caching and len(sequence.names) < sequence.computed // self.block_size:
                name = self._next_name(sequence)
                if name not in self.block_of:
                    block = sequence.table[len(sequence.names) - 1]
                    self.block_of[name], self.name_of[block] = block, name

    def finish(self, seq_id: int) -> None:
        sequence = self.sequences.pop(seq_id, None)
        if sequence is None:
            return
        for block in reversed(sequence.table):  # the tail of a prefix is evicted before its head
            self.references[block] -= 1
            if not self.references[block]:
                self.free[block] = None

    preempt = abort = finish

    def _take(self, count: int) -> list[int]:
        """Blocks from the head; what was cached in them is gone."""
        taken = []
        for _ in range(count):
            block = next(iter(self.free))
            del self.free[block]
            self.references[block] = 1
            if block in self.name_of:
                del self.block_of[self.name_of.pop(block)]
            taken.append(block)
        return taken

    def _next_name(self, sequence: Sequence) -> int:
        """Name the next full block of a sequence."""
        first = len(sequence.names) * self.block_size
        end = first + self.block_size
        keys = [
            (kind, value, start - first, stop and stop - first)
            for kind, value, start, stop in sequence.extra_keys or ()
            if start < end and (stop is None or stop > first)
        ]
        before = sequence.names[-1] if sequence.names else None
        content = (before, *sequence.tokens[first:end], *keys)
        name = self.names.setdefault(content, len(self.names))
        sequence.names.append(name)
        return name
