"""The cache groups of a manager: what each kind of attention reads, and how they are laid out.

The layers of a model that read alike form a cache group; each group has a block table of its own
over the one pool. A kind answers one question, how many of the first tokens a sequence needs no
more (`num_skipped_tokens`), and from that follow what a prefix hit must find, which blocks become
the null block as the sequence moves on, and how many blocks a sequence holds at most.

A prefix hit has to end at a block boundary of every group, so it ends at a multiple of the least
common multiple of their block sizes. Hashes are computed once, over blocks that divide all of
those; the hash of a group's block is that of its last hash block, which chains over all before.

Where recurrent states have hashes finer than their blocks, a hit may end inside a block as well
(`kv_cache_inside.py`).

Not covered: cross attention, circular buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm

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


@dataclass(frozen=True, slots=True)
class LaidOutGroup:
    """One group, with its place among the others.

    `hash_scale` hash blocks make one block. `num_proof_blocks` is 1 where a hit has to be followed
    by one more cached block, which is computed again all the same (speculative heads), else 0.
    `peak_blocks` is how many blocks one request holds here at a time, at most.
    """

    index: int
    kind: FullAttention
    block_size: int
    hash_scale: int
    num_proof_blocks: int
    peak_blocks: int

    @property
    def reads_all(self) -> bool:
        """Whether it is full attention."""
        return type(self.kind) is FullAttention

    @property
    def is_state(self) -> bool:
        """Whether it holds recurrent states."""
        return isinstance(self.kind, RecurrentState)

    def first_needed(self, num_computed_tokens: int) -> int:
        """The first block that the tokens after the computed ones still need."""
        return self.kind.num_skipped_tokens(num_computed_tokens) // self.block_size

    def num_blocks(self, num_tokens: int, num_ahead: int = 0) -> int:
        """How long the table of a request with that many slots is.

        The last `num_ahead` are lookahead: extra blocks take their place.
        """
        num_extra = self.kind.num_extra_blocks
        num_own = num_tokens - num_ahead if num_extra else num_tokens
        return blocks_for(num_own, self.block_size) + num_extra

    def hashes(self, block_hashes: list[bytes], first: int, end: int) -> list[bytes]:
        """The hashes of this group's blocks from `first` to before `end`."""
        scale = self.hash_scale
        if scale == 1:
            return block_hashes[first:end]
        return block_hashes[(first + 1) * scale - 1 : end * scale : scale]


@dataclass(frozen=True, slots=True)
class Layout:
    """All groups. `alignment` is the granularity of hits in tokens."""

    groups: tuple[LaidOutGroup, ...]
    hash_block_size: int
    alignment: int
    use_eagle: bool

    @property
    def hits_inside(self) -> bool:
        """Whether a hit may end inside a block: of attention and states, in blocks of one size."""
        return (
            self.hash_block_size < self.alignment
            and not self.use_eagle
            and any(group.is_state for group in self.groups)
            and all(group.reads_all or group.is_state for group in self.groups)
            and all(group.block_size == self.alignment for group in self.groups)
        )

    def is_reachable(self, group: LaidOutGroup, index: int) -> bool:
        """Whether a hit can need the block of the group: one that ends at the next boundary does.

        Hits that end later need no earlier blocks of a window. A proof block stands behind a hit.
        """
        start = index * group.block_size
        if group.num_proof_blocks and start % self.alignment == 0:
            return True
        next_boundary = start - start % self.alignment + self.alignment
        return group.first_needed(next_boundary) <= index

    def align(self, num_tokens: int) -> int:
        """The greatest possible length of a hit that is at most `num_tokens`, at least 0."""
        return max(0, num_tokens - num_tokens % self.alignment)


def lay_out(
    kinds: Sequence[FullAttention],
    block_size: int,
    *,
    hash_block_size: int | None,
    use_eagle: bool,
    max_in_flight_tokens: int,
    max_model_len: int,
) -> Layout:
    """The layout of groups of these kinds.

    `hash_block_size` None stands for the greatest size that divides all block sizes. Raises
    ValueError for no groups, for something that is no group, and for sizes that do not divide.
    """
    if not kinds or not all(isinstance(kind, FullAttention) for kind in kinds):
        raise ValueError(
            "groups must be a list of FullAttention, SlidingWindow, ChunkedLocal or "
            f"RecurrentState, not {kinds!r}"
        )
    sizes = [
        require_int(
            "block_size", block_size if kind.block_size is None else kind.block_size, at_least=1
        )
        for kind in kinds
    ]
    hashed = require_int(
        "hash_block_size", gcd(*sizes) if hash_block_size is None else hash_block_size, at_least=1
    )
    if any(size % hashed for size in sizes):
        raise ValueError(
            f"hash_block_size must divide the block size of every group, and {hashed} does not "
            f"divide all of {sizes}"
        )
    groups = tuple(
        LaidOutGroup(
            index=index,
            kind=kind,
            block_size=size,
            hash_scale=size // hashed,
            # Draft models have no recurrent layers, so a state needs no proof.
            num_proof_blocks=int(use_eagle and not isinstance(kind, RecurrentState)),
            peak_blocks=kind.peak_blocks(size, max_in_flight_tokens, max_model_len),
        )
        for index, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    )
    return Layout(groups, hashed, lcm(*sizes), use_eagle)
