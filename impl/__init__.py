"""Allocators of KV-cache blocks that an engine can use on their own.

A free queue, a prefix index, the block pool over both, managers of requests over pools, block
hashes and sizing. Imports nothing of the rest of Poolproof, so that what is checked does not
depend on what checks it; needs the standard library, and xxhash for the two hash functions of that
name. Nothing here touches GPU memory or computes attention.
"""

from poolproof.impl.block_hash import BlockHasher, Embeds, LoRA, MultiModal, Salt
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.free_queue import FreeQueue
from poolproof.impl.kv_cache_group import (
    ChunkedLocal,
    FullAttention,
    RecurrentState,
    SlidingWindow,
)
from poolproof.impl.kv_cache_manager import KVCacheBlocks, KVCacheManager
from poolproof.impl.kv_cache_request import ImageSpan, Request
from poolproof.impl.kv_cache_residency import ResidencyMetrics
from poolproof.impl.prefix_index import PrefixIndex
from poolproof.impl.sizing import available_kv_bytes, block_size_bytes, num_blocks

__all__ = [
    "BlockHasher",
    "BlockPool",
    "ChunkedLocal",
    "Embeds",
    "FreeQueue",
    "FullAttention",
    "ImageSpan",
    "KVCacheBlocks",
    "KVCacheManager",
    "LoRA",
    "MultiModal",
    "PrefixIndex",
    "RecurrentState",
    "Request",
    "ResidencyMetrics",
    "Salt",
    "SlidingWindow",
    "available_kv_bytes",
    "block_size_bytes",
    "num_blocks",
]
