"""The same numbers elsewhere: other blocks, copies of shared ones, smaller blocks, strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from poolproof.kernels.case import in_layout
from poolproof.kernels.relations.relation import Relation, Subject, Variant, with_caches

__all__ = ["PLACEMENT_RELATIONS"]


def _permuted(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- one shape
    """Every block but the null block goes somewhere else."""
    batch, count = subject.batch, subject.batch.key_cache.shape[0]
    goes_to = list(range(1, count))
    subject.draw.shuffle(goes_to)
    place = torch.tensor([0, *goes_to])
    came_from = torch.argsort(place)
    moved = with_caches(
        batch,
        _taken(batch.key_cache, came_from),
        _taken(batch.value_cache, came_from),
    )
    table = place[batch.block_tables.cpu().long()].to(batch.block_tables)
    yield Variant("the blocks in another order", replace(moved, block_tables=table))


def _unshared(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- the same
    """Every sequence gets blocks of its own with the same contents."""
    batch = subject.batch
    count = batch.key_cache.shape[0]
    sources = list(range(count))
    table, seen = batch.block_tables.clone(), set()
    for sequence in batch.sequences():
        for place, block in enumerate(batch.blocks_of(sequence)):
            if block in seen:
                table[sequence.index, place] = len(sources)
                sources.append(block)
            seen.add(block)
    if len(sources) == count:
        return
    taken = torch.tensor(sources)
    copied = with_caches(batch, _taken(batch.key_cache, taken), _taken(batch.value_cache, taken))
    yield Variant("copies in the place of shared blocks", replace(copied, block_tables=table))


def _halved(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- the same
    """Each block becomes two of half the size."""
    batch = subject.batch
    if batch.block_size % 2:
        return
    half = batch.block_size // 2
    caches = [
        cache.reshape(cache.shape[0] * 2, half, *cache.shape[2:])
        for cache in (batch.key_cache, batch.value_cache)
    ]
    table = torch.stack([batch.block_tables * 2, batch.block_tables * 2 + 1], dim=-1).flatten(1)
    yield Variant(
        f"blocks of {half} instead of {batch.block_size} slots",
        replace(with_caches(batch, *caches), block_tables=table),
    )


def _strided(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- the same
    """Other strides, with poison in whatever stands between the blocks."""
    batch = subject.batch
    caches = [batch.key_cache.contiguous(), batch.value_cache.contiguous()]
    heads = [in_layout(cache, "heads-slots") for cache in caches]
    yield Variant("heads before slots in memory", with_caches(batch, *heads))
    layers = []
    for cache in caches:
        planes = torch.full((cache.shape[0], 3, *cache.shape[1:]), float("nan"))
        planes = planes.to(cache.dtype).to(cache.device)
        planes[:, 1] = cache
        layers.append(planes[:, 1])
    yield Variant("NaN in the planes of other layers between blocks", with_caches(batch, *layers))


def _taken(cache: Tensor, blocks: Tensor) -> Tensor:
    """The blocks in this order, in the layout of the cache."""
    if cache.is_contiguous():
        return cache[blocks.to(cache.device)]
    layout = "heads-slots" if cache.transpose(1, 2).is_contiguous() else "cross-layer"
    return in_layout(cache.contiguous()[blocks.to(cache.device)], layout)


PLACEMENT_RELATIONS = (
    Relation(
        name="placement",
        sentence="the same numbers in other physical blocks give the same bits",
        promise="placement",
        variants=_permuted,
    ),
    Relation(
        name="shared prefix",
        sentence="a shared block gives the same bits as copies of it",
        promise="placement",
        variants=_unshared,
    ),
    Relation(
        name="block size",
        sentence="blocks of half the size give the same bits",
        promise="block_size",
        variants=_halved,
    ),
    Relation(
        name="strides",
        sentence="another layout gives the same bits, whatever stands between the blocks",
        promise="strides",
        variants=_strided,
        is_foreign=True,
    ),
)
