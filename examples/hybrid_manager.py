"""A manager with two cache groups: layers of full attention, and layers with a sliding window.

Each sequence has a block table for each group. A hit must be cached in both: every block of it
in the full group, and what the window reads at its end in the other. Blocks that slid out of a
window go back when the sequence grows; the null block, 0, stands in their place. Names are as
in simple_manager.py. `poolproof certify examples/hybrid_manager.py:Manager`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FULL, SLIDING = GROUPS = (0, 1)
NULL = 0
WINDOW = 6


def first_read(position: int) -> int:
    """The first position whose KV a token at `position` reads in the sliding group."""
    return max(0, position - WINDOW + 1)


@dataclass(slots=True)
class Sequence:
    """Its tokens, a table for each group, how far it is computed, the names of its full blocks."""

    tokens: list[int]
    extra_keys: Any
    names: list[int]
    tables: list[list[int]]
    computed: int = 0
    published: int = 0


class Manager:
    """Blocks 1 to num_blocks - 1 of `block_size` tokens each serve both groups."""

    profile = {
        "groups": f"full+sliding:{WINDOW}",
        "null_block": NULL,
        "eviction": "lru",
        "duplicates": "first",
        "reserves": "sequence",
    }

    def __init__(self, num_blocks: int, block_size: int, *, enable_caching: bool = True) -> None:
        self.num_blocks, self.block_size, self.caching = num_blocks, block_size, enable_caching
        self.free = dict.fromkeys(range(1, num_blocks))
        self.references = [0] * num_blocks
        self.sequences: dict[int, Sequence] = {}
        self.names: dict[Any, int] = {}  # (name before, tokens, extra keys) -> name
        self.block_of: dict[tuple[int, int], int] = {}  # (group, name) -> block
        self.key_of: dict[int, tuple[int, int]] = {}
        # What a certificate looks at, straight from the structures.
        self.num_free = self.free.__len__
        self.ref_count = self.references.__getitem__
        self.is_cached = self.key_of.__contains__

    def free_order(self) -> list[int]:
        return list(self.free)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        return self.sequences[seq_id].tables[group]

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:
        sequence = Sequence(list(tokens), extra_keys, [], [])
        self._name_up_to(sequence, len(tokens))
        length = self._longest_hit(sequence)
        for group in GROUPS:
            first = self._first_needed(group, length * self.block_size)
            hits = [self.block_of[group, name] for name in sequence.names[first:length]]
            sequence.tables.append([NULL] * min(first, length) + hits)
        entries = -(-len(tokens) // self.block_size)
        # A hit that nobody holds leaves the free blocks, too.
        waiting = sum(block in self.free for table in sequence.tables for block in table)
        if (entries - length) * len(GROUPS) + waiting > len(self.free):
            return "never" if entries * len(GROUPS) > self.num_blocks - 1 else "later"
        for table in sequence.tables:
            for block in table:
                if block != NULL:
                    self.free.pop(block, None)
                    self.references[block] += 1
        for table in sequence.tables:
            table.extend(self._take(entries - length))
        sequence.computed, sequence.published = length * self.block_size, length
        self.sequences[seq_id] = sequence
        return sequence.computed

    def append(self, seq_id: int, tokens: list[int]) -> str | None:
        sequence = self.sequences[seq_id]
        entries = -(-(len(sequence.tokens) + len(tokens)) // self.block_size)
        missing = entries - len(sequence.tables[FULL])
        window = sequence.tables[SLIDING]
        unread = [
            entry
            for entry in range(self._first_needed(SLIDING, sequence.computed))
            if window[entry] != NULL
        ]
        regained = sum(self.references[window[entry]] == 1 for entry in unread)
        if missing * len(GROUPS) > len(self.free) + regained:
            return "later"
        for entry in reversed(unread):
            self._give_back(window[entry])
            window[entry] = NULL
        sequence.tokens += tokens
        for table in sequence.tables:
            table.extend(self._take(missing))
        return None

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, count in batch:
            sequence = self.sequences[seq_id]
            sequence.computed += count
            full = sequence.computed // self.block_size
            self._name_up_to(sequence, sequence.computed)
            # Found from now on: the step has written them.
            for entry in range(sequence.published, full if self.caching else 0):
                for group in GROUPS:
                    key = group, sequence.names[entry]
                    if key not in self.block_of:
                        block = sequence.tables[group][entry]
                        self.block_of[key], self.key_of[block] = block, key
            sequence.published = full

    def finish(self, seq_id: int) -> None:
        sequence = self.sequences.pop(seq_id, None)
        for table in sequence.tables if sequence else ():  # group by group
            for block in reversed(table):  # the tail of a prefix is evicted before its head
                if block != NULL:
                    self._give_back(block)

    preempt = abort = finish

    def _longest_hit(self, sequence: Sequence) -> int:
        """How many blocks are cached in both groups; the last token is always computed."""
        length, most = 0, (len(sequence.tokens) - 1) // self.block_size
        while length < most and (FULL, sequence.names[length]) in self.block_of:
            length += 1
        while any(
            (SLIDING, name) not in self.block_of
            for name in sequence.names[
                self._first_needed(SLIDING, length * self.block_size) : length
            ]
        ):
            length -= 1
        return length

    def _first_needed(self, group: int, position: int) -> int:
        """The first entry of a table that a token at `position` reads."""
        return first_read(position) // self.block_size if group == SLIDING else 0

    def _take(self, count: int) -> list[int]:
        """Blocks from the head; what was cached in them is gone."""
        taken = []
        for _ in range(count):
            block = next(iter(self.free))
            del self.free[block]
            self.references[block] = 1
            if block in self.key_of:
                del self.block_of[self.key_of.pop(block)]
            taken.append(block)
        return taken

    def _give_back(self, block: int) -> None:
        self.references[block] -= 1
        if not self.references[block]:
            self.free[block] = None

    def _name_up_to(self, sequence: Sequence, end: int) -> None:
        """Name the full blocks of the first `end` tokens."""
        size = self.block_size
        for first in range(len(sequence.names) * size, end - end % size, size):
            keys = [
                (kind, value, start - first, stop and stop - first)
                for kind, value, start, stop in sequence.extra_keys or ()
                if start < first + size and (stop is None or stop > first)
            ]
            before = sequence.names[-1] if sequence.names else None
            content = (before, *sequence.tokens[first : first + size], *keys)
            sequence.names.append(self.names.setdefault(content, len(self.names)))
