"""A table from the keys of blocks to blocks, for blocks that carry at most one key each.

What a dict of keys costs is memory: for each key it reads, the machine waits for the dict's index,
its entry, and the key object to compare with. Here the entry is the whole of it: the key's hash
value and the block, side by side in one array. The key itself stands with its block already, and is
looked at only where hash values agree; an eviction knows the block and does not look at it at all.

Interpreted it is far slower than a dict, and takes a dict's place in the compiled pool alone
(`poolproof.impl.cached_keys`). Hash values are Python's, with a secret of the process for bytes:
who chooses tokens cannot choose which keys collide.

Source of the algorithm: Knuth, The Art of Computer Programming, volume 3, section 6.4: open
addressing with linear probing (algorithm L), and deletion that moves later entries up (algorithm
R).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator
from typing import Any

from poolproof.impl.block_loops import numbers

VACANT = -1


class KeyTable:
    """Key -> block, where `keys[b]` is the key of block b.

    `keys` is the caller's list and is read, never changed, but by `enter_n` and `leave_n`; it must
    say `keys[b] == key` before `table[key] = b`, and for as long as the entry stands. A block that
    has a key need not stand in the table: of several that carry one key, one does. Reads and
    changes like a dict. `blocks`: enter these, with the keys that they have.
    """

    def __init__(self, keys: list[Any], blocks: Iterable[int] = ()) -> None:
        self._keys = keys
        num_slots = 8
        # At most half of the slots are taken, as a block has one entry at most: it never grows.
        while num_slots < 2 * len(keys):
            num_slots *= 2
        self._mask = num_slots - 1
        self._num_entries = 0
        # Slot s: the hash value of the key at 2s, the block or VACANT at 2s + 1.
        self._slots = numbers(2 * num_slots, VACANT)
        for block_id in blocks:
            self[keys[block_id]] = block_id

    def __reduce__(self) -> tuple[Any, ...]:
        # Hash values of bytes are another process's own, so a copy makes them again.
        return (type(self), (self._keys, [self[key] for key in self]))

    def __len__(self) -> int:
        return self._num_entries

    def __contains__(self, key: Hashable) -> bool:
        return self._find(key, hash(key)) >= 0

    def __iter__(self) -> Iterator[Any]:
        slots = self._slots
        return iter(
            [self._keys[slots[at]] for at in range(1, len(slots), 2) if slots[at] != VACANT]
        )

    def __getitem__(self, key: Hashable) -> int:
        slot = self._find(key, hash(key))
        if slot < 0:
            raise KeyError(key)
        return self._slots[2 * slot + 1]

    def __setitem__(self, key: Hashable, block_id: int) -> None:
        slot = self._find(key, hash(key))
        if slot >= 0:
            self._slots[2 * slot + 1] = block_id
        else:
            self._fill(~slot, hash(key), block_id)

    def __delitem__(self, key: Hashable) -> None:
        slot = self._find(key, hash(key))
        if slot < 0:
            raise KeyError(key)
        self._vacate(slot)

    def get(self, key: Hashable) -> int | None:
        """The block that stands for the key, or None."""
        slot = self._find(key, hash(key))
        return None if slot < 0 else self._slots[2 * slot + 1]

    def items(self) -> list[tuple[Any, int]]:
        """Each key with its block, in no order that means anything."""
        return [(key, self[key]) for key in self]

    def clear(self) -> None:
        """Forget every entry."""
        slots = self._slots
        for at in range(1, len(slots), 2):
            slots[at] = VACANT
        self._num_entries = 0

    def find_prefix(self, keys: list[Any]) -> list[int]:
        """What `get` says of each key, up to the first that has no entry."""
        slots = self._slots
        found: list[int] = []
        for key in keys:
            slot = self._find(key, hash(key))
            if slot < 0:
                break
            found.append(slots[2 * slot + 1])
        return found

    def enter_n(self, block_ids: list[int], keys: list[Any]) -> list[int]:
        """Give each block its key, and an entry where the key has none yet.

        Returns the positions of those whose key has an entry already; these get nothing.
        """
        held = self._keys
        position = 0
        rivalled: list[int] = []
        for key in keys:
            block_id = block_ids[position]
            value = hash(key)
            slot = self._find(key, value)
            if slot < 0:
                held[block_id] = key
                self._fill(~slot, value, block_id)
            else:
                rivalled.append(position)
            position += 1  # noqa: SIM113 - a typed counter, where enumerate makes an object for each
        return rivalled

    def leave_n(self, block_ids: list[int], kept: Container[Any]) -> list[int]:
        """Take key and entry from each block that has any, but from those whose key is in `kept`.

        Returns these; they have to be settled one by one.
        """
        keys = self._keys
        left: list[int] = []
        # An empty one is not asked.
        asks = bool(kept)
        for block_id in block_ids:
            key = keys[block_id]
            if key is None:
                continue
            if asks and key in kept:
                left.append(block_id)
                continue
            slot = self._find_block(block_id, hash(key))
            keys[block_id] = None
            self._vacate(slot)
        return left

    def _find(self, key: Any, value: int) -> int:
        """The slot of a key with this hash value; where there is none, ~ of the slot to fill."""
        slots, keys, mask = self._slots, self._keys, self._mask
        slot = value & mask
        while True:
            block_id = slots[2 * slot + 1]
            if block_id < 0:
                return ~slot
            if slots[2 * slot] == value:
                there = keys[block_id]
                if there is key or there == key:
                    return slot
            slot = (slot + 1) & mask

    def _find_block(self, block_id: int, value: int) -> int:
        """The slot of a block whose key has this hash value.

        Raises KeyError where it has none.
        """
        slots, mask = self._slots, self._mask
        slot = value & mask
        while slots[2 * slot + 1] != block_id:
            if slots[2 * slot + 1] < 0:
                raise KeyError(self._keys[block_id])
            slot = (slot + 1) & mask
        return slot

    def _fill(self, slot: int, value: int, block_id: int) -> None:
        slots = self._slots
        slots[2 * slot] = value
        slots[2 * slot + 1] = block_id
        self._num_entries += 1

    def _vacate(self, hole: int) -> None:
        """Empty a slot, and move up what a search would not reach any more."""
        slots, mask = self._slots, self._mask
        slot = hole
        while True:
            slot = (slot + 1) & mask
            block_id = slots[2 * slot + 1]
            if block_id < 0:
                break
            value = slots[2 * slot]
            # Its search begins at value & mask; if that lies beyond the hole, it stays.
            if ((slot - value) & mask) >= ((slot - hole) & mask):
                slots[2 * hole] = value
                slots[2 * hole + 1] = block_id
                hole = slot
        slots[2 * hole + 1] = VACANT
        self._num_entries -= 1
