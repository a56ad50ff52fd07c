"""The same sequence in another batch: other order, alone, and once more.

An engine that is asked twice gives two answers when these do not hold (vllm#51902).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.relations.relation import Relation, Subject, Variant

__all__ = ["BATCH_RELATIONS", "chosen"]


def chosen(batch: PagedBatch, indices: Sequence[int]) -> tuple[PagedBatch, Tensor]:
    """A batch of these sequences in this order, and their rows in the old query."""
    sequences = list(batch.sequences())
    spans = [sequences[index].rows for index in indices]
    rows = torch.cat([torch.arange(span.start, span.stop) for span in spans])
    picked = torch.tensor(list(indices), device=batch.query.device)
    part = replace(
        batch,
        query=batch.query[rows.to(batch.query.device)],
        block_tables=batch.block_tables[picked],
        kv_lengths=batch.kv_lengths[picked],
        query_lengths=batch.query_lengths[picked],
    )
    return part, rows


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
