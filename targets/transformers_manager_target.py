"""The target `transformers`: the paged cache of continuous batching, in its named layouts.

Sectors of the cache's tensor are lent to one allocator for each kind of attention. Where each kind
has as many layers as the others, and a block is padded to no less than a sector, a sector is one
block, and all groups share one pool of equal blocks: that is what the contract speaks of. The
layout `full-sectors` has several blocks in a sector, which one kind alone can have without the
sectors' boundaries showing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.builtin_profile import builtin_profile
from poolproof.targets.installed_transformers import Transformers, transformers_parts
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.transformers_manager import TransformersManager

__all__ = ["transformers_manager"]

_PAGE_SIZE = 4

_SHARED = {
    "eviction": "unspecified",
    "duplicates": "first",
    "retention": "may-drop",
    "misuse": "undefined",
    "never": "untold",
    "release_order": "unspecified",
    "window_blocks": "reused",
    "tables": "merged",
    "collisions": "trusted",
}

_NOTES = (
    "no stand-ins: the cache is built on the CPU without a model, one layer for each group",
    "adapters, salts and images: the cache has none, so tokens under them are other tokens to it",
    "the scheduler's safety margin: cached blocks are evicted only when something does not fit",
    "copies to host memory: a preempted request's blocks go back uncached, as a soft reset does it",
    "kernels that take the block table (decoding's fast path): read and write indices are seen",
    "asynchronous batching and tensor parallelism: not driven",
)


@dataclass(frozen=True)
class _NamedLayout:
    name: str
    groups: tuple[CacheGroup, ...]
    page_size: int = _PAGE_SIZE
    small_blocks: bool = False
    why_not: str = ""


_FULL = CacheGroup()
_SLIDING = CacheGroup("sliding", 0, 8)

_LAYOUTS = (
    _NamedLayout("full", (_FULL,)),
    _NamedLayout("full-sectors", (_FULL,), small_blocks=True),
    _NamedLayout("full+sliding", (_FULL, _SLIDING)),
    _NamedLayout("sliding", (_SLIDING,)),
    _NamedLayout("full+sliding-page-1", (_FULL, CacheGroup("sliding", 0, 6)), page_size=1),
    _NamedLayout("sliding-page-1", (CacheGroup("sliding", 0, 6),), page_size=1),
    _NamedLayout(
        "sliding-6",
        (CacheGroup("sliding", 0, 6),),
        why_not="a window that is no multiple of the page goes round in the middle of a page, "
        "which a block table cannot tell; sliding-page-1 has such a window",
    ),
    _NamedLayout(
        "full+full+sliding",
        (_FULL, _SLIDING),
        why_not="kinds with unequal numbers of layers have blocks of unequal size in one tensor",
    ),
)


def transformers_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The installed library's cache. Raises TargetError where it cannot be imported."""
    parts = transformers_parts()
    if "groups" in overrides:
        raise TargetError(f"{name}: cache groups are chosen with --layout, not by a row")
    return manager_target(
        name,
        "native-manager",
        [_layout(name, parts, layout, overrides) for layout in _LAYOUTS],
        version=parts.version,
        source=source_of(parts.PagedAttentionCache),
        real_class=parts.PagedAttentionCache,
        notes=_NOTES,
    )


def _layout(
    name: str, parts: Transformers, layout: _NamedLayout, overrides: Mapping[str, Any]
) -> ManagerLayout:
    # Prefixes are shared only where all layers have full attention.
    publishes = "computed" if layout.groups == (_FULL,) else "never"
    own = {**_SHARED, "publishes": publishes, "groups": layout.groups}
    profile = builtin_profile(name, own, overrides, ManagerProfile)
    make = None if layout.why_not else _maker(parts, layout)
    return ManagerLayout(layout.name, profile, make, layout.page_size, layout.why_not)


def _maker(parts: Transformers, layout: _NamedLayout) -> Callable[[int, bool], TransformersManager]:
    def make(num_blocks: int, enable_caching: bool) -> TransformersManager:
        kinds = [f"{group.kind}_attention" for group in layout.groups]
        head_dim = _head_dim(layout, num_blocks)
        config = parts.PretrainedConfig(
            num_hidden_layers=len(kinds),
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=head_dim,
            hidden_size=head_dim,
            vocab_size=8,
        )
        config.layer_types = kinds
        config.sliding_window = max(group.window for group in layout.groups) or None
        config._attn_implementation = "sdpa"  # noqa: SLF001 - as a model's constructor sets it
        batching = parts.ContinuousBatchingConfig(
            page_size=layout.page_size,
            # Counted in blocks of all layers, so a number of blocks that is odd ends in a half.
            num_blocks=num_blocks / len(kinds),
            max_batch_tokens=64,
            max_memory_percent=0.5,
            allow_block_sharing=enable_caching,
        )
        cache = parts.PagedAttentionCache(
            config,
            batching,
            device="cpu",
            distributed_helper=parts.DistributedHelper(None, None),
            dtype=parts.float32,
        )
        return TransformersManager(cache, parts.RequestState)

    return make


def _head_dim(layout: _NamedLayout, num_blocks: int) -> int:
    """With this many numbers a head, a block fills a sector of 128 bytes, or a half or quarter.

    A page has a key and a value of 4 bytes a number for each token. Small blocks fill whole
    sectors as far as `num_blocks` allows.
    """
    whole = 128 // (2 * 4 * layout.page_size)
    if not layout.small_blocks:
        return whole
    return next(whole // parts for parts in (4, 2, 1) if num_blocks % parts == 0)
