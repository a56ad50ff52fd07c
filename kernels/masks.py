"""The mask of a case: which query sees which key, drawn from the case's seed.

A `tree` is what speculative decoding asks: the new tokens of a sequence are drafts in a tree, and
each sees what is cached in front of them, its ancestors and itself. Other masks are anything: rows
of few keys and of many, bands, the first key or the last alone, and, in masks of the kind `any`,
nothing at all. What stands in the columns behind a sequence's last key must have no effect; half of
it is True.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from poolproof.kernels.case import Case

__all__ = ["MASKS", "ancestors", "mask_of", "parents", "seen_rows"]

MASKS = ("tree", "seen", "any")
"""`seen` is as `any`, but each query of a sequence with keys sees one at least."""

WIDE_TREE = 32
"""Drafts of the largest tree that is all of one kind."""

SPARE_COLUMNS = 4
"""A mask has fewer columns than this behind its longest row."""


def mask_of(case: Case) -> Tensor:
    """The mask: (num_tokens, the longest kv length and up to three columns more), of bool."""
    assert case.mask in MASKS, case.mask
    draw = torch.Generator().manual_seed(case.seed + 1)
    longest = max((keys for _, keys in case.sequences), default=0)
    width = longest + int(torch.randint(SPARE_COLUMNS, (1,), generator=draw))
    num_tokens = sum(queries for queries, _ in case.sequences)
    mask = torch.rand(num_tokens, width, generator=draw) < 0.5
    row = 0
    for queries, keys in case.sequences:
        own = _tree(queries, keys, draw) if case.mask == "tree" else _rows(queries, keys, draw)
        if case.mask == "seen" and keys:
            blind = ~own.any(1)
            own[blind, torch.randint(keys, (int(blind.sum()),), generator=draw)] = True
        mask[row : row + queries, :keys] = own
        row += queries
    return mask


def seen_rows(case: Case) -> Tensor:
    """Which rows of the query see any key of their sequence: (num_tokens,), of bool."""
    mask, seen, row = mask_of(case), [], 0
    for queries, keys in case.sequences:
        seen.append(mask[row : row + queries, :keys].any(1))
        row += queries
    return torch.cat(seen)


def parents(count: int, draw: torch.Generator) -> list[int]:
    """The parent of each draft of a tree; the first is the root, whose parent is -1."""
    # Some trees are nearly chains, others wide: one draft in two, four or eight leaves the chain.
    share = 2.0 ** -int(torch.randint(1, 4, (1,), generator=draw))
    leaves = (torch.rand(count, generator=draw) < share).tolist()
    anywhere = torch.rand(count, generator=draw).tolist()
    # A large tree begins with a chain, so that it is deep as well.
    first = 1 if count <= WIDE_TREE else count // 3
    return [
        int(anywhere[number] * number) if leaves[number] and number >= first else number - 1
        for number in range(count)
    ]


def ancestors(parents: list[int]) -> Tensor:
    """Which draft descends from which, itself included: (drafts, drafts), of bool."""
    own = torch.eye(len(parents), dtype=torch.bool)
    for number, parent in enumerate(parents):
        if parent >= 0:
            own[number] |= own[parent]
    return own


def _tree(queries: int, keys: int, draw: torch.Generator) -> Tensor:
    """The rows of one sequence: everything in front of the drafts, and ancestors among them."""
    seen = torch.zeros(queries, keys, dtype=torch.bool)
    if keys:
        context = keys - queries
        seen[:, :context] = True
        seen[:, context:] = ancestors(parents(queries, draw))
    return seen


def _rows(queries: int, keys: int, draw: torch.Generator) -> Tensor:
    """Rows of six kinds: a few keys, half, most, a band, one end alone, none."""
    seen = torch.rand(queries, keys, generator=draw)
    if not keys:
        return seen > 1
    kinds = torch.randint(12, (queries, 1), generator=draw)
    share = torch.tensor([0.1, 0.5, 0.9])[kinds % 3]
    columns = torch.arange(keys)[None, :]
    begin, end = torch.randint(keys + 1, (2, queries, 1), generator=draw)
    is_band = (columns >= torch.minimum(begin, end)) & (columns < torch.maximum(begin, end))
    is_end = columns == torch.where(begin % 2 == 0, 0, keys - 1)
    drawn = torch.where(kinds < 6, seen < share, is_band)
    # Kinds from 10 on see one end alone, or nothing.
    return torch.where(kinds < 10, drawn, is_end & (kinds == 10))
