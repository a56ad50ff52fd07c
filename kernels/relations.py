"""Relations: changes of a batch that must not change a bit of the output, each with a name.

A relation turns a batch into others whose output is known from the first one's. It needs no oracle
and no tolerance, so it sees what a bound must let pass, and runs the same on every device. There
are three families: the same numbers elsewhere (other blocks, copies of shared ones, smaller blocks,
strides); poison where nothing must be read, each kind alone, so that a report names the place
(vllm#641: V tail; vllm#57156: null block); and the same sequence in another batch: if this fails,
an engine that is asked twice gives two answers (vllm#51902).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from poolproof.kernels.batch import Ownership, PagedBatch
from poolproof.kernels.case import Case
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.layouts import in_layout
from poolproof.kernels.token_scales import Poison, moved, per_slot, poisons, with_factors

__all__ = [
    "BATCH_RELATIONS",
    "PLACEMENT_RELATIONS",
    "POISON_RELATIONS",
    "RELATIONS",
    "Relation",
    "Subject",
    "Variant",
    "chosen",
    "differing_rows",
    "same_bits",
    "with_caches",
]


@dataclass(frozen=True, slots=True)
class Subject:
    """A batch to vary, with everything that is known about it."""

    case: Case
    batch: PagedBatch
    owned: Ownership
    draw: random.Random


@dataclass(frozen=True, slots=True)
class Variant:
    """Another batch, and which rows of the first one's output it must give (None: all).

    It gives these rows alone, or with `among_others` in the places that they had. Only a target
    that declares its `layout` is asked for it, where it has one.
    """

    what: str
    batch: PagedBatch
    rows: Tensor | None = None
    among_others: bool = False
    layout: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """`promise` is the row of the declaration that promises it.

    `variants` yields nothing if the batch has no room for the relation. If the row has a weaker
    value, `weaker` may still give variants; without it, nothing is promised. `is_foreign`: a
    violation shows one request another's data. `also_by` are values of the row that promise it as
    well. `applies`: whether a target of this declaration supports what is varied.
    """

    name: str
    sentence: str
    promise: str
    variants: Callable[[Subject, str], Iterator[Variant]]
    is_foreign: bool = False
    also_by: tuple[str, ...] = ()
    applies: Callable[[Declaration], bool] = lambda _: True


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two outputs agree in every bit; any NaN equals any other."""
    return bool(torch.equal(one, other) or torch.equal(one.nan_to_num(7e3), other.nan_to_num(7e3)))


def differing_rows(one: Tensor, other: Tensor) -> list[int]:
    """Rows of the query whose outputs differ."""
    differ = ~((one == other) | (one.isnan() & other.isnan()))
    rows: list[int] = differ.flatten(1).any(1).nonzero().flatten().tolist()
    return rows


def with_caches(batch: PagedBatch, key_cache: Tensor, value_cache: Tensor) -> PagedBatch:
    """The batch over other caches; latent values are those of the keys."""
    if batch.is_latent:
        value_cache = key_cache[..., : batch.value_size]
    return replace(batch, key_cache=key_cache, value_cache=value_cache)


def poisoned(
    batch: PagedBatch, where: Tensor, poison: Poison, *, keys: bool = True, values: bool = True
) -> PagedBatch:
    """The batch with poison in the slots of the mask, in keys, values or both.

    Of a latent key what is no value counts as the key alone; its scale is that of the value too.
    """
    if poison.scales is not None:
        batch = _under_scales(batch, where, poison.scales, keys and not batch.is_latent, values)
    if poison.numbers is None:
        return batch
    value = poison.numbers
    if not batch.is_latent:
        return with_caches(
            batch,
            filled(batch.key_cache, where, value) if keys else batch.key_cache,
            filled(batch.value_cache, where, value) if values else batch.value_cache,
        )
    begin = 0 if values else batch.value_size
    there = slice(begin, None if keys else batch.value_size)
    return with_caches(batch, filled(batch.key_cache, where, value, there), batch.value_cache)


