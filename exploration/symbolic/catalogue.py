"""All contracts, each with what it is about, and wrong versions that must be refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poolproof.exploration.proof.logic import Logic, Term
from poolproof.exploration.proof.model import Changes, State
from poolproof.exploration.symbolic import (
    contracts,
)

__all__ = ["CONTRACTS", "WRONG", "Contract", "Wrong"]


@dataclass(frozen=True)
class Contract:
    """A function with its contract in its docstring, and the code that it is about."""

    function: Callable[..., Any]
    subject: str

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def sentence(self) -> str:
        """The first line of the docstring."""
        return (self.function.__doc__ or "").partition("\n")[0]


@dataclass(frozen=True)
class Wrong:
    """A wrong version that takes the place of `name` in the contract's module."""

    contract: str
    sentence: str
    name: str
    version: Any
    thread: str = ""


CONTRACTS = (
    Contract(contracts.key_reads_back, "impl/cached_keys.py"),
    Contract(contracts.field_reads_back, "impl/block_hash.py"),
    Contract(contracts.fields_read_back, "impl/block_hash.py"),
    Contract(contracts.memory_is_used_up, "impl/sizing.py"),
    Contract(contracts.page_counts_keys_and_values, "impl/sizing.py"),
    Contract(contracts.blocks_cover_tokens, "impl/kv_cache_group.py"),
    Contract(contracts.growth_is_what_is_missing, "impl/kv_cache_group.py"),
    Contract(contracts.requests_are_counted_apart, "impl/kv_cache_group.py"),
    Contract(contracts.slot_names_block_and_offset, "slot arithmetic"),
    Contract(contracts.window_keeps_what_is_read, "impl/kv_cache_group.py"),
    Contract(contracts.window_skips_what_is_not, "impl/kv_cache_group.py"),
    Contract(contracts.chunk_keeps_what_is_read, "impl/kv_cache_group.py"),
    Contract(contracts.chunk_skips_what_is_not, "impl/kv_cache_group.py"),
    Contract(contracts.state_keeps_the_last_token, "impl/kv_cache_group.py"),
    Contract(contracts.peak_covers_a_window_anywhere, "impl/kv_cache_group.py"),
    Contract(contracts.allocating, "abstract pool"),
    Contract(contracts.touching, "abstract pool"),
    Contract(contracts.freeing, "abstract pool"),
    Contract(contracts.caching, "abstract pool"),
    Contract(contracts.evicting, "abstract pool"),
)


class _OffByOne:
    """A window that skips the oldest position that is still read."""

    def __init__(self, window: int) -> None:
        self.window = window

    def num_skipped_tokens(self, computed: int) -> int:
        return max(0, computed - self.window + 2)


class _TooShort:
    """A window that touches one block only when it begins at a block's first position."""

    def __init__(self, window: int) -> None:
        self.window = window

    def peak_blocks(self, block_size: int, in_flight: int, _max_tokens: int) -> int:
        return -(-(self.window - 1 + in_flight) // block_size)


class _NextChunk:
    """Chunks that round up: the present chunk is skipped while it is still read."""

    def __init__(self, chunk_size: int) -> None:
        self.chunk_size = chunk_size

    def num_skipped_tokens(self, computed: int) -> int:
        return -(-computed // self.chunk_size) * self.chunk_size


def _queued_all_along(logic: Logic, s: State, block: Term, reference: Term) -> Changes:
    return {"count": lambda b: s.count(b) + 1}


def _never_queued(logic: Logic, s: State, block: Term) -> Changes:
    return {"count": lambda b: s.count(b) - 1}


WRONG = (
    Wrong("key_reads_back", "the group is left out of the key", "make_key", lambda h, _group: h),
    Wrong("field_reads_back", "a length of one byte less", "sized",
          lambda data: (len(data) - 1 if data else 0).to_bytes(8, "little") + data),
    Wrong("fields_read_back", "fields are joined without lengths", "sized", bytes, "vllm#44701"),
    Wrong("memory_is_used_up", "one block more than fits", "num_blocks", lambda a, b: a // b + 1),
    Wrong("page_counts_keys_and_values", "keys or values only", "page_size_bytes",
          lambda t, h, size, element: t * h * size * element),
    Wrong("blocks_cover_tokens", "rounded down", "blocks_for", lambda n, size: n // size),
    Wrong("growth_is_what_is_missing", "rounded down", "blocks_for", lambda n, size: n // size),
    Wrong("requests_are_counted_apart", "rounded down, as if tokens were pooled", "blocks_for",
          lambda n, size: n // size, "FreeToken#367"),
    Wrong("slot_names_block_and_offset", "the block counts as one slot", "slot_of",
          lambda block, position: block + position % 16),
    Wrong("window_keeps_what_is_read", "one position too many is skipped", "SlidingWindow",
          _OffByOne, "imp#967"),
    Wrong("peak_covers_a_window_anywhere", "only aligned windows are counted", "SlidingWindow",
          _TooShort, "vllm#40946"),
    Wrong("chunk_keeps_what_is_read", "the present chunk is skipped", "ChunkedLocal", _NextChunk),
    Wrong("touching", "touch leaves a free block in the queue", "touch", _queued_all_along,
          "TensorRT-LLM#12667"),
    Wrong("freeing", "free forgets to queue the block", "free", _never_queued, "MinivLLM#70"),
)  # fmt: skip
