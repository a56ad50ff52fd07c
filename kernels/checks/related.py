"""A check for each relation: bit for bit if that is promised, otherwise within the bound."""

from __future__ import annotations

import random

import torch

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import PagedBatch, ownership
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.checks.dense import rows_with_keys
from poolproof.kernels.declaration import PROMISES
from poolproof.kernels.relations import RELATIONS, Relation, Subject, differing_rows, same_bits
from poolproof.kernels.target import KernelTarget

__all__ = ["RELATION_CHECKS", "broken_relation"]


class _Related:
    """One relation as the function of a check."""

    def __init__(self, relation: Relation) -> None:
        self._relation = relation

    def __call__(self, target: KernelTarget, case: Case) -> Outcome:
        # Rows without keys have a check of their own.
        asked = rows_with_keys(case)
        if not asked.any():
            return Outcome(0)
        batch = build(case, target.device)
        subject = Subject(case, batch, ownership(batch), random.Random(case.seed))
        return broken_relation(self._relation, target, subject, asked)


def broken_relation(
    relation: Relation,
    target: KernelTarget,
    subject: Subject,
    asked: torch.Tensor,
    output: torch.Tensor | None = None,
) -> Outcome:
    """What a relation says about one batch; `asked` are the rows that are looked at.

    `output` is what the target gave for the batch, where that is known. Bits that differ are wrong
    data only where they show another request, or where one of the two outputs is beyond its bound
    (AMX sums blocks of 32 in another order than blocks of 16, and neither is wrong).
    """
    declared = target.declaration
    promised = getattr(declared, relation.promise)
    compared = 0
    for variant in relation.variants(subject, promised):
        if variant.batch.block_size not in declared.block_sizes:
            continue
        if variant.layout is not None and variant.layout not in declared.layouts:
            continue
        if output is None:
            output = target(subject.batch)
        rows = torch.arange(len(asked)) if variant.rows is None else variant.rows
        kept = asked[rows].to(output.device)
        if not kept.any():
            continue
        expected = output[rows.to(output.device)][kept]
        whole = target(variant.batch)
        there = rows if variant.among_others else torch.arange(len(whole))
        there = there[kept.cpu()]
        found = whole[there.to(whole.device)]
        compared += 1
        if promised == "close":
            if _is_beyond_bound(target, variant.batch, whole, there):
                return Outcome(compared, f"with {variant.what} the output is beyond the bound")
        elif not same_bits(expected, found):
            wrong = _difference(variant.what, expected, found)
            is_wrong = (
                relation.is_foreign
                or _is_beyond_bound(target, subject.batch, output, rows[kept.cpu()])
                or _is_beyond_bound(target, variant.batch, whole, there)
            )
            return Outcome(compared, wrong, severity=None if is_wrong else Severity.OTHER_BITS)
    return Outcome(compared)


def _is_beyond_bound(
    target: KernelTarget, batch: PagedBatch, output: torch.Tensor, rows: torch.Tensor
) -> bool:
    """Whether one of these rows of the output is no dense attention over the batch."""
    return bool((target.expected(batch).ratio(output)[rows] > 1).any())


def _difference(what: str, expected: torch.Tensor, found: torch.Tensor) -> str:
    rows = differing_rows(expected, found)
    here, there = expected[rows[0]].flatten(), found[rows[0]].flatten()
    place = int((~((here == there) | (here.isnan() & there.isnan()))).nonzero()[0, 0])
    return (
        f"with {what} {len(rows)} of {len(expected)} rows change, the first is row {rows[0]}: "
        f"{float(there[place]):.9g} in the place of {float(here[place]):.9g}"
    )


def _check_of(relation: Relation) -> Check:
    assert relation.promise in PROMISES, relation
    foreign = Severity.WRONG_DATA_OF_ANOTHER
    return Check(
        name=relation.name,
        sentence=relation.sentence,
        severity=foreign if relation.is_foreign else Severity.WRONG_DATA_OF_ONES_OWN,
        run=_Related(relation),
        applies=lambda target: relation.applies(target.declaration),
        promise=relation.promise,
        also_by=relation.also_by,
        takes_large_cases=True,
    )


RELATION_CHECKS = tuple(_check_of(relation) for relation in RELATIONS.values())
