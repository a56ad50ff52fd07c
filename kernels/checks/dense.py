"""The output against dense attention in float64, rows without keys, what must stay untouched."""

from __future__ import annotations

import math

import torch

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.layouts import restrided
from poolproof.kernels.masks import seen_rows
from poolproof.kernels.oracle import Expected
from poolproof.kernels.read_sets import named_tensors
from poolproof.kernels.relations import differing_rows, same_bits
from poolproof.kernels.target import KernelTarget

__all__ = ["DENSE_CHECKS", "rows_with_keys", "sentence_for"]


def sentence_for(case: Case, expected: Expected, output: torch.Tensor) -> str:
    """Where the worst element is, what it was and what it should have been."""
    ratio = expected.ratio(output)
    row, head, element = (int(i) for i in torch.unravel_index(ratio.argmax(), ratio.shape))
    first = sequence = 0
    while row >= first + case.sequences[sequence][0]:
        first += case.sequences[sequence][0]
        sequence += 1
    was = float(output[row, head, element])
    right = float(expected.output[row, head, element])
    bound = float(expected.bound[row, head, element])
    wrong_rows = int((ratio > 1).flatten(1).any(1).sum())
    return (
        f"sequence {sequence}, query {row - first}, head {head}, element {element} is {was:.6g} "
        f"and should be {right:.6g} within {bound:.2g}; {wrong_rows} of {len(ratio)} rows are wrong"
    )


def _dense(target: KernelTarget, case: Case) -> Outcome:
    batch = build(case, target.device)
    expected = target.expected(batch)
    rows = rows_with_keys(case)
    if not rows.any():
        return Outcome(0)
    out = _sliced_out(target, case, batch)
    output, lse = target.with_lse(batch, out)
    output = output.cpu()
    if not rows.all():
        # Rows without keys have a check of their own.
        output = output.clone()
        output[~rows] = 0
    ratio = expected.max_ratio(output)
    if ratio > 1:
        return Outcome(1, sentence_for(case, expected, output), ratio)
    if lse is not None:
        lse_ratio = expected.lse_ratio(lse, target.declaration.lse).masked_fill(~rows[:, None], 0.0)
        ratio = max(ratio, float(lse_ratio.max()))
        if ratio > 1:
            return Outcome(
                1, _lse_sentence(lse_ratio, expected, lse, target.declaration.lse), ratio
            )
    if out is not None and not _is_nan_beside(out):
        return Outcome(1, "writes beside the rows of the output tensor, a slice of a wider one")
    return Outcome(1, None, ratio)


def _lse_sentence(ratio: torch.Tensor, expected: Expected, lse: torch.Tensor, base: str) -> str:
    row, head = (int(i) for i in torch.unravel_index(ratio.argmax(), ratio.shape))
    unit = math.log(2) if base == "2" else 1.0
    wrong_rows = int((ratio > 1).any(1).sum())
    return (
        f"the log-sum-exp of row {row}, head {head} is {float(lse[row, head]):.6g} and should be "
        f"{float(expected.lse[row, head]) / unit:.6g} within "
        f"{float(expected.lse_bound[row, head]) / unit:.2g}; {wrong_rows} of {len(ratio)} rows are "
        "wrong"
    )


def _sliced_out(target: KernelTarget, case: Case, batch: PagedBatch) -> torch.Tensor | None:
    """An output tensor with NaN between its rows, where the case has one."""
    if "out" not in case.views or not target.declaration.out:
        return None
    out = batch.new_out()
    rows, heads, size = out.shape
    width = (heads + 2) * size
    return restrided(out, (width, size, 1), size, rows * width)


def _is_nan_beside(out: torch.Tensor) -> bool:
    """Whether the memory of a sliced output still holds NaN everywhere else."""
    rows, heads, size = out.shape
    memory = out.as_strided((rows, heads + 2, size), out.stride(), 0)
    return bool(memory[:, [0, -1]].isnan().all())


def rows_with_keys(case: Case) -> torch.Tensor:
    """Which rows of the query see any key: (num_tokens,), of bool."""
    if case.mask is not None:
        return seen_rows(case)
    rows = [keys > 0 for queries, keys in case.sequences for _ in range(queries)]
    return torch.tensor(rows, dtype=torch.bool)


def _empty_rows(target: KernelTarget, case: Case) -> Outcome:
    empty = ~rows_with_keys(case)
    if not empty.any():
        return Outcome(0)
    batch = build(case, target.device)
    compared = 0
    for poison in (float("nan"), 7.0):
        out = batch.new_out(poison)
        output, lse = target.with_lse(batch, out)
        output = output.cpu()
        compared += 1
        if target.declaration.empty_row == "untouched":
            if target.declaration.out and not same_bits(output[empty], out[empty].cpu()):
                return Outcome(compared, "a row without keys was written")
        elif bool((output[empty] != 0).any()):
            worst = float(output[empty].flatten()[(output[empty] != 0).flatten().nonzero()[0, 0]])
            return Outcome(
                compared,
                f"a query without keys gets {worst:g} and not zeros (the output tensor held "
                f"{poison:g} before)",
            )
        elif lse is not None and batch.options.sinks is None:
            # Merged with another part, anything else would give a part without keys a weight.
            found = lse.cpu()[empty].flatten()
            if bool((found != float("-inf")).any()):
                worst = float(found[found != float("-inf")][0])
                return Outcome(
                    compared,
                    f"the log-sum-exp of a query without keys is {worst:g} and not minus infinity",
                )
    return Outcome(compared)


def _all_written(target: KernelTarget, case: Case) -> Outcome:
    """The same output whatever was in the output tensor before."""
    batch = build(case, target.device)
    rows = rows_with_keys(case)
    if not rows.any():
        return Outcome(0)
    outputs = [target(batch, batch.new_out(poison)).cpu()[rows] for poison in (float("nan"), 7.0)]
    if same_bits(*outputs):
        return Outcome(1)
    row = differing_rows(*outputs)[0]
    return Outcome(1, f"row {row} of the output depends on what the tensor held before")


def _unchanged(target: KernelTarget, case: Case) -> Outcome:
    """Query, caches, tables and lengths are the same after the call."""
    batch = build(case, target.device)
    before = {name: tensor.clone() for name, tensor in named_tensors(batch, None).items()}
    target(batch)
    for name in _changed(batch, before):
        if target.declaration.cache_writes == "newest" and name.endswith("_cache"):
            continue
        return Outcome(1, f"{name} was changed by the call")
    return Outcome(1)


def _changed(batch: PagedBatch, before: dict[str, torch.Tensor]) -> list[str]:
    now = named_tensors(batch, None)
    return [name for name in before if not torch.equal(_bits(now[name]), _bits(before[name]))]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Bits instead of numbers: NaN equals itself, and fp8 can be compared."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(kinds[tensor.element_size()])


def _has_empty(target: KernelTarget) -> bool:
    return target.declaration.empty_row in {"zeros", "untouched"}


DENSE_CHECKS = (
    Check(
        name="dense",
        sentence="the output is dense attention over the sequence's own tokens, within the bound",
        severity=Severity.WRONG_DATA_OF_ONES_OWN,
        run=_dense,
        takes_large_cases=True,
    ),
    Check(
        name="empty rows",
        sentence="a query without keys gets zeros",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_empty_rows,
        applies=_has_empty,
        promise="empty_row",
    ),
    Check(
        name="output rows",
        sentence="every row is written, whatever the output tensor held before",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_all_written,
        applies=lambda target: target.declaration.out,
    ),
    Check(
        name="inputs",
        sentence="query, caches, tables and lengths are not written",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_unchanged,
    ),
)
