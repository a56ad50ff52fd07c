"""Poolproof's own `KVCacheManager` as a target: its parts for the adapter of vLLM V1's shape.

The manager has that shape, so the adapter drives it as it drives the engine's. Its requests hash
their own blocks, its pool shows its counters itself, and it orders no copies. It differs from the
engine in recurrent states: a block for each table entry, and a state that is only written in this
step is not found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.impl.block_hash import BlockHasher, LoRA, Salt
from poolproof.impl.kv_cache_group import ChunkedLocal, FullAttention, RecurrentState, SlidingWindow
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_request import Image, Request
from poolproof.targets.vllm_manager_layouts import BLOCK_SIZE, LAYOUTS, MAX_MODEL_LEN, NamedLayout

__all__ = ["IMPL_LAYOUTS", "ImplParts"]


_WHY_NOT = {
    "full-hash-2": "",
    "full-2+sliding-4+lookahead": (
        "blocks get their keys before a hit can need them, for which `keyed` has no word"
    ),
}
"""What this manager does otherwise than the engine."""


def _own(layout: NamedLayout) -> NamedLayout:
    """The layout as this manager serves it: every state is kept, hashes of any granularity."""
    rows = {k: value for k, value in layout.rows.items() if k not in {"states", "full_hit"}}
    why_not = _WHY_NOT.get(layout.name, layout.why_not)
    return replace(layout, rows=rows, why_not=why_not, retention_tokens=None)


IMPL_LAYOUTS = tuple(map(_own, LAYOUTS))
"""The same names as for the engine."""


class ImplParts:
    """The parts of `poolproof.impl.kv_cache_manager`, or of a subclass, in one layout."""

    def __init__(self, cls: type[KVCacheManager], layout: NamedLayout) -> None:
        self._cls = cls
        self._layout = layout
        size = layout.hash_block_size or min(layout.sizes())
        # Any seed: no other process shares these hashes.
        self._hasher = BlockHasher(seed=b"poolproof", block_size=size)

    def make_manager(self, num_blocks: int, enable_caching: bool, /) -> KVCacheManager:
        return self._cls(
            num_blocks,
            BLOCK_SIZE,
            max_model_len=MAX_MODEL_LEN,
            groups=[_group(group) for group in self._layout.groups],
            hash_block_size=self._layout.hash_block_size or None,
            enable_caching=enable_caching,
            use_eagle=self._layout.use_eagle,
        )

    def make_request(self, request_id: str, chain: TokenChain, /) -> Request:
        return Request(
            request_id,
            chain.tokens,
            hasher=self._hasher,
            lora=None if chain.lora is None else LoRA(*chain.lora),
            salt=None if chain.salt is None else Salt(chain.salt),
            images=[Image(image.identifier, image.offset, image.length) for image in chain.images],
        )

    def append(self, request: Any, tokens: list[int], /) -> None:
        request.append(tokens)

    def set_running(self, request: Any, /) -> None:
        """A request knows no status."""

    def set_preempted(self, request: Any, /) -> None:
        """The same."""

    def take_copies(self, manager: Any, /) -> list[tuple[int, int]]:
        """It shares whole blocks only, so that there is nothing to copy."""
        del manager
        return []

    def observers(self, manager: Any, num_blocks: int, /) -> Mapping[str, Callable[..., Any]]:
        del num_blocks
        pool = manager.block_pool
        return {
            "num_free": pool.num_free,
            "free_order": pool.free_order,
            "free_neighbours": pool.free_neighbours,
            "ref_count": pool.ref_count,
            "is_cached": lambda block_id: pool.block_hash(block_id) is not None,
        }


def _group(group: CacheGroup) -> FullAttention:
    size = group.block_size or None
    if group.kind == "sliding":
        return SlidingWindow(block_size=size, window=group.window)
    if group.kind == "chunked":
        return ChunkedLocal(block_size=size, chunk_size=group.window)
    kind = RecurrentState if group.kind == "state" else FullAttention
    return kind(block_size=size)
