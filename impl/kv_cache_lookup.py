"""The longest cached prefix that serves every cache group at once.

A length serves a group when all blocks are cached that the next token reads there: from the first
block that is not skipped to the end, and one more where a speculative head needs proof that the
sequence goes on as cached. Lengths shrink until no group objects, each objection naming the block
that is missing, so that no shorter length that would still need it is tried. The proof block is
asked for once, at the final length, and not at each attempt (vllm#32802).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_layout import LaidOutGroup, Layout


class PrefixLookup:
    """Looks up prefixes of a layout in a pool.

    `unwritten_states` are blocks with recurrent states that the step being scheduled will write: a
    state is read when a forward pass begins, so no request of the same step may start from them.
    (Attention writes the step's keys and values before it reads any, and may.)
    """

    def __init__(
        self, layout: Layout, pool: BlockPool, unwritten_states: AbstractSet[int] = frozenset()
    ) -> None:
        self._layout = layout
        self._pool = pool
        self._unwritten_states = unwritten_states

    def longest(self, hashes: list[bytes], max_tokens: int) -> tuple[tuple[list[int], ...], int]:
        """The blocks of the longest hit within the first `max_tokens` tokens, and its length.

        A list for each group, with the null block 0 where a block is skipped. Changes nothing.
        """
        groups = self._layout.groups
        num_tokens = self._full_attention_bound(hashes, max_tokens)
        others = [group for group in groups if not group.reads_all]
        unsettled = list(others)
        while unsettled and num_tokens:
            group = unsettled.pop()
            missing = self._last_missing(group, hashes, num_tokens)
            if missing is not None:
                ends = (missing - group.num_proof_blocks) * group.block_size
                num_tokens = self._layout.align(ends)
                unsettled = list(others)
        return tuple(self._blocks(group, hashes, num_tokens) for group in groups), num_tokens

    def _full_attention_bound(self, hashes: list[bytes], max_tokens: int) -> int:
        """The longest aligned length that serves all full-attention groups.

        Every prefix of a hit is a hit there, so going forwards finds the end at the first miss;
        other groups only have to make room for their proof block.
        """
        bound = max_tokens
        for group in self._layout.groups:
            if group.reads_all:
                wanted = group.hashes(hashes, 0, max_tokens // group.block_size)
                num_blocks = len(self._pool.lookup_prefix(wanted, group=group.index))
            else:
                num_blocks = max_tokens // group.block_size
            bound = min(bound, (num_blocks - group.num_proof_blocks) * group.block_size)
        return self._layout.align(bound)

    def _last_missing(
        self, group: LaidOutGroup, hashes: list[bytes], num_tokens: int
    ) -> int | None:
        """The last block that a hit of this length needs in the group and that is not cached."""
        first = group.first_needed(num_tokens)
        end = num_tokens // group.block_size + group.num_proof_blocks
        wanted = group.hashes(hashes, first, end)
        for index in range(end - 1, first - 1, -1):
            block_id = self._pool.lookup(wanted[index - first], group=group.index)
            if block_id is None or (group.is_state and block_id in self._unwritten_states):
                return index
        return None

    def _blocks(self, group: LaidOutGroup, hashes: list[bytes], num_tokens: int) -> list[int]:
        first = group.first_needed(num_tokens)
        wanted = group.hashes(hashes, first, num_tokens // group.block_size)
        return [0] * first + self._pool.lookup_prefix(wanted, group=group.index)
