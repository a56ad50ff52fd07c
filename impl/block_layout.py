"""How many blocks tokens take, and which blocks a step writes: arithmetic without state.

One place for the formulas: when admission, allocation and swapping each have their own, they
drift apart, and something fails after it was said to fit (vllm#17834, vllm#40946).
"""

from __future__ import annotations

from typing import NamedTuple

from poolproof.impl.block_table import BlockTable
from poolproof.impl.sizing import require_int


class Growth(NamedTuple):
    """What it takes to write the next tokens of a table.

    written: indices into the table's blocks that exist and will be written, ascending.
    has_older: whether the first of them has older tokens that will still be read.
    num_new: physical blocks to be added.
    num_logical_blocks: what the table has afterwards.
    """

    written: range
    has_older: bool
    num_new: int
    num_logical_blocks: int


class BlockLayout:
    """Blocks of `block_size` tokens, in a ring of `sliding_window` tokens unless that is None.

    Raises ValueError for a block size below 1 or a window that is no positive multiple of it.
    """

    def __init__(self, block_size: int, sliding_window: int | None) -> None:
        require_int("block_size", block_size, at_least=1)
        if sliding_window is not None and (
            type(sliding_window) is not int or sliding_window < 1 or sliding_window % block_size
        ):
            raise ValueError(
                f"sliding_window must be a positive multiple of the block size {block_size}, "
                f"not {sliding_window!r}"
            )
        self.block_size = block_size
        self.sliding_window = sliding_window

    def num_logical_blocks(self, num_tokens: int) -> int:
        """The blocks that tokens fill, the last one perhaps in part."""
        return -(-num_tokens // self.block_size)

    def num_physical_blocks(self, num_logical_blocks: int) -> int:
        """The distinct blocks behind logical ones: at most those of the window."""
        if self.sliding_window is None:
            return num_logical_blocks
        return min(num_logical_blocks, self.sliding_window // self.block_size)

    def is_in_place(self, table: BlockTable, num_tokens: int, num_lookahead_slots: int) -> bool:
        """Whether all that is new is one token behind others in a block of the sequence's own.

        True of nearly every token, and quicker to ask than `growth`.
        """
        start = table.num_tokens
        if num_tokens != start + 1 or num_lookahead_slots or not start % self.block_size:
            return False
        return table.blocks[start // self.block_size % len(table.blocks)].ref_count == 1

    def growth(self, table: BlockTable, num_tokens: int, num_lookahead_slots: int) -> Growth:
        """What it takes to write the tokens from `table.num_tokens` on, and the lookahead.

        Raises ValueError when the tokens became fewer, when the lookahead is no int or negative,
        or when more than one token is written while the ring comes round: the second would
        overwrite what the first still reads.
        """
        require_int("num_lookahead_slots", num_lookahead_slots, at_least=0)
        start, end = table.num_tokens, num_tokens + num_lookahead_slots
        if num_tokens < start:
            raise ValueError(
                f"the sequence has {num_tokens} tokens and had {start}; "
                "free it and allocate it anew to go back"
            )
        if start == end:
            return Growth(range(0), False, 0, table.num_logical_blocks)
        window, num_blocks = self.sliding_window, len(table.blocks)
        if window is not None and end > window and end - start > 1:
            raise ValueError(
                f"{end - start} tokens cannot be written at once beyond a sliding window of "
                f"{window} tokens; append one, without lookahead"
            )
        num_logical = max(table.num_logical_blocks, self.num_logical_blocks(end))
        num_new = self.num_physical_blocks(num_logical) - num_blocks
        first, last = start // self.block_size, (end - 1) // self.block_size
        if window is not None and start >= window:
            # One token, in the ring. Behind it stand tokens that leave the window after it.
            index = first % (window // self.block_size)
            return Growth(range(index, index + 1), self.block_size > 1, num_new, num_logical)
        written = range(first, min(last + 1, num_blocks))
        return Growth(written, start % self.block_size > 0, num_new, num_logical)
