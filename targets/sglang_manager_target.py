"""The target `sglang`: the radix cache of SGLang 0.5.23 over its page allocators.

A page of the contract is a page of the allocator; pages of 4 slots and of 1, each with freed pages
at the head of the free list and with freed pages sorted in later. Nodes are evicted by the time of
their last use, which is read from a clock: no order is declared. The engine asks for up to a page
more than it needs before it evicts (sglang#32217), so cached pages may go early.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.targets.builtin_profile import builtin_profile
from poolproof.targets.installed_sglang import SGLANG, SGLANG_STUBS, Sglang, sglang_parts
from poolproof.targets.manager_target import manager_target
from poolproof.targets.sglang_manager import SglangManager
from poolproof.targets.sglang_manager_request import server_settings
from poolproof.targets.target import ManagerLayout, Target, source_of

__all__ = ["sglang_manager"]

_NUM_ROWS = 64
"""Requests that may run at once."""

_PUBLISHED = {
    "eviction": "unspecified",
    "duplicates": "first",
    "retention": "may-drop",
    "misuse": "undefined",
    "publishes": "prompts",
    "never": "untold",
    "tables": "merged",
    "max_sequences": _NUM_ROWS,
}

_NOTES = (
    f"stand-ins: {', '.join(SGLANG_STUBS)}; orjson, where it is missing",
    "sglang/__init__.py, which starts the front end: not run",
    "stand-ins: Req and ReqKvInfo, whose module imports the server, and the server's configuration",
    "the allocators' PyTorch paths, which they take without a GPU: Triton kernels are not run",
    "what the scheduler keeps in reserve for decoding: an extend is granted when its pages fit",
    "other policies than lru, host memory (HiCache), sliding windows, recurrent state: not driven",
    "sessions, speculation, several ranks and events: not driven",
    "forks, swapping and truncation: the cache has none",
)

_NOT_RUN = (
    ("full+sliding", "SWARadixCache and its allocator are other classes"),
    ("full+mamba", "MambaRadixCache and its allocator are other classes"),
)


def sglang_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The engine's classes. Raises TargetError where its sources or PyTorch are not there."""
    parts = sglang_parts()
    if overrides.get("groups", "full") != "full":
        raise TargetError(f"{name}: the radix cache has one group, full attention")
    _publish_settings()
    profile = builtin_profile(name, _PUBLISHED, overrides, ManagerProfile)
    layouts = [
        ManagerLayout(
            f"page-{size}{'-sorted' * sorts}",
            profile,
            _maker(parts, size, sorts, profile.max_sequences or _NUM_ROWS),
            size,
        )
        for size in (4, 1)
        for sorts in (False, True)
    ]
    layouts += [ManagerLayout(other, profile, None, 4, why_not) for other, why_not in _NOT_RUN]
    return manager_target(
        name,
        "native-manager",
        layouts,
        version=SGLANG.replace("-", " "),
        source=source_of(parts.RadixCache),
        real_class=parts.RadixCache,
        notes=_NOTES,
    )


def _publish_settings() -> None:
    """What a server has published at its start, unless one runs in this process."""
    context = importlib.import_module("sglang.srt.runtime_context")._CONTEXT  # noqa: SLF001 - no accessor without a whole configuration
    if context._config_bags is None:  # noqa: SLF001 - the same
        context._config_bags = server_settings()  # noqa: SLF001 - the same


def _maker(
    parts: Sglang, page_size: int, sorts: bool, num_rows: int
) -> Callable[[int, bool], SglangManager]:
    def make(num_blocks: int, enable_caching: bool) -> SglangManager:
        num_slots = num_blocks * page_size
        # No KV is stored, so there is neither a number type nor a tensor for it.
        if page_size == 1:
            allocator = parts.TokenToKVPoolAllocator(num_slots, None, "cpu", None, sorts)
        else:
            allocator = parts.PagedTokenToKVPoolAllocator(
                num_slots, page_size, None, "cpu", None, sorts
            )
        tree = parts.RadixCache(
            parts.CacheInitParams(
                disable=not enable_caching,
                req_to_token_pool=parts.ReqToTokenPool(num_rows, num_slots, "cpu", False),
                token_to_kv_pool_allocator=allocator,
                page_size=page_size,
                eviction_policy="lru",
            )
        )
        return SglangManager(parts, tree)

    return make
