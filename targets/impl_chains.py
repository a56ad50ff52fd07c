"""`BlockPool` with the grammar of token chains on top: real hashes of real tokens.

Reference counts, queue and index are the pool's own methods, untouched. What is added turns a
chain into hashes, and what is overridden turns the hashes that the pool shows back into the
contents that they stand for. Not for the native grammar, where the bare pool is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from poolproof.contract.content import Key, TokenChain
from poolproof.impl.block_hash import BlockHasher, ExtraKey, LoRA, MultiModal, Salt
from poolproof.impl.block_pool import BlockPool
from poolproof.targets.hash_book import HashBook

__all__ = ["ChainedBlockPool"]


class ChainedBlockPool(BlockPool):
    """A pool of blocks of `block_size` tokens, hashed at every `hash_block_size` tokens.

    Takes the arguments of `BlockPool`. Keys are contents; an opaque hash still stands for itself
    in `lookup`.
    """

    def __init__(
        self, num_blocks: int, *, block_size: int, hash_block_size: int, **arguments: Any
    ) -> None:
        super().__init__(num_blocks, **arguments)
        self._block_size = block_size
        self._grain = hash_block_size
        # Any seed would do: nothing is shared with another process.
        self._hasher = BlockHasher("sha256", seed=b"poolproof", block_size=hash_block_size)
        self._book = HashBook()
        self._chain_hashes: dict[TokenChain, list[bytes]] = {}
        if arguments.get("keys", "block") != "partial":
            hidden: Any = None
            self.cache_partial = hidden  # type: ignore[method-assign]  # absent, as the contract writes it

    def cache_chain(
        self, chain: TokenChain, block_ids: Sequence[int], num_cached: int, group: int, /
    ) -> None:
        """The blocks of one request, of which the first `num_cached` are cached already."""
        scale = self._block_size // self._grain
        full = self._hashes(chain)[scale - 1 :: scale]
        self.cache(list(block_ids[num_cached:]), full[num_cached : len(block_ids)], group=group)

    def lookup_chain(
        self, chain: TokenChain, num_tokens: int, groups: Iterable[int], /
    ) -> list[int] | None:
        """One block for each group under the hash of the chain's first tokens, or None."""
        full, rest = divmod(num_tokens, self._grain)
        hashes = self._hashes(chain)
        return None if rest or not full else self.lookup_groups(hashes[full - 1], groups)

    def cache_partial(  # type: ignore[override]  # the contract's verb: a chain in place of a hash
        self, chain: TokenChain, block_id: int, num_tokens: int, group: int, /
    ) -> None:
        """A block becomes reachable under a key that ends inside it."""
        block_hash = self._hashes(chain)[num_tokens // self._grain - 1]
        super().cache_partial(block_id, block_hash, num_tokens=num_tokens, group=group)

    def lookup(self, block_hash: Key, *, group: int = 0) -> int | None:
        """As the pool's own; a content names its group itself."""
        if isinstance(block_hash, bytes):
            return super().lookup(block_hash, group=group)
        real = self._book.real(block_hash)
        return None if real is None else super().lookup(real[0], group=real[1])

    def block_hash(self, block_id: int, /) -> Any:
        """The content that the block's primary hash stands for."""
        keys = self.block_hashes(block_id)
        return self._book.key(*keys[0]) if keys else None

    def take_events(self) -> list[dict[str, Any]]:
        return [
            {**event, "hashes": [self._book.key(h, event["group"]) for h in event["hashes"]]}
            for event in super().take_events()
        ]

    def _hashes(self, chain: TokenChain) -> list[bytes]:
        hashes = self._chain_hashes.get(chain)
        if hashes is None:
            hashes = self._hasher.hash_sequence(chain.tokens, _extra_keys(chain, self._grain))
            self._book.learn_chain(chain, hashes, self._grain)
            self._chain_hashes[chain] = hashes
        return hashes


def _extra_keys(chain: TokenChain, grain: int) -> dict[int, list[ExtraKey]]:
    """The extra keys of each hash block: adapter everywhere, salt first, images where they lie."""
    extra: dict[int, list[ExtraKey]] = {}
    for block in range(len(chain.tokens) // grain):
        start = block * grain
        keys: list[ExtraKey] = []
        if chain.lora is not None:
            keys.append(LoRA(*chain.lora))
        if chain.salt is not None and block == 0:
            keys.append(Salt(chain.salt))
        keys += [
            MultiModal(image.identifier, image.offset - start)
            for image in chain.images
            if image.offset < start + grain and start < image.offset + image.length
        ]
        extra[block] = keys
    return extra
