"""A logical token block: up to `block_size` consecutive tokens of a sequence, filled in order.

Logical blocks say which tokens belong together; where their KV lies is the business of physical
blocks and of the table between both (`poolproof.impl.block_table`).
"""

from __future__ import annotations


class LogicalTokenBlock:
    """The tokens of block number `block_number` of a sequence.

    `token_ids` holds the tokens there are, and no padding. A full block never changes again, which
    is why forked sequences may share it.
    """

    __slots__ = ("block_number", "block_size", "token_ids")

    def __init__(self, block_number: int, block_size: int) -> None:
        self.block_number = block_number
        self.block_size = block_size
        self.token_ids: list[int] = []

    def get_num_empty_slots(self) -> int:
        """How many tokens still fit."""
        return self.block_size - len(self.token_ids)

    def is_full(self) -> bool:
        """Whether no token fits any more."""
        return len(self.token_ids) == self.block_size

    def append_tokens(self, token_ids: list[int]) -> None:
        """Add tokens. Raises ValueError, and adds none, when they do not all fit."""
        if len(token_ids) > self.get_num_empty_slots():
            raise ValueError(
                f"logical block {self.block_number} has {self.get_num_empty_slots()} empty slots, "
                f"not {len(token_ids)}"
            )
        self.token_ids.extend(token_ids)

    def copy(self) -> LogicalTokenBlock:
        """A block with the same tokens that grows by itself."""
        block = LogicalTokenBlock(self.block_number, self.block_size)
        block.token_ids = list(self.token_ids)
        return block
