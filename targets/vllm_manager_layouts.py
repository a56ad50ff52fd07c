"""The named layouts in which managers of vLLM V1's shape are certified, and what each promises.

A layout says which cache groups there are, what else the manager is built with, and which rows of
the profile differ from the published engine's usual ones. `why_not` stands where a layout is not
run. Nothing of an engine is imported here; `vllm_manager.py` and `vllm_manager_target.py` build
what is described.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.manager_profile import CacheGroup

__all__ = ["BLOCK_SIZE", "LAYOUTS", "MAX_MODEL_LEN", "NOT_DRIVEN", "NamedLayout"]

BLOCK_SIZE = 4
"""Tokens in a block of every group that does not say another."""

MAX_MODEL_LEN = 4096
"""Tokens that a request may have; managers are built with it, and sequences grow exactly to it."""

_PUBLISHED = {
    "null_block": 0,
    "eviction": "unhashed-first",
    "duplicates": "kept",
    "recache": "forbidden",
    "null_in_lists": "ignored",
    "keys": "block",
    "retention": "exact",
    "events": "none",
    "misuse": "undefined",
    "same_step_hit": "allowed",
    "publishes": "scheduled",
    "hits": "exact",
    "index": "exact",
    "full_hit": "recompute-token",
    "reserves": "scheduled",
    "admission": "exact",
    "never": "untold",
    "release_order": "tail-first",
    "frees": "at-once",
    "finish_again": "ignored",
    "window_blocks": "freed",
    "tables": "append-only",
    "collisions": "trusted",
    "max_tokens": MAX_MODEL_LEN,
    "watermark_blocks": 0,
    "lookahead_tokens": 0,
    "state_blocks": 0,
    "host_blocks": 0,
}
_FULL = CacheGroup()
_SLIDING = CacheGroup("sliding", 0, 6)
_CHUNKED = CacheGroup("chunked", 0, 8)
_STATE = CacheGroup("state")
_REACHABLE = {"keyed": "reachable"}
_STEP_END = {"states": "step-end"}
_INSIDE_BLOCKS = {"keys": "partial", "index": "content", "hits": None}
_NO_TRANSFERS = ("load", "loaded")
_NO_DRAFTS = (*_NO_TRANSFERS, "draft", "accept")

NOT_DRIVEN = (
    "forks, swapping and truncation: the shape has none",
    "the watermark, full_sequence_must_fit and reserved blocks: admission policy of the scheduler",
    "asynchronous scheduling: every step is settled before the next one is scheduled",
    "cross attention, R-SWA, sink and multi-head latent attention, circular buffers, several ranks",
    "states before the end of a step (prefill checkpoints); the copies of the worker itself",
    "which states inside a block are kept (enable_mamba_shared_prefix_checkpoint)",
    "states in blocks of another size than attention's; replay of a window (prefix_replay_tokens)",
    "multi-module MTP (num_prefill_lookahead); heads of some groups alone (is_eagle_group)",
    "transfers outside the layout full, and hand-offs of states to connectors",
    "which blocks the worker clears (take_new_block_ids); statistics and metrics",
    "events: they are the pool's and are certified there",
)
"""What of the shape no layout reaches."""


@dataclass(frozen=True)
class NamedLayout:
    """One layout; `rows` take the place of the published engine's, `without` lists verbs left out.

    `hash_block_size` 0 is the block size. `state_mode` is the engine's cache mode for states:
    "align" keeps one at the end of a step, "all" one at the end of each block. `retention_tokens`
    is the engine's interval between retained checkpoints of windows and states: None keeps all of
    them, 0 only those of prompts.
    `notes` say what is not exact in this layout.
    """

    name: str
    groups: tuple[CacheGroup, ...] = (_FULL,)
    hash_block_size: int = 0
    use_eagle: bool = False
    state_mode: str = "align"
    retention_tokens: int | None = None
    rows: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = _NO_TRANSFERS
    why_not: str = ""
    notes: tuple[str, ...] = ()

    def profile_rows(self) -> dict[str, Any]:
        """Every row of the profile."""
        rows = {**_PUBLISHED, **self.rows, "groups": self.groups}
        if self.retention_tokens is not None:
            rows |= {"keyed": "checkpoints", "checkpoint_tokens": self.retention_tokens}
        return {row: value for row, value in rows.items() if value is not None}

    @property
    def state_blocks(self) -> int:
        """Blocks of a request in each group of states for the states behind drafts."""
        return int(self.rows.get("state_blocks", 0))

    def sizes(self) -> list[int]:
        """The block size of each group."""
        return [group.block_size or BLOCK_SIZE for group in self.groups]


# A server retains 0 unless it is told otherwise; the others keep every checkpoint, or some.
LAYOUTS = (
    NamedLayout("full", without=()),
    NamedLayout("sliding", (_SLIDING,)),
    NamedLayout("chunked-local", (_CHUNKED,)),
    NamedLayout("full+sliding", (_FULL, _SLIDING), retention_tokens=0),
    NamedLayout("full+chunked-local", (_FULL, _CHUNKED)),
    NamedLayout("full-8+sliding-4", (CacheGroup("full", 8), _SLIDING), rows=_REACHABLE),
    NamedLayout(
        "full-4+full-8+sliding-8",
        (_FULL, CacheGroup("full", 8), CacheGroup("sliding", 8, 6)),
        rows=_REACHABLE,
    ),
    NamedLayout("full+sliding-hash-2", (_FULL, _SLIDING), hash_block_size=2),
    NamedLayout("full+mamba", (_FULL, _STATE), rows=_STEP_END, without=_NO_DRAFTS),
    NamedLayout("mamba", (_STATE,), retention_tokens=8, rows=_STEP_END, without=_NO_DRAFTS),
    NamedLayout("lookahead", use_eagle=True, rows={"lookahead_tokens": 3, "proof_blocks": 1}),
    NamedLayout(
        "full+sliding+lookahead",
        (_FULL, _SLIDING),
        use_eagle=True,
        retention_tokens=0,
        # With several groups the block that proves a hit may hold the last token.
        rows={"lookahead_tokens": 3, "proof_blocks": 1, "full_hit": "allowed"},
    ),
    NamedLayout(
        "full+mamba+mamba",
        (_FULL, _STATE, _STATE),
        retention_tokens=0,
        rows=_STEP_END,
        without=_NO_DRAFTS,
    ),
    NamedLayout("full+sliding+sliding", (_FULL, _SLIDING, _SLIDING), retention_tokens=0),
    # Windows of whole blocks, as servers have them; the narrower one is looked up last, keeps less.
    NamedLayout(
        "full+sliding-12+sliding",
        (_FULL, CacheGroup("sliding", 0, 12), _SLIDING),
        retention_tokens=12,
    ),
    NamedLayout(
        "sliding+lookahead",
        (_SLIDING,),
        use_eagle=True,
        retention_tokens=0,
        rows={"lookahead_tokens": 3, "proof_blocks": 1},
    ),
    NamedLayout(
        "full-2+sliding-4+lookahead",
        (CacheGroup("full", 2), _SLIDING),
        use_eagle=True,
        rows={"lookahead_tokens": 3, "proof_blocks": 1, "full_hit": "allowed", **_REACHABLE},
    ),
    NamedLayout("chunked-local-1", (CacheGroup("chunked", 1, 3),)),
    NamedLayout(
        "full-hash-2",
        hash_block_size=2,
        why_not="vLLM: UnitaryKVCacheCoordinator assumes hash_block_size == block_size",
    ),
    NamedLayout(
        "full+mamba-hash-2",
        (_FULL, _STATE),
        hash_block_size=2,
        rows={**_STEP_END, "hash_tokens": 2, **_INSIDE_BLOCKS},
        without=_NO_DRAFTS,
    ),
    NamedLayout(
        "full+mamba+lookahead",
        (_FULL, _STATE),
        use_eagle=True,
        rows={
            "lookahead_tokens": 3,
            "proof_blocks": 1,
            "full_hit": "allowed",
            "state_blocks": 3,
            **_STEP_END,
        },
    ),
    NamedLayout(
        "full+mamba-all",
        (_FULL, _STATE),
        state_mode="all",
        # A state of this step is found, and who would start from it waits.
        rows={"states": "every-block", "index": "content", "hits": None},
        without=_NO_DRAFTS,
    ),
    NamedLayout(
        "chunked-local+lookahead",
        (_CHUNKED,),
        use_eagle=True,
        why_not="vLLM: Hybrid KV cache is not supported for eagle + chunked local attention",
    ),
)
