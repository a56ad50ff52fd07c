"""A sequence as the clean manager keeps it, and what the keys of its blocks are made of.

Keys are chained digests over tokens and extra keys, so that equal keys mean equal prefixes, as
long as the digests do not collide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CleanSequence", "block_content", "extra_keys_within"]


@dataclass(slots=True)
class CleanSequence:
    """One sequence: its tokens and drafts, its blocks, and how far it is computed."""

    seq_id: int
    tokens: list[int]
    extra_keys: tuple[Any, ...] | None
    table: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    num_computed: int = 0
    num_scheduled: int = 0
    num_published: int = 0
    drafts: list[int] = field(default_factory=list)
    loading: int = 0
    ended: bool = False
    place: str = "device"
    family: int = 0
    # Where only prompts are published: how far, and whether one sampled token is all that waits.
    num_offered: int = 0
    is_sampling: bool = False
    is_aborted: bool = False


def block_content(parent: bytes, tokens: list[int], extra_keys: Sequence[Any]) -> bytes:
    """What is hashed for a full block behind `parent`: everything that flows into its KV."""
    return parent + repr((tokens, extra_keys)).encode()


def extra_keys_within(extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
    """What besides tokens flows into the block from `first` to `end`, with its place in it."""
    return [
        (kind, value, start - first, None if stop is None else min(stop, end) - first)
        for kind, value, start, stop in extra_keys
        if start < end and (stop is None or stop > first)
    ]
