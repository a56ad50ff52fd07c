"""The grammar of token chains: real tokens, extra keys, cache groups and partial entries.

Random tokens never show identity bugs, so a run has a handful of chains that share prefixes, repeat
blocks under other parents, and differ only in a LoRA adapter, a salt or an image. Extends the pool
grammar; its keys are content, not opaque hashes.
"""

from __future__ import annotations

from collections.abc import Iterator

from poolproof.contract.commands import (
    Allocate,
    CacheChain,
    CachePartial,
    Command,
    Free,
    Lookup,
    LookupChain,
    Usage,
)
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.harness.pool_workload import PoolWorkload
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import undefined_in

__all__ = ["NUM_GROUPS", "ChainWorkload"]

NUM_GROUPS = 2
_BLOCKS_PER_CHAIN = 3
_PUBLISHING = ("cache_chain", "cache_partial")
_NUM_PUBLISHED = 10
_MOST_FREED = 1_000
_LORAS = (None, ("adapter", "/a"), ("adapter", "/b"), ("other", "/a"))
# A salt spelled like an adapter's name: untagged keys would collide (vllm#44701).
_SALTS = (None, None, "tenant", "adapter")


class ChainWorkload(PoolWorkload):
    """Chooses commands over a few token chains of up to three blocks.

    With `most_blocks`, two more chains are that long and share a beginning, and most of the pool is
    taken before the first command.
    """

    def __init__(
        self,
        choices: Choices,
        pool: DictPool,
        can: Capabilities,
        *,
        block_size: int,
        hash_block_size: int,
        most_blocks: int = 0,
    ) -> None:
        super().__init__(choices, pool, can, ())
        self.block_size = block_size
        self.hash_block_size = hash_block_size
        self._most_blocks = most_blocks
        self._tail: CachePartial | None = None
        self.chains = [self._chain() for _ in range(6)]
        if most_blocks:
            self.chains += self._long_chains()
        full = [
            chain.prefix(length, group)
            for chain in self.chains
            for length in self._ends_of_blocks(chain)
            for group in range(NUM_GROUPS)
        ]
        self.hashes = list(dict.fromkeys(full))
        del self.verbs["cache"]
        self.verbs |= {
            "cache_chain": self.cache_chain,
            "lookup_chain": self.lookup_chain,
            "usage": self.usage,
        }
        defined = self.profile.keys == "partial" and self.profile.duplicates == "kept"
        if defined and "cache_partial" in can.verbs:
            self.verbs["cache_partial"] = self.cache_partial
        self.set_weights({"cache_chain": 7, "cache_partial": 5, "lookup_chain": 2, "usage": 1})

    def opening(self) -> Iterator[Command]:
        """Hold most of a large pool, so that cached blocks lie everywhere in it."""
        if self._most_blocks:
            free = len(self.pool.free)
            yield Allocate(free - self.below(1 + free // 4))

    def cache_chain(self) -> Command | None:
        """Cache held blocks as the blocks of a chain, behind some that are cached already."""
        chain = self.chains[self.below(len(self.chains))]
        most = len(chain.tokens) // self.block_size
        ids = self._distinct_held(1 + self.below(most))
        if not ids:
            return None
        ids = list(self._with_null(ids))[:most]
        num_cached = self.below(len(ids))
        command = CacheChain(chain, tuple(ids), num_cached, self.below(NUM_GROUPS))
        return None if undefined_in(self.pool, command) else command

    def cache_partial(self) -> Command | None:
        """Make a held block reachable at a boundary inside it."""
        ids = self._distinct_held(1)
        if not ids:
            return None
        if self._tail is not None and not self.pool.holders[self._tail.block_id]:
            self._tail = None  # it was given back: to cache it would be misuse
        if self._tail is not None and self.below(3):
            command: Command = self._more_of(self._tail)
            return None if undefined_in(self.pool, command) else command
        chain = self.chains[self.below(len(self.chains))]
        step = self.hash_block_size
        num_tokens = step * (1 + self.below(len(chain.tokens) // step))
        partial = CachePartial(chain, ids[0], num_tokens, self.below(NUM_GROUPS))
        if undefined_in(self.pool, partial):
            return None
        if self._most_blocks:
            self._tail = partial
        return partial

    def _more_of(self, tail: CachePartial) -> Command:
        """Choose another part of the last block of a prompt, or that whole block.

        In a large pool, chance does not come back to a block.
        """
        size, step = self.block_size, self.hash_block_size
        position = (tail.num_tokens - 1) // size
        before = [block for block in self._distinct_held(position) if block != tail.block_id]
        if len(before) == position and (position + 1) * size <= len(tail.chain.tokens):
            self._tail = None
            return CacheChain(tail.chain, (*before, tail.block_id), position, tail.group)
        num_tokens = position * size + step * (1 + self.below(size // step))
        return CachePartial(
            tail.chain, tail.block_id, min(num_tokens, len(tail.chain.tokens)), tail.group
        )

    def give_everything_back(self) -> Iterator[Command]:
        """In a large pool, drop a thousand references at a time."""
        while self._most_blocks and self.references:
            taken = self.references[-_MOST_FREED:]
            del self.references[-_MOST_FREED:]
            yield Free(tuple(self._each_once(taken)))
        yield from super().give_everything_back()

    def around_a_reset(self) -> Iterator[Command]:
        """Publish blocks, free them, reset the index, and publish the same blocks again.

        If a pool keeps something of a block over a reset, it shows in that block's next key. By
        chance alone, few blocks are free and carry parts of chains when an index is emptied.
        """
        yield from self._publish_some()
        yield from self.give_everything_back()
        yield from self._publish_some()

    def _publish_some(self) -> Iterator[Command]:
        yield Allocate(len(self.pool.free))  # all of them, so that the same come again
        methods = [self.verbs[verb] for verb in _PUBLISHING if verb in self.verbs]
        for _ in range(_NUM_PUBLISHED):
            command = methods[self.below(len(methods))]()
            if command is not None:
                yield command

    def lookup(self) -> Command:
        return Lookup(self.hashes[self.below(len(self.hashes))])

    def lookup_chain(self) -> Command:
        """One boundary of a chain, in one group or in all of them."""
        chain = self.chains[self.below(len(self.chains))]
        blocks = len(chain.tokens) // self.block_size
        groups = ((0,), (1,), (0, 1), (0, 1))[self.below(4)]
        return LookupChain(chain, self.block_size * (1 + self.below(blocks)), groups)

    def usage(self) -> Command:
        return Usage()

    def _misuse_of_caching(
        self, held: list[int], outside: int, free: int | None, null: int | None
    ) -> list[Command]:
        """A chain, or a part of a block, on blocks that must not be cached.

        Held blocks stand before the wrong one as far as the chain fills them, and only those
        without a key, since what becomes of another is undefined.
        """
        chain = self.chains[self.below(len(self.chains))]
        group = self.below(NUM_GROUPS)
        step = self.hash_block_size
        num_tokens = step * (1 + self.below(len(chain.tokens) // step))
        most = len(chain.tokens) // self.block_size
        right = [block for block in held if not self.pool.keys[block]][: most - 1]
        kinds: list[Command] = []
        for wrong in (outside, free, null):
            if wrong is not None:
                kinds.append(CacheChain(chain, (*right, wrong), 0, group))
                if "cache_partial" in self.verbs:
                    kinds.append(CachePartial(chain, wrong, num_tokens, group))
        if right:
            kinds.append(CacheChain(chain, (*right, right[0]), 0, group))
        return kinds

    def _ends_of_blocks(self, chain: TokenChain) -> range:
        """The lengths of prefixes that are looked up: all, or some of a long chain."""
        size, length = self.block_size, len(chain.tokens)
        return range(size, length + 1, size * (1 + length // (64 * size)))

    def _long_chains(self) -> list[TokenChain]:
        """Two prompts of a server, which are equal up to some token."""
        length = self._most_blocks * self.block_size
        first = [self.below(1 << 17) for _ in range(length)]
        same = self.below(length)
        second = [*first[:same], *(self.below(1 << 17) for _ in range(same, length))]
        return [TokenChain(tuple(first)), TokenChain(tuple(second))]

    def _images(self, num_tokens: int) -> tuple[Image, ...]:
        """One image or more, next to each other or with a gap: several may meet in a block."""
        images: list[Image] = []
        offset = self.below(num_tokens - 1)
        while offset < num_tokens:
            length = min(2, num_tokens - offset)
            images.append(Image(f"image-{self.below(2)}", offset, length))
            if self.below(2):
                break
            offset += length + self.below(3)
        return tuple(images)

    def _chain(self) -> TokenChain:
        blocks = 1 + self.below(_BLOCKS_PER_CHAIN)
        tokens: list[int] = []
        for _ in range(blocks):
            symbol = self.below(2)
            tokens += [symbol] * (self.block_size - 1) + [self.below(2)]
        images = self._images(len(tokens)) if self.below(3) == 0 else ()
        plain = self.below(2)
        return TokenChain(
            tuple(tokens),
            None if plain else _LORAS[self.below(len(_LORAS))],
            None if plain else _SALTS[self.below(len(_SALTS))],
            images,
        )
