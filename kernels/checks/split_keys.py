"""Two parts of the keys, attended apart and merged by their log-sum-exps, give the whole.

What split KV, a cascade over a shared prefix and context parallelism rest on. The cut is at a
block's edge, and every query sees all keys in front of it: the first part is a call without a
causal mask, the second one with the table from that block on. Between the whole and the merged
parts, with p the weights of the parts and b the bounds of output and log-sum-exp:

    |o - merged| <= b + sum p b_part + 2 max(b_lse of a part) sum p |o_part|
    |lse - merged| <= b_lse + max(b_lse of a part)

The merge itself is done in float64. An error of an exponent is a relative one of its weight, and as
much of the sum of all; a log-sum-exp of sums moves no more than the largest of its terms.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import SIGHT_KEYWORDS, PagedBatch
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.relations import chosen
from poolproof.kernels.target import KernelTarget

__all__ = ["SPLIT_CHECKS"]


def _cuts(batch: PagedBatch, can_be_uncausal: bool) -> dict[int, int]:
    """The blocks in front of the cut, by sequence, for those that can be cut."""
    options, cuts = batch.options, {}
    if options.sinks is not None or options.alibi_slopes is not None:
        return {}  # A sink would count twice, and slopes count from the end of the keys.
    if options.sliding_window is not None or any(
        getattr(options, name) is not None for name in SIGHT_KEYWORDS.values()
    ):
        return {}
    for sequence in batch.sequences():
        asked, size = sequence.query_length, batch.block_size
        # Every query sees the keys in front of the cut, and no part has fewer keys than queries.
        least, most = -(-asked // size), (sequence.kv_length - asked) // size
        has_form = asked == 1 or can_be_uncausal or not options.causal
        if asked and has_form and 0 < least <= most:
            cuts[sequence.index] = (least + most) // 2
    return cuts


def _parts(batch: PagedBatch, blocks: Tensor, can_be_uncausal: bool) -> list[PagedBatch]:
    """The keys in front of the cuts, and those behind them."""
    front = blocks.to(batch.kv_lengths) * batch.block_size
    is_causal = batch.options.causal and not can_be_uncausal
    first = replace(batch, kv_lengths=front, options=replace(batch.options, causal=is_causal))
    tables = torch.zeros_like(batch.block_tables)
    for row, count in enumerate(blocks.tolist()):
        rest = batch.block_tables[row, count:]
        tables[row, : len(rest)] = rest
    return [first, replace(batch, block_tables=tables, kv_lengths=batch.kv_lengths - front)]


def _split(target: KernelTarget, case: Case) -> Outcome:
    batch = build(case, target.device)
    can_be_uncausal = "non_causal" in target.declaration.features
    cuts = _cuts(batch, can_be_uncausal)
    if not cuts:
        return Outcome(0)
    whole, _ = chosen(batch, list(cuts))
    output, lse = _doubles(target, whole)
    parts = _parts(whole, torch.tensor(list(cuts.values())), can_be_uncausal)
    pairs = [_doubles(target, part) for part in parts]
    outputs, lses = torch.stack([o for o, _ in pairs]), torch.stack([s for _, s in pairs])
    merged_lse = torch.logsumexp(lses, 0)
    weights = torch.exp(lses - merged_lse)[..., None]
    expected, dense = target.expected(whole), [target.expected(part) for part in parts]
    lse_bound = torch.stack([part.lse_bound for part in dense]).amax(0)
    bound = expected.bound + (weights * torch.stack([part.bound for part in dense])).sum(0)
    bound += 2 * lse_bound[..., None] * (weights * outputs.abs()).sum(0)
    cut = f"keys cut after block {next(iter(cuts.values()))} and merged by their log-sum-exps"
    ratio = _ratio((weights * outputs).sum(0) - output, bound)
    if ratio > 1:
        return Outcome(1, f"{cut} give an output that is off by {ratio:.3g} bounds")
    ratio = _ratio(merged_lse - lse, expected.lse_bound + lse_bound)
    if ratio > 1:
        return Outcome(1, f"{cut} give another log-sum-exp, off by {ratio:.3g} bounds")
    return Outcome(1)


def _doubles(target: KernelTarget, batch: PagedBatch) -> tuple[Tensor, Tensor]:
    """Output, and log-sum-exps in base e, in float64."""
    output, lse = target.with_lse(batch)
    assert lse is not None, target.name
    unit = torch.log(torch.tensor(2.0 if target.declaration.lse == "2" else torch.e).double())
    return output.cpu().double(), lse.cpu().double() * unit


def _ratio(difference: Tensor, bound: Tensor) -> float:
    worst = torch.nan_to_num(difference.abs() / bound, nan=float("inf"), posinf=float("inf")).max()
    return float(worst)


SPLIT_CHECKS = (
    Check(
        name="split keys",
        sentence="two parts of the keys, merged by their log-sum-exps, give the whole",
        severity=Severity.WRONG_DATA_OF_ONES_OWN,
        run=_split,
        applies=lambda target: target.declaration.lse != "absent",
        takes_large_cases=True,
    ),
)
