"""The loops that run once for each block of a call: over links, counts and the ids of a call.

Plain Python that Cython compiles with the types of `block_loops.pxd`; setup.py says when. The two
differ in what they loop over. The interpreter is quickest over lists, and where it can leave a pass
to C (`poolproof.impl.pool_checks` does that for the checks). Compiled code is quickest over arrays
of C's integers, with one pass that looks at everything of an id at once. So `numbers` makes
either, and the checks below are what the compiled pool asks; both ways are tested on both.

Nothing here has an opinion on what is legal: `poolproof.impl.block_pool` decides.
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence
from itertools import repeat
from typing import Any

COMPILED = not __file__.endswith(".py")
"""Whether this module is compiled, and with it its companions; pools ask when they are built."""

UNLINKED = -1
"""What stands in both links of a block that is not queued."""


def numbers(count: int, value: int) -> MutableSequence[int]:
    """`count` times the value, to be changed one by one."""
    return array("q", [value]) * count if COMPILED else [value] * count


def are_bytes(hashes: list[bytes]) -> bool:
    """Whether all entries are bytes, and not of a class derived from them."""
    for block_hash in hashes:  # noqa: SIM110 - a loop that compiles to one comparison an entry
        if type(block_hash) is not bytes:
            return False
    return True


class BlockLoops:
    """Loops over the links of a free queue and the reference counts of a pool.

    All are those of the caller, who goes on to read and change them: `next_of` and `previous_of`
    as in `poolproof.impl.free_queue`, whose sentinels are `num_blocks` and `num_blocks + 1`;
    `ref_counts` with at least one entry a block; `keys[b]` the key of block b, or None. How many
    blocks are queued is told by what each loop returns.
    """

    def __init__(
        self,
        num_blocks: int,
        next_of: MutableSequence[int],
        previous_of: MutableSequence[int],
        ref_counts: MutableSequence[int],
        keys: list[Any],
    ) -> None:
        self.num_blocks = num_blocks
        self._next = next_of
        self._previous = previous_of
        self._ref_counts = ref_counts
        self._keys = keys
        # The round in which a block was last seen, for `are_held_once`.
        self._seen = numbers(num_blocks, 0)
        self._round = 0
        self._arguments = (num_blocks, next_of, previous_of, ref_counts, keys)

    def __reduce__(self) -> tuple[Any, ...]:
        # C's views of arrays cannot be copied; those of a copy are taken of the copied arrays.
        return (type(self), self._arguments)

    def take(self, count: int) -> list[int]:
        """Take blocks from the head of the queue, each with one reference, in queue order.

        `count` is at least 1 and at most the length of the queue.
        """
        next_of, previous_of, ref_counts = self._next, self._previous, self._ref_counts
        head, outside = self.num_blocks, UNLINKED
        block_id = head
        taken = [block_id := next_of[block_id] for _ in repeat(None, count)]
        remaining = next_of[block_id]
        next_of[head] = remaining
        previous_of[remaining] = head
        for block_id in taken:
            # A block outside the queue keeps no links; a later removal through stale ones would
            # splice a live region (vllm#33875).
            next_of[block_id] = previous_of[block_id] = outside
            ref_counts[block_id] = 1
        return taken

    def hold(self, block_ids: list[int]) -> int:
        """One more reference for each entry; returns how many blocks left the queue."""
        next_of, previous_of, ref_counts = self._next, self._previous, self._ref_counts
        outside, left = UNLINKED, 0
        for block_id in block_ids:
            count = ref_counts[block_id]
            ref_counts[block_id] = count + 1
            # A block whose count leaves 0 leaves the queue at once, or a later free would queue
            # it a second time (TensorRT-LLM#12667).
            if not count:
                before, after = previous_of[block_id], next_of[block_id]
                next_of[before] = after
                previous_of[after] = before
                next_of[block_id] = previous_of[block_id] = outside
                left += 1
        return left

    def release(self, block_ids: list[int], to_head: list[int] | None) -> int:
        """One reference less for each entry; returns how many blocks joined the tail.

        A block joins at the entry where its count reaches 0. Where `to_head` is a list, those
        without a key are appended to it instead, and the caller queues them.
        """
        next_of, previous_of, ref_counts = self._next, self._previous, self._ref_counts
        keys = self._keys
        tail = self.num_blocks + 1
        joined = 0
        last = previous_of[tail]
        # The count is read where it is lowered: filtering afterwards would queue a block twice
        # when it stands twice in the list (vllm#42571).
        for block_id in block_ids:
            count = ref_counts[block_id] - 1
            ref_counts[block_id] = count
            if not count:
                if to_head is None or keys[block_id] is not None:
                    next_of[last] = block_id
                    previous_of[block_id] = last
                    last = block_id
                    joined += 1
                else:
                    to_head.append(block_id)
        next_of[last] = tail
        previous_of[tail] = last
        return joined

    def are_held_once(self, block_ids: list[int], *, unkeyed: bool = False) -> bool:
        """Whether all entries are ids, no bool among them, of held blocks, none of them twice.

        `unkeyed`: and none has a key.
        """
        ref_counts, keys, seen = self._ref_counts, self._keys, self._seen
        num_blocks = self.num_blocks
        this_round = self._round = self._round + 1
        for entry in block_ids:
            if type(entry) is not int:
                return False
            block_id = entry
            if not 0 <= block_id < num_blocks or not ref_counts[block_id]:
                return False
            if seen[block_id] == this_round or (unkeyed and keys[block_id] is not None):
                return False
            seen[block_id] = this_round
        return True

    def have_content(self, block_ids: list[int]) -> bool:
        """Whether all entries are ids, no bool among them, of blocks held or with a key."""
        ref_counts, keys, num_blocks = self._ref_counts, self._keys, self.num_blocks
        for entry in block_ids:
            if type(entry) is not int:
                return False
            block_id = entry
            if not 0 <= block_id < num_blocks:
                return False
            if not ref_counts[block_id] and keys[block_id] is None:
                return False
        return True
