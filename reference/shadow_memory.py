"""Shadow KV memory: for each physical slot, the exact prefix whose KV it holds, and its writer.

The harness plays the GPU with it. A write stores, for each computed position, the name of the
whole prefix (content_names.py) in the slot that the writer's block table names; a copy moves the
contents of a block; a read compares what is there with what the reader needs. All it needs from a
manager are tables and counts.

The caller decides when to write, copy and read: in a step all writes land before any read
(on a live vLLM stricter rules raised only false alarms).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poolproof.reference.content_names import Content

__all__ = ["Held", "Misread", "ShadowMemory", "Writer"]


@dataclass(frozen=True, slots=True)
class Writer:
    """The sequence whose forward pass wrote a slot, and the number of the command that ran it."""

    seq_id: int
    command_number: int


@dataclass(frozen=True, slots=True)
class Misread:
    """A reader at `position` (block, slot) needed `wanted` and found `found` there.

    `found` is None for a slot that nobody has written.
    """

    position: int
    block: int
    slot: int
    wanted: Content
    found: Content | None
    writer: Writer | None


Held = tuple[list[Content | None], list[Writer | None]]
"""What one block holds, slot by slot, and who wrote it."""


class ShadowMemory:
    """`num_blocks` blocks of `num_slots` slots each, all unwritten.

    `changed` has the blocks that were written since the caller cleared it last.
    """

    def __init__(self, num_blocks: int, num_slots: int) -> None:
        self.changed: set[int] = set()
        self.slots: list[list[Content | None]] = [[None] * num_slots for _ in range(num_blocks)]
        self.writers: list[list[Writer | None]] = [[None] * num_slots for _ in range(num_blocks)]

    def write(
        self,
        table: Sequence[int],
        block_size: int,
        first: int,
        contents: Sequence[Content],
        writer: Writer,
    ) -> None:
        """Positions `first`, `first` + 1, ... of a sequence are computed: `contents` land."""
        done, slot = 0, first % block_size
        while done < len(contents):
            block = table[(first + done) // block_size]
            self.changed.add(block)
            written = contents[done : done + block_size - slot]
            until = slot + len(written)
            self.slots[block][slot:until] = written
            self.writers[block][slot:until] = [writer] * len(written)
            done, slot = done + len(written), 0

    def void(self) -> None:
        """Whatever was written counts as unwritten from now on."""
        for slots, writers in zip(self.slots, self.writers):
            slots[:] = [None] * len(slots)
            writers[:] = [None] * len(writers)

    def copy(self, pairs: Iterable[tuple[int, int]], source: ShadowMemory | None = None) -> None:
        """Each destination block gets what its source block (here, or in `source`) holds.

        All at once: every source is read before any destination is written, so a block may be a
        destination and a source of the same list.
        """
        memory = self if source is None else source
        read = [
            (destination, list(memory.slots[block]), list(memory.writers[block]))
            for block, destination in pairs
        ]
        for destination, slots, writers in read:
            self.changed.add(destination)
            self.slots[destination] = slots
            self.writers[destination] = writers

    def copy_heads(self, copies: Iterable[tuple[int, int, int]]) -> None:
        """Each destination gets the first slots, so many, of its source; all at once, as `copy`.

        An entry is (source, destination, number of slots). The other slots stay as they are.
        """
        read = [
            (destination, self.slots[source][:count], self.writers[source][:count])
            for source, destination, count in copies
        ]
        for destination, slots, writers in read:
            self.changed.add(destination)
            self.slots[destination][: len(slots)] = slots
            self.writers[destination][: len(writers)] = writers

    def held(self, block: int) -> Held:
        """What a block holds now, to be kept elsewhere."""
        return list(self.slots[block]), list(self.writers[block])

    def put(self, block: int, held: Held | None) -> None:
        """A block gets what was kept elsewhere; None: what nobody has written."""
        slots, writers = held or ([None] * len(self.slots[block]), [None] * len(self.slots[block]))
        self.changed.add(block)
        self.slots[block], self.writers[block] = list(slots), list(writers)

    def fill(self, block: int, content: Content | None, writer: Writer | None) -> None:
        """Something else stands in all of a block from now on, which is no KV."""
        self.changed.add(block)
        self.slots[block][:] = [content] * len(self.slots[block])
        self.writers[block][:] = [writer] * len(self.writers[block])

    def last_written(self, block: int) -> tuple[Content | None, Writer | None]:
        """What was written into a block last, and by whom; None, None where nothing was."""
        written = [
            (writer.command_number, slot)
            for slot, writer in enumerate(self.writers[block])
            if writer is not None
        ]
        if not written:
            return None, None
        slot = max(written)[1]
        return self.slots[block][slot], self.writers[block][slot]

    def misread(
        self,
        table: Sequence[int],
        block_size: int,
        wanted: Sequence[Content],
        first: int,
        end: int,
    ) -> Misread | None:
        """The first position from `first` to `end` - 1 that does not hold what is `wanted` there.

        `wanted[p]` is the content of position p.
        """
        position, slot = first, first % block_size
        while position < end:
            block, room = table[position // block_size], block_size - slot
            found = self.slots[block][slot : slot + min(room, end - position)]
            if found != wanted[position : position + len(found)]:
                return self._first_difference(block, slot, position, found, wanted)
            position, slot = position + room, 0
        return None

    def write_state(self, block: int, content: Content, writer: Writer) -> None:
        """A recurrent state comes into a block."""
        self.slots[block][0] = content
        self.writers[block][0] = writer

    def copy_state(self, source: int, into: int) -> None:
        """A block gets the state of another one."""
        self.slots[into][0] = self.slots[source][0]
        self.writers[into][0] = self.writers[source][0]

    def misread_state(self, block: int, wanted: Sequence[Content], end: int) -> Misread | None:
        """Whether a block holds another state than the one after `end` tokens; of 0 there is none.

        `wanted[p]` is the content of position p.
        """
        if end == 0:
            return None
        found = self.slots[block][0]
        if found == wanted[end - 1]:
            return None
        return Misread(end - 1, block, 0, wanted[end - 1], found, self.writers[block][0])

    def _first_difference(
        self,
        block: int,
        slot: int,
        position: int,
        found: Sequence[Content | None],
        wanted: Sequence[Content],
    ) -> Misread:
        offset = next(i for i, name in enumerate(found) if name != wanted[position + i])
        return Misread(
            position + offset,
            block,
            slot + offset,
            wanted[position + offset],
            found[offset],
            self.writers[block][slot + offset],
        )
