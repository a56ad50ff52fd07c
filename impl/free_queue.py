"""The free queue: block ids in eviction order, with removal from the middle in O(1).

A block that becomes free joins an end of the queue, an allocation takes from the head, and a
prefix hit takes a block out from wherever it stands. The queue knows nothing of reference counts
or hashes; `poolproof.impl.block_pool` decides which block joins where.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, repeat

from poolproof.impl.block_loops import UNLINKED, numbers


class FreeQueue:
    """A doubly linked list over block ids, kept as a struct of arrays.

    `next[b]` and `previous[b]` are the neighbours of block b, or `UNLINKED` in both when b is not
    queued. Two sentinels stand beyond the ids: `head` is `num_blocks` and `tail` is
    `num_blocks + 1`, so that no link operation has to ask whether it is at an end. A batch costs
    one pass over its own ids, whatever the length of the queue.

    The public operations check their arguments: on misuse they raise `ValueError` and leave the
    queue as it was. `take_head`, `link_head`, `link_tail` and `unlink` are the same operations
    without checks, for a caller such as the pool that has checked already.

    Source of the algorithm: the circular list with sentinels of Cormen et al., Introduction to
    Algorithms, section 10.2; block allocators of LLM servers use it for their free queues.
    """

    def __init__(self, num_blocks: int) -> None:
        """Queue the ids 0..num_blocks-1 in ascending order. Raises ValueError below 0."""
        if type(num_blocks) is not int or num_blocks < 0:
            raise ValueError(f"num_blocks must be an int of at least 0, not {num_blocks!r}")
        self.num_blocks = num_blocks
        self.head = num_blocks
        self.tail = num_blocks + 1
        self.length = num_blocks
        self.next = numbers(num_blocks + 2, UNLINKED)
        self.previous = numbers(num_blocks + 2, UNLINKED)
        # One int object for each id, shared by both arrays.
        chain = [self.head, *range(num_blocks), self.tail]
        for before, after in pairwise(chain):
            self.next[before] = after
            self.previous[after] = before

    def popleft(self) -> int:
        """Take the block at the head. Raises ValueError when the queue is empty."""
        return self.popleft_n(1)[0]

    def popleft_n(self, n: int) -> list[int]:
        """Take n blocks from the head, in queue order. Raises ValueError when there are fewer."""
        # A negative count must never reach the counter: it inflates it (vllm#52707).
        if type(n) is not int or n < 0:
            raise ValueError(f"popleft_n: n must be an int of at least 0, not {n!r}")
        # The check comes before anything changes, or a failing pop leaves counter and list at
        # odds (vllm#24228).
        if n > self.length:
            raise ValueError(
                f"popleft_n: {n} blocks asked for, {self.length} in the queue; ask num_free() first"
            )
        return self.take_head(n)

    def remove(self, block_id: int) -> None:
        """Take a block out from wherever it stands. Raises ValueError when it is not queued."""
        self._check_id("remove", block_id)
        if self.next[block_id] == UNLINKED:
            raise ValueError(f"remove: block {block_id} is not in the queue")
        self.unlink(block_id)

    def append(self, block_id: int) -> None:
        """Put a block at the tail. Raises ValueError when it is queued already."""
        self.link_tail(self._check_batch("append", (block_id,)))

    def append_n(self, block_ids: Iterable[int]) -> None:
        """Put blocks at the tail in the order given, so that the last given is at the tail.

        Raises ValueError, and queues none, when an id is queued already or given twice.
        """
        self.link_tail(self._check_batch("append_n", block_ids))

    def prepend_n(self, block_ids: Iterable[int]) -> None:
        """Put blocks at the head in the order given, so that the first given is at the head.

        Raises ValueError, and queues none, when an id is queued already or given twice.
        """
        self.link_head(self._check_batch("prepend_n", block_ids))

    def num_free(self) -> int:
        """How many blocks are queued."""
        return self.length

    def free_order(self) -> list[int]:
        """The queued ids from head to tail.

        The walk takes at most `num_blocks + 1` links, so that on a queue which a bug has tied
        into a ring it ends, and the caller sees the repeated id.
        """
        order: list[int] = []
        next_of = self.next
        block_id = next_of[self.head]
        for _ in repeat(None, self.num_blocks + 1):
            if not 0 <= block_id < self.num_blocks:
                break
            order.append(block_id)
            block_id = next_of[block_id]
        return order

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        """The ids before and after a block; None inside is an end; None for a block not queued.

        Raises ValueError for an id out of range.
        """
        self._check_id("free_neighbours", block_id)
        before, after = self.previous[block_id], self.next[block_id]
        if before == UNLINKED and after == UNLINKED:
            return None
        return (
            None if before == self.head else before,
            None if after == self.tail else after,
        )

    def take_head(self, n: int) -> list[int]:
        """`popleft_n` without checks: 0 <= n <= length is the caller's duty."""
        next_of, previous_of, head = self.next, self.previous, self.head
        taken: list[int] = []
        block_id = next_of[head]
        for _ in repeat(None, n):
            taken.append(block_id)
            following = next_of[block_id]
            # A block outside the queue keeps no links; a later removal through stale ones would
            # splice a live region (vllm#33875).
            next_of[block_id] = previous_of[block_id] = UNLINKED
            block_id = following
        next_of[head] = block_id
        previous_of[block_id] = head
        self.length -= n
        return taken

    def unlink(self, block_id: int) -> None:
        """`remove` without checks: the block must be queued."""
        before, after = self.previous[block_id], self.next[block_id]
        self.next[before] = after
        self.previous[after] = before
        self.next[block_id] = self.previous[block_id] = UNLINKED
        self.length -= 1

    def link_tail(self, block_ids: list[int]) -> None:
        """`append_n` without checks: distinct ids, none of them queued."""
        next_of, previous_of, tail = self.next, self.previous, self.tail
        last = previous_of[tail]
        for block_id in block_ids:
            next_of[last] = block_id
            previous_of[block_id] = last
            last = block_id
        next_of[last] = tail
        previous_of[tail] = last
        self.length += len(block_ids)

    def link_head(self, block_ids: list[int]) -> None:
        """`prepend_n` without checks: distinct ids, none of them queued."""
        next_of, previous_of, head = self.next, self.previous, self.head
        first = next_of[head]
        last = head
        for block_id in block_ids:
            next_of[last] = block_id
            previous_of[block_id] = last
            last = block_id
        next_of[last] = first
        previous_of[first] = last
        self.length += len(block_ids)

    def _check_id(self, operation: str, block_id: int) -> None:
        if type(block_id) is not int or not 0 <= block_id < self.num_blocks:
            raise ValueError(
                f"{operation}: {block_id!r} is not a block id; "
                f"ids are ints from 0 to {self.num_blocks - 1}"
            )

    def _check_batch(self, operation: str, block_ids: Iterable[int]) -> list[int]:
        try:
            batch = list(block_ids)
        except TypeError:
            raise ValueError(
                f"{operation}: block_ids must be a list of block ids, not {block_ids!r}"
            ) from None
        seen: set[int] = set()
        for block_id in batch:
            self._check_id(operation, block_id)
            if self.next[block_id] != UNLINKED:
                raise ValueError(f"{operation}: block {block_id} is in the queue already")
            if block_id in seen:
                raise ValueError(f"{operation}: block {block_id} is given twice in one batch")
            seen.add(block_id)
        return batch
