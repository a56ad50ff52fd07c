"""Where a cache allocator of Transformers reads and writes a request's tokens, as a block table.

The kernels are given the indices that `get_read_indices` and `get_write_indices` return, so the
table that the contract asks for is made of those and not of the allocator's own list: an error in
their arithmetic shows as a wrong table, or as `ScatteredSlotsError`.

A sliding group reads the window before it writes over it; its table names the same pages again and
again, as a ring does. Only windows of whole pages can be told so.
"""

from __future__ import annotations

from typing import Any

__all__ = ["NO_BLOCK", "ScatteredSlotsError", "blocks_of", "check_indices"]

NO_BLOCK = -1
"""Stands in a table where the slots of a page lie in no block."""


class ScatteredSlotsError(Exception):
    """The indices for reading and writing do not belong together."""


def blocks_of(allocator: Any, request_id: str, num_tokens: int) -> list[int]:
    """The block behind each page of the first `num_tokens` positions, in the engine's numbers."""
    slots = _slots(allocator, request_id, num_tokens)
    size = allocator.tokens_per_page
    return [_block(allocator, slots[first : first + size]) for first in range(0, num_tokens, size)]


def check_indices(
    allocator: Any, request_id: str, past: int, read_at: list[int], written_at: list[int]
) -> None:
    """A forward pass after `past` tokens reads and writes where their slots are.

    Raises ScatteredSlotsError.
    """
    count = len(written_at)
    slots = _slots(allocator, request_id, past + count)
    window = getattr(allocator, "sliding_window", None)
    if window is None:
        reads, writes = slots, slots[past:]
    else:
        reads = slots[max(0, past - window + 1) : past] + [allocator.sentinel_index] * count
        num_lost = max(0, count - window)
        writes = [allocator.write_trash_index] * num_lost + slots[past + num_lost :]
    for what, wanted, given in (
        ("reads", reads, read_at),
        ("writes", writes, written_at),
    ):
        if given != wanted:
            raise ScatteredSlotsError(
                f"{count} tokens after {past} of request {request_id}: the {allocator.layer_type} "
                f"group {what} at {given}, but its tokens lie at {wanted}"
            )


def _slots(allocator: Any, request_id: str, num_tokens: int) -> list[int]:
    """The slot of each position, computed one by one where the window goes round."""
    if getattr(allocator, "sliding_window", None) is None:
        return list(allocator.get_read_indices(request_id, 0, num_tokens))
    return [allocator.get_write_indices(request_id, past, 1)[0] for past in range(num_tokens)]


def _block(allocator: Any, slots: list[int]) -> int:
    """The block whose first slots these are, or `NO_BLOCK`."""
    block, offset = divmod(slots[0], allocator.block_physical_stride)
    if offset or slots != list(range(slots[0], slots[0] + len(slots))):
        return NO_BLOCK
    return int(block)