def _under_scales(
    batch: PagedBatch, where: Tensor, scale: float, keys: bool, values: bool
) -> PagedBatch:
    """The batch with other scales in the slots of the mask, and zero points where there are any."""
    changed = {}
    for name, tensor in per_slot(batch).items():
        is_key = name.startswith("key") and not batch.is_latent
        if keys if is_key else values:
            of_zeros = scale if not math.isfinite(scale) else 15.0
            changed[name] = filled(tensor, where, of_zeros if name.endswith("zeros") else scale)
    return replace(batch, options=with_factors(batch.options, changed))


def filled(cache: Tensor, where: Tensor, value: float, elements: slice = slice(None)) -> Tensor:
    """A copy, in the same layout, with `value` in these elements of the slots of the mask."""
    copy = torch.empty_strided(
        cache.shape, cache.stride(), dtype=cache.dtype, device=cache.device
    ).copy_(cache)
    poison = torch.tensor(value, dtype=torch.float32).to(cache.dtype).to(cache.device)
    # torch fills no fp8 by mask; its bits are bytes.
    bits = copy.view(torch.uint8) if cache.dtype.itemsize == 1 else copy
    bits[..., elements][where.to(cache.device)] = poison.view(bits.dtype)
    return copy


def _permuted(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- one shape
    """Every block but the null block goes somewhere else."""
    batch, count = subject.batch, subject.batch.key_cache.shape[0]
    goes_to = list(range(1, count))
    subject.draw.shuffle(goes_to)
    place = torch.tensor([0, *goes_to])
    came_from = torch.argsort(place)
    moved_batch = with_caches(
        batch,
        _taken(batch.key_cache, came_from),
        _taken(batch.value_cache, came_from),
    )
    moved_batch = moved(moved_batch, lambda tensor: _taken(tensor, came_from))
    table = place[batch.block_tables.cpu().long()].to(batch.block_tables)
    yield Variant("the blocks in another order", replace(moved_batch, block_tables=table))


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
    copied = moved(copied, lambda tensor: _taken(tensor, taken))
    yield Variant("copies in the place of shared blocks", replace(copied, block_tables=table))


def _halved(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- the same
    """Each block becomes two of half the size."""
    batch = subject.batch
    if batch.block_size % 2:
        return
    half = batch.block_size // 2

    def in_halves(tensor: Tensor) -> Tensor:
        return tensor.reshape(tensor.shape[0] * 2, half, *tensor.shape[2:])

    halved = with_caches(batch, in_halves(batch.key_cache), in_halves(batch.value_cache))
    halved = moved(halved, in_halves)
    table = torch.stack([batch.block_tables * 2, batch.block_tables * 2 + 1], dim=-1).flatten(1)
    yield Variant(
        f"blocks of {half} instead of {batch.block_size} slots",
        replace(halved, block_tables=table),
    )


def _strided(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- the same
    """Other strides, with poison in whatever lies between the blocks."""
    batch = subject.batch
    caches = [batch.key_cache.contiguous(), batch.value_cache.contiguous()]
    heads = with_caches(batch, *(in_layout(cache, "heads-slots") for cache in caches))
    heads = moved(heads, lambda tensor: in_layout(tensor.contiguous(), "heads-slots"))
    yield Variant("heads before slots in memory", heads, layout="heads-slots")
    layers = moved(with_caches(batch, *map(_between_layers, caches)), _between_layers)
    word = "NaN" if batch.key_cache.dtype.is_floating_point else "the largest code"
    what = f"{word} in the planes of other layers between blocks"
    yield Variant(what, layers, layout="cross-layer")


def _between_layers(tensor: Tensor) -> Tensor:
    """The same blocks between planes of NaN, or of the largest code."""
    value = float("nan") if tensor.dtype.is_floating_point else torch.iinfo(tensor.dtype).max
    planes = torch.full((tensor.shape[0], 3, *tensor.shape[1:]), value, dtype=torch.float32)
    planes = planes.to(tensor.dtype).to(tensor.device)
    planes[:, 1] = tensor
    return planes[:, 1]


def _taken(cache: Tensor, blocks: Tensor) -> Tensor:
    """The blocks in this order, with the strides of the cache."""
    taken = cache[blocks.to(cache.device)]
    room = torch.empty_strided(taken.shape, cache.stride(), dtype=cache.dtype, device=cache.device)
    return room.copy_(taken)


def _has_half_sizes(declared: Declaration) -> bool:
    sizes = declared.block_sizes
    return any(size % 2 == 0 and size // 2 in sizes for size in sizes)


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
        applies=_has_half_sizes,
    ),
    Relation(
        name="strides",
        sentence="another layout gives the same bits, whatever stands between the blocks",
        promise="strides",
        variants=_strided,
        applies=lambda declared: bool({"heads-slots", "cross-layer"} & set(declared.layouts)),
        is_foreign=True,
    ),
)


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
        for poison in poisons(batch, promised == "finite"):
            yield Variant(
                f"{poison.word} in key slots behind the last token",
                poisoned(batch, where, poison, values=False),
            )


def _value_tail(subject: Subject, promised: str) -> Iterator[Variant]:
    batch, where = subject.batch, subject.owned.tail
    if where.any():
        for poison in poisons(batch, promised != "any"):
            yield Variant(
                f"{poison.word} in value slots behind the last token",
                poisoned(batch, where, poison, keys=False),
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


def _masked_keys(subject: Subject, promised: str) -> Iterator[Variant]:
    """Poison in what a mask hides from every query of its sequence, and of the others too."""
    batch = subject.batch
    if batch.options.mask is None:
        return
    where = torch.zeros_like(subject.owned.written)
    for sequence in batch.sequences():
        if sequence.query_length:
            blocks = torch.tensor(batch.blocks_of(sequence), dtype=torch.int64)
            positions = torch.arange(sequence.kv_length)
            where[blocks[positions // batch.block_size], positions % batch.block_size] = True
    where &= ~subject.owned.visible
    if not where.any():
        return
    for of_keys, only_finite in ((True, promised == "finite"), (False, promised != "any")):
        for poison in poisons(batch, only_finite):
            place = "keys" if of_keys else "values"
            yield Variant(
                f"{poison.word} in {place} that the mask hides from every query",
                poisoned(batch, where, poison, keys=of_keys, values=not of_keys),
            )


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


def _isolated(subject: Subject, promised: str) -> Iterator[Variant]:
    """Poison in everything that belongs to the other requests of the batch, and to them alone."""
    batch, count = subject.batch, len(subject.batch.kv_lengths)
    asking = [sequence for sequence in batch.sequences() if sequence.query_length]
    if count < 2 or not asking:
        return
    kept = subject.draw.choice(asking)
    rows = torch.arange(kept.rows.start, kept.rows.stop)
    own = torch.zeros_like(subject.owned.owned_block)
    own[batch.blocks_of(kept)] = True
    where = subject.owned.owned_block & ~own
    slots = where[:, None].expand_as(subject.owned.written)
    for number, poison in enumerate(poisons(batch, promised == "finite")):
        query = _but_rows(batch.query, kept.rows, poison.of_queries)
        variants = {
            "queries": replace(batch, query=query),
            "keys": poisoned(batch, slots, poison, values=False),
            "values": poisoned(batch, slots, poison, keys=False),
        }
        if number:
            # The first one, each place alone, says where; the others only whether.
            every = replace(poisoned(batch, slots, poison), query=query)
            variants = {"queries, keys and values": every}
        for place, variant in variants.items():
            yield Variant(
                f"{poison.word} in the {place} of every request but number {kept.index}",
                variant,
                rows,
                among_others=True,
            )


def _but_rows(query: Tensor, kept: slice, value: float) -> Tensor:
    """The query with a value in all rows but these, or the largest number that its type has."""
    largest = torch.finfo(query.dtype).max
    changed = _rows_of(query, torch.arange(len(query)))
    for others in (slice(0, kept.start), slice(kept.stop, None)):
        changed[others] = min(value, largest) if math.isfinite(value) else value
    return changed


def _both(subject: Subject, where: Tensor, only_finite: bool, place: str) -> Iterator[Variant]:
    batch = subject.batch
    if where.any():
        for poison in poisons(batch, only_finite):
            yield Variant(f"{poison.word} {place}", poisoned(batch, where, poison))


def _has_tails(declared: Declaration) -> bool:
    return any(size > 1 for size in declared.block_sizes)


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
        applies=_has_tails,
        is_foreign=True,
        also_by=("finite-values",),
    ),
    Relation(
        name="value tail",
        sentence="values in slots behind a sequence's last token change nothing",
        promise="tail",
        variants=_value_tail,
        applies=_has_tails,
        is_foreign=True,
    ),
    Relation(
        name="behind the window",
        sentence="blocks that no query sees any more can be given back, their entries null",
        promise="behind_window",
        variants=_behind_window,
        applies=lambda declared: bool(
            {"sliding_window", "window_ahead", "chunked"} & set(declared.features)
        ),
        is_foreign=True,
    ),
    Relation(
        name="masked keys",
        sentence="what stands in keys that a mask hides from every query changes nothing",
        promise="masked",
        variants=_masked_keys,
        # Of a tree each key is seen: by its own query, or by all.
        applies=lambda declared: "mask" in declared.features,
    ),
    Relation(
        name="table tail",
        sentence="table entries behind a sequence's last needed one are not followed",
        promise="table_tail",
        variants=_table_tail,
        is_foreign=True,
    ),
    Relation(
        name="isolation",
        sentence="what stands in another live request's memory changes nothing",
        promise="isolation",
        variants=_isolated,
        is_foreign=True,
    ),
)


def chosen(batch: PagedBatch, indices: Sequence[int]) -> tuple[PagedBatch, Tensor]:
    """A batch of these sequences in this order, and their rows in the old query."""
    sequences = list(batch.sequences())
    spans = [sequences[index].rows for index in indices]
    rows = torch.cat([torch.arange(span.start, span.stop) for span in spans])
    picked = torch.tensor(list(indices), device=batch.query.device)
    mask = batch.options.mask
    options = batch.options if mask is None else replace(
        batch.options, mask=_rows_of(mask, rows)
    )  # fmt: skip
    part = replace(
        batch,
        query=_rows_of(batch.query, rows),
        block_tables=batch.block_tables[picked],
        kv_lengths=batch.kv_lengths[picked],
        query_lengths=batch.query_lengths[picked],
        options=options,
    )
    return part, rows


def _rows_of(query: Tensor, rows: Tensor) -> Tensor:
    """These rows, with the strides of the query."""
    taken = query[rows.to(query.device)]
    room = torch.empty_strided(taken.shape, query.stride(), dtype=query.dtype, device=query.device)
    return room.copy_(taken)


def _reordered(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- one shape
    count = len(subject.batch.kv_lengths)
    if count < 2:
        return
    order = list(range(count))
    while order == sorted(order):
        subject.draw.shuffle(order)
    part, rows = chosen(subject.batch, order)
    yield Variant(f"the sequences in the order {order}", part, rows)


def _alone(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- the same
    count = len(subject.batch.kv_lengths)
    if count < 2:
        return
    index = subject.draw.randrange(count)
    part, rows = chosen(subject.batch, [index])
    if len(rows):
        yield Variant(f"sequence {index} alone", part, rows)


def _again(subject: Subject, promised: str) -> Iterator[Variant]:  # noqa: ARG001 -- the same
    yield Variant("once more", subject.batch)


BATCH_RELATIONS = (
    Relation(
        name="batch order",
        sentence="the order of the sequences changes no bit of any of them",
        promise="batch",
        variants=_reordered,
    ),
    Relation(
        name="batch of one",
        sentence="a sequence gives the same bits alone",
        promise="batch",
        variants=_alone,
    ),
    Relation(
        name="repeat",
        sentence="the same call gives the same bits again",
        promise="repeat",
        variants=_again,
    ),
)


RELATIONS: dict[str, Relation] = {
    relation.name: relation
    for relation in (*PLACEMENT_RELATIONS, *POISON_RELATIONS, *BATCH_RELATIONS)
}
