"""Poison where nothing must be read: the null block, unowned blocks, tails, blocks behind a window.

Each kind stands alone, so that a report names the place (vllm#641: V tail; vllm#57156: null block).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from poolproof.kernels.relations.relation import (
    Relation,
    Subject,
    Variant,
    filled,
    poisons,
    with_caches,
)

__all__ = ["POISON_RELATIONS"]


def _null_block(subject: Subject, promised: str) -> Iterator[Variant]:
    where = subject.owned.unowned.clone()
    where[1:] = False
    yield from _both(subject, where, promised == "finite", "in the null block")


def _unowned(subject: Subject, promised: str) -> Iterator[Variant]:
    where = subject.owned.unowned.clone()
    where[0] = False
    yield from _both(subject, where, promised == "finite", "in the blocks of nobody")


def _key_tail(subject: Subject, promised: str) -> Iterator[Variant]:
    batch, where = subject.batch, subject.owned.tail
    if where.any():
        for word, value in poisons(batch.key_cache.dtype, promised == "finite"):
            keys = filled(batch.key_cache, where, value)
            yield Variant(
                f"{word} in key slots behind the last token",
                with_caches(batch, keys, batch.value_cache),
            )


def _value_tail(subject: Subject, promised: str) -> Iterator[Variant]:
    batch, where = subject.batch, subject.owned.tail
    if where.any():
        for word, value in poisons(batch.value_cache.dtype, promised != "any"):
            values = filled(batch.value_cache, where, value)
            yield Variant(
                f"{word} in value slots behind the last token",
                with_caches(batch, batch.key_cache, values),
            )


def _behind_window(subject: Subject, promised: str) -> Iterator[Variant]:
    """Blocks that no query sees any more are given back; the table has the null block there."""
    batch = subject.batch
    table = batch.block_tables.clone()
    reclaimed: list[int] = []
    for sequence in batch.sequences():
        gone = sequence.first_visible(batch.options) // batch.block_size
        reclaimed += batch.blocks_of(sequence)[:gone]
        table[sequence.index, :gone] = 0
    if not reclaimed:
        return
    where = torch.zeros_like(subject.owned.written)
    # A shared block may still be in another sequence's sight.
    where[[0, *reclaimed]] = True
    where &= ~subject.owned.visible
    moved = replace(subject, batch=replace(batch, block_tables=table))
    yield from _both(moved, where, promised == "finite", "in blocks behind the window")


def _table_tail(subject: Subject, promised: str) -> Iterator[Variant]:
    batch = subject.batch
    free = ~subject.owned.owned_block
    # A full pool has no block of nobody.
    garbage = free.nonzero().flatten().tolist()[-1:]
    if promised == "any":
        garbage = [2**31 - 1, -1, *garbage]
    for value in garbage:
        table = batch.block_tables.clone()
        for sequence in batch.sequences():
            table[sequence.index, len(batch.blocks_of(sequence)) :] = value
        if not torch.equal(table, batch.block_tables):
            yield Variant(
                f"{value} in table entries behind the last needed one",
                replace(batch, block_tables=table),
            )


def _both(subject: Subject, where: Tensor, only_finite: bool, place: str) -> Iterator[Variant]:
    batch = subject.batch
    if where.any():
        for word, value in poisons(batch.key_cache.dtype, only_finite):
            keys = filled(batch.key_cache, where, value)
            values = filled(batch.value_cache, where, value)
            yield Variant(f"{word} {place}", with_caches(batch, keys, values))


POISON_RELATIONS = (
    Relation(
        name="null block",
        sentence="what stands in the null block changes nothing",
        promise="unowned",
        variants=_null_block,
        is_foreign=True,
    ),
    Relation(
        name="unowned blocks",
        sentence="what stands in blocks that no sequence has changes nothing",
        promise="unowned",
        variants=_unowned,
        is_foreign=True,
    ),
    Relation(
        name="key tail",
        sentence="keys in slots behind a sequence's last token change nothing",
        promise="tail",
        variants=_key_tail,
        is_foreign=True,
        also_by=("finite-values",),
    ),
    Relation(
        name="value tail",
        sentence="values in slots behind a sequence's last token change nothing",
        promise="tail",
        variants=_value_tail,
        is_foreign=True,
    ),
    Relation(
        name="behind the window",
        sentence="blocks that no query sees any more can be given back, their entries null",
        promise="behind_window",
        variants=_behind_window,
        is_foreign=True,
    ),
    Relation(
        name="table tail",
        sentence="table entries behind a sequence's last needed one are not followed",
        promise="table_tail",
        variants=_table_tail,
        is_foreign=True,
    ),
)
