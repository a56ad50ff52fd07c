"""Kinds of attention, told by what they read: which of a sequence's earlier positions are needed.

The layers of a model that read alike form a cache group; each group has a block table of its own
over the one pool. A kind answers one question, how many of the first tokens a sequence needs no
more (`num_skipped_tokens`), and from that follow what a prefix hit must find, which blocks become
the null block as the sequence moves on, and how many blocks a sequence holds at most.

Not covered: cross attention, circular buffers, and states that are copied on write inside a block.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.impl.sizing import require_int


@dataclass(frozen=True, kw_only=True)
class FullAttention:
    """Every token reads all tokens before it.

    `block_size` counts tokens, here and in the other kinds; None stands for the manager's.
    """

    block_size: int | None = None

    @property
    def num_extra_blocks(self) -> int:
        """Blocks that a sequence has beyond those of its tokens."""
        return 0

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        """How many tokens, counted from the first, no token after the computed ones reads."""
        del num_computed_tokens
        return 0

    def peak_blocks(self, block_size: int, max_in_flight_tokens: int, max_tokens: int) -> int:
        """How many blocks a sequence of at most `max_tokens` tokens ever holds at once.

        `max_in_flight_tokens`: tokens, drafts and lookahead included, that are scheduled and not
        settled at one time.
        """
        del max_in_flight_tokens
        return blocks_for(max_tokens, block_size)


@dataclass(frozen=True, kw_only=True)
class SlidingWindow(FullAttention):
    """A token reads the last `window` tokens, itself included. Raises ValueError below 1."""

    window: int = 0

    def __post_init__(self) -> None:
        require_int("window", self.window, at_least=1)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        # The next token stands at position num_computed_tokens and reads from
        # num_computed_tokens - window + 1 on; one off here frees a block in use (imp#967).
        return max(0, num_computed_tokens - self.window + 1)

    def peak_blocks(self, block_size: int, max_in_flight_tokens: int, max_tokens: int) -> int:
        held = self.window - 1 + max_in_flight_tokens
        return _blocks_anywhere(held, block_size, max_tokens)


@dataclass(frozen=True, kw_only=True)
class ChunkedLocal(FullAttention):
    """A token reads the tokens before it in its own chunk of `chunk_size`; at least 1."""

    chunk_size: int = 0

    def __post_init__(self) -> None:
        require_int("chunk_size", self.chunk_size, at_least=1)

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return num_computed_tokens - num_computed_tokens % self.chunk_size

    def peak_blocks(self, block_size: int, max_in_flight_tokens: int, max_tokens: int) -> int:
        held = self.chunk_size - 1 + max_in_flight_tokens
        if self.chunk_size % block_size == 0:
            return blocks_for(min(held, max_tokens), block_size)
        return _blocks_anywhere(held, block_size, max_tokens)


@dataclass(frozen=True, kw_only=True)
class RecurrentState(FullAttention):
    """The next token reads one state, that after the last computed token.

    The block of that token holds it, and is written over until the block's end: a full block holds
    the state at its end. `num_speculative_blocks` more blocks hold the states after drafts.
    Raises ValueError for a negative number.
    """

    num_speculative_blocks: int = 0

    def __post_init__(self) -> None:
        require_int("num_speculative_blocks", self.num_speculative_blocks, at_least=0)

    @property
    def num_extra_blocks(self) -> int:
        return self.num_speculative_blocks

    def num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return max(0, num_computed_tokens - 1)

    def peak_blocks(self, block_size: int, max_in_flight_tokens: int, max_tokens: int) -> int:
        held = 1 + max_in_flight_tokens
        return _blocks_anywhere(held, block_size, max_tokens) + self.num_speculative_blocks


def blocks_for(num_tokens: int, block_size: int) -> int:
    """How many blocks the first `num_tokens` tokens take."""
    return -(-num_tokens // block_size)


def _blocks_anywhere(held: int, block_size: int, max_tokens: int) -> int:
    """How many blocks `held` consecutive tokens touch at most, wherever they begin.

    The worst begins at the last position of a block: [...X][XXXX][X...].
    """
    return min((held + block_size - 2) // block_size + 1, blocks_for(max_tokens, block_size))
