"""What SGLang's cache functions read of a request, without the server that defines it.

`Req` and `ReqKvInfo` live in `managers/schedule_batch.py`, which imports the whole server. These
stand-ins have the fields and methods that `match_kv_cache`, `checkpoint_kv_cache`,
`release_kv_cache`, the radix cache and the request pool touch, with the values of a request
without speculation, sliding windows, recurrent state or sessions. `server_settings` stands in for
the parts of the server's configuration that `release_kv_cache` asks for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

__all__ = ["SglangRequest", "server_settings"]


def server_settings() -> dict[str, SimpleNamespace]:
    """No speculative decoding, and what was thought stays in the cache."""
    return {
        "spec": SimpleNamespace(speculative_algorithm=None),
        "serving": SimpleNamespace(strip_thinking_cache=False),
    }


class _KvInfo:
    """Which row of the request pool, and how much KV, a request holds outside of the tree."""

    holds_mamba = False
    swa_evict_floor = 0

    def __init__(self) -> None:
        self.req_pool_idx: int | None = None
        self.cache_protected_len = 0
        self.cache_inserted_len = 0
        self.kv_committed_len = 0
        self.kv_allocated_len = 0

    @property
    def holds_kv(self) -> bool:
        return self.req_pool_idx is not None

    @property
    def is_kv_released(self) -> bool:
        return self.kv_allocated_len == 0

    def get_evicted_seqlen(self, _component: Any) -> int:
        return 0

    def swa_dead_lo(self, _page_size: int) -> int:
        return self.cache_protected_len

    def mark_kv_released(self) -> None:
        self.kv_allocated_len = 0


class SglangRequest:
    """A request with `tokens` as its prompt, in a namespace of the radix tree.

    `computed` positions are done; what is allocated beyond waits for the next forward pass, a
    single sampled token if `is_decoding`.
    """

    skip_radix_cache_insert = False
    priority = None

    def __init__(
        self, name: str, tokens: Iterable[int], extra_key: str | None, cache_salt: str | None
    ) -> None:
        self.rid = name
        self.origin_input_ids = array("q", tokens)
        self.output_ids = array("q")
        self.full_untruncated_fill_ids = array("q")
        self.extra_key = extra_key
        self.cache_salt = cache_salt
        self.kv = _KvInfo()
        self.lock: Any = None
        self.last_node: Any = None
        self.prefix_len = 0
        self.extend_end = 0
        self.computed = 0
        self.is_decoding = False
        self.has_ended = False

    def refresh_fill_ids(self) -> None:
        """All tokens so far are what the next extend is over."""
        self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids

    def owned_kv_len(self) -> int:
        """Nothing was sampled beyond a stop."""
        return self.kv.kv_committed_len

    def finished(self) -> bool:
        """Whether the request is about to release its KV for good."""
        return self.has_ended

    def _compute_max_prefix_len(self, num_tokens: int) -> int:
        """One token is left to compute."""
        return max(num_tokens - 1, 0)
