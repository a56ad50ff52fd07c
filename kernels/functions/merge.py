"""A function that merges partial outputs of attention by their log-sum-exps, as a target.

    merge(outputs, lses) -> output, lse

`outputs` are (num_parts, num_tokens, num_heads, head_size), each normalised over the keys of its
part, and `lses` (num_parts, num_tokens, num_heads) in float32: the logarithms of the sums of the
exponentials of the scores, to the base that the declaration names. A part without keys has minus
infinity, and with `empty_part: any` anything for an output. Without any key the output is zeros and
the log-sum-exp minus infinity.

With l the log-sum-exps in base e, L the largest |l| of a row's parts that have keys, k parts,
p the weights exp(l - lse) and u the unit roundoff of the output's type, in float64:

    |o - o*|     <= 1.01 u |o*| + 2 e sum p |o_part|
    |lse - lse*| <= e (1, or log2(e) in base 2)
    e = 2^-24 ((4 + 2 sqrt(k)) L + k + 16)

The output is rounded once. A log-sum-exp that is brought to another base is rounded (2^-24 L, twice
where the maximum is too), so is the difference to the maximum; exponentials, their sum and the
quotient have a few roundings each, the sum one for each part. Who merges part after part rounds the
log-sum-exp each time, which adds up as the square root of their number. An error of e in an
exponent is a relative error of e in a weight, and as much in the sum of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from poolproof.contract.violation import Severity
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.functions.cases import (
    Choose,
    Draw,
    FunctionCase,
    order_of,
    pick,
    smaller_values,
    why_not,
)
from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.functions.memory import changed_bytes
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.kind import Kind
from poolproof.kernels.layouts import restrided
from poolproof.kernels.oracle import FLOAT32, ROUNDOFF, SMALLEST
from poolproof.kernels.target import BadOutputError

__all__ = ["MERGE", "ExpectedMerge", "MergeCase", "build_merge", "merged"]

SIZES = ("near", "equal", "apart", "far", "large", "low")
"""Log-sum-exps around 0; all the same; some 20 apart; thousands apart; around 9,000; around
-60,000, below what has stood for minus infinity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCase(FunctionCase):
    """`empty` of 0 to 4 says how many quarters of the parts have no keys, at random in each row.

    With `poison` the outputs of these hold NaN. `sliced`: outputs and log-sum-exps are views.
    """

    num_parts: int = 2
    num_tokens: int = 1
    size: str = "near"
    empty: int = 0
    poison: bool = False
    sliced: bool = False

    def wrong(self) -> str | None:
        """What of the case cannot be, None if it can."""
        if self.size not in SIZES:
            return f"size must be one of {', '.join(SIZES)}"
        if min(self.num_parts, self.num_tokens, self.num_kv_heads, self.head_size) < 1:
            return "every count must be above 0"
        return None

    def words(self) -> str:
        """One line for a person."""
        text = (
            f"{self.dtype}, {self.num_parts} parts of {self.num_tokens} tokens, "
            f"{self.num_kv_heads} heads, head size {self.head_size}, log-sum-exps {self.size}"
        )
        text += f", {self.empty} of 4 empty" if self.empty else ""
        text += ", NaN in empty parts" if self.poison and self.empty else ""
        return text + (", sliced" if self.sliced else "")


def build_merge(case: MergeCase, base: str, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exps of a case."""
    draw = torch.Generator().manual_seed(case.seed)
    rows = (case.num_parts, case.num_tokens, case.num_kv_heads)
    outputs = torch.randn(*rows, case.head_size, generator=draw)
    lses = torch.randn(rows, generator=draw)
    if case.size == "equal":
        lses = lses[:1].expand(rows).clone()
    lses *= {"apart": 20.0, "far": 3000.0}.get(case.size, 1.0)
    lses += {"large": 9000.0, "low": -60_000.0}.get(case.size, 0.0)
    if base == "2":
        lses /= math.log(2)
    gone = torch.rand(rows, generator=draw) * 4 < case.empty
    lses[gone] = float("-inf")
    outputs[gone] = float("nan") if case.poison else 0.5
    outputs = outputs.to(getattr(torch, case.dtype)).to(device)
    lses = lses.to(device)
    if case.sliced:
        # Heads padded, as a backend leaves them; tokens and heads of the sums exchanged.
        parts, tokens, heads, size = outputs.shape
        head = size + 8
        strides = (tokens * heads * head, heads * head, head, 1)
        outputs = restrided(outputs, strides, 0, parts * tokens * heads * head)
        lses = lses.transpose(1, 2).contiguous().transpose(1, 2)
    return outputs, lses


@dataclass(frozen=True, slots=True)
class ExpectedMerge:
    """The expected output and log-sum-exp, and how far off each may be; float64, on the CPU."""

    output: Tensor
    bound: Tensor
    lse: Tensor
    lse_bound: Tensor

    def wrong(self, output: Tensor, lse: Tensor | None) -> tuple[str | None, float]:
        """A sentence for the worst element if it is too far off, and the worst ratio."""
        ratio = _ratio(output, self.output, self.bound)
        worst = float(ratio.max())
        if worst > 1:
            place = torch.unravel_index(ratio.argmax(), ratio.shape)
            token, head, element = (int(i) for i in place)
            return (
                f"token {token}, head {head}, element {element} is "
                f"{float(output[token, head, element]):.6g} and should be "
                f"{float(self.output[token, head, element]):.6g} within "
                f"{float(self.bound[token, head, element]):.2g}"
            ), worst
        if lse is None:
            return None, worst
        ratio = _ratio(lse, self.lse, self.lse_bound)
        if float(ratio.max()) > 1:
            token, head = (int(i) for i in torch.unravel_index(ratio.argmax(), ratio.shape))
            return (
                f"the log-sum-exp of token {token}, head {head} is {float(lse[token, head]):.9g} "
                f"and should be {float(self.lse[token, head]):.9g} within "
                f"{float(self.lse_bound[token, head]):.2g}"
            ), float(ratio.max())
        return None, max(worst, float(ratio.max()))


def _ratio(found: Tensor, expected: Tensor, bound: Tensor) -> Tensor:
    found = found.detach().cpu().double()
    error = torch.where(found == expected, 0.0, (found - expected).abs())
    return torch.nan_to_num(error / bound, nan=float("inf"), posinf=float("inf"))


def merged(outputs: Tensor, lses: Tensor, base: str) -> ExpectedMerge:
    """What parts must give, in float64."""
    parts = outputs.cpu().double()
    unit = math.log(2) if base == "2" else 1.0
    sums = lses.cpu().double() * unit
    has_keys = sums > float("-inf")
    lse = torch.logsumexp(sums, 0)
    weights = torch.exp(sums - lse).masked_fill(~has_keys, 0.0)
    parts = parts.masked_fill(~has_keys[..., None], 0.0)
    output = (weights[..., None] * parts).sum(0)
    absolute = (weights[..., None] * parts.abs()).sum(0)
    largest = sums.abs().masked_fill(~has_keys, 0.0).amax(0)
    count = len(parts)
    error = FLOAT32 * ((4 + 2 * count**0.5) * largest + count + 16)
    bound = 1.01 * ROUNDOFF[outputs.dtype] * output.abs() + 2 * error[..., None] * absolute
    return ExpectedMerge(output, bound + SMALLEST[outputs.dtype], lse / unit, error / unit)


def _call(target: FunctionTarget, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the target returns. Raises BadOutputError, and whatever the target raises."""
    result = target(outputs, lses)
    if target.declaration.lse == "absent":
        result = (result, None)
    if not isinstance(result, tuple) or len(result) != 2:
        raise BadOutputError(f"returned a {type(result).__name__}, not output and log-sum-exp")
    output, lse = result
    for tensor, like in ((output, outputs[0]), (lse, lses[0])):
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor) or tensor.shape != like.shape:
            raise BadOutputError(f"returned no tensor of shape {tuple(like.shape)}")
        if tensor.dtype != like.dtype:
            raise BadOutputError(f"returned {tensor.dtype} for {like.dtype}")
    return output, lse


def _judged(target: FunctionTarget, outputs: Tensor, lses: Tensor, words: str = "") -> Outcome:
    expected = merged(outputs, lses, target.declaration.base)
    try:
        wrong, ratio = expected.wrong(*_call(target, outputs, lses))
    except BadOutputError as error:
        return Outcome(1, str(error))
    return Outcome(1, wrong and words + wrong, ratio)


def _dense(target: FunctionTarget, case: MergeCase) -> Outcome:
    return _judged(target, *build_merge(case, target.declaration.base, target.device))


def _sources(target: FunctionTarget, case: MergeCase) -> Outcome:
    now = build_merge(case, target.declaration.base, target.device)
    before = build_merge(case, target.declaration.base, target.device)
    _call(target, *now)
    for name, old, new in zip(("outputs", "lses"), before, now, strict=True):
        if changed_bytes(old, new):
            return Outcome(1, f"{name} was changed by the call")
    return Outcome(1)


def _order(target: FunctionTarget, case: MergeCase) -> Outcome:
    """Parts from the last give what parts from the first give, each within the bound."""
    outputs, lses = build_merge(case, target.declaration.base, target.device)
    return _judged(target, outputs.flip(0), lses.flip(0), "with the parts from the last ")


def _alone(target: FunctionTarget, case: MergeCase) -> Outcome:
    """One part is itself: alone, or beside one without keys."""
    outputs, lses = build_merge(case, target.declaration.base, target.device)
    compared = 0
    has_empty = len(lses) > 1 and target.declaration.empty_part != "absent"
    for place in (0, 1) if has_empty else ():
        beside = lses[:2].clone()
        beside[place] = float("-inf")
        outcome = _judged(target, outputs[:2], beside, "beside a part without keys ")
        compared += outcome.compared
        if outcome.wrong:
            return outcome
    if target.declaration.parts == "any":
        outcome = _judged(target, outputs[:1], lses[:1], "with one part alone ")
        return replace(outcome, compared=compared + 1, ratio=None)
    return Outcome(compared)


def _tree(target: FunctionTarget, case: MergeCase) -> Outcome:
    """Two parts, merged and then merged with the rest, are what all at once are."""
    if case.num_parts < 3 or target.declaration.lse == "absent":
        return Outcome(0)
    outputs, lses = build_merge(case, target.declaration.base, target.device)
    output, lse = _call(target, outputs[:2], lses[:2])
    assert lse is not None
    rest = torch.cat([output[None], outputs[2:]]), torch.cat([lse[None], lses[2:]])
    expected = merged(outputs, lses, target.declaration.base)
    # The output of the first two is rounded to its type, and both of its numbers have its error.
    first = merged(outputs[:2], lses[:2], target.declaration.base)
    more = first.bound + first.lse_bound[..., None] * 4 * outputs.nan_to_num(0.0).abs().amax(0)
    loose = replace(
        expected, bound=expected.bound + more, lse_bound=expected.lse_bound + first.lse_bound
    )
    wrong, _ = loose.wrong(*_call(target, *rest))
    return Outcome(1, wrong and f"merged in a tree {wrong}")


def _shifted(target: FunctionTarget, case: MergeCase) -> Outcome:
    """The same number added to all log-sum-exps moves the merged one and nothing else."""
    outputs, lses = build_merge(case, target.declaration.base, target.device)
    return _judged(target, outputs, lses + 4096.0, "with 4,096 added to all log-sum-exps ")


def _draw(choose: Choose, allowed: FunctionDeclaration) -> MergeCase:
    """A small case that the target supports."""
    empty = (0, 1, 2, 4)[choose(4)] if allowed.empty_part != "absent" else 0
    if empty == 4 and allowed.all_empty == "undefined":
        empty = 0
    return MergeCase(
        seed=choose(1 << 20),
        dtype=pick(choose, allowed.dtypes),
        num_kv_heads=1 + choose(5),
        head_size=pick(choose, allowed.head_sizes),
        num_parts=2 if allowed.parts == "two" else 1 + choose(8),
        num_tokens=1 + choose(6),
        size=pick(choose, SIZES),
        empty=empty,
        poison=allowed.empty_part == "any" and choose(2) == 1,
        sliced=allowed.strides == "any" and choose(3) == 2,
    )


def _many_tokens(choose: Choose, allowed: FunctionDeclaration) -> MergeCase:
    case = _draw(choose, allowed)
    return replace(case, num_tokens=300 - choose(40), head_size=min(allowed.head_sizes))


def _many_parts(choose: Choose, allowed: FunctionDeclaration) -> MergeCase:
    case = _draw(choose, allowed)
    return replace(case, num_parts=2 if allowed.parts == "two" else 64 + choose(10))


def _many_heads(choose: Choose, allowed: FunctionDeclaration) -> MergeCase:
    return replace(_draw(choose, allowed), num_kv_heads=33)


def _largest_head(choose: Choose, allowed: FunctionDeclaration) -> MergeCase:
    return replace(_draw(choose, allowed), head_size=max(allowed.head_sizes))


_LARGE: tuple[Draw, ...] = (_many_tokens, _many_parts, _many_heads, _largest_head)


def _smaller(case: MergeCase, declared: FunctionDeclaration) -> Iterator[MergeCase]:
    plain: dict[str, Any] = {
        "num_tokens": 1, "num_kv_heads": 1, "size": "near", "empty": 0, "poison": False,
        "sliced": False, "dtype": declared.dtypes[0], "num_parts": 2, "seed": 0,
    }  # fmt: skip
    yield from smaller_values(case, plain, {"head_size": declared.head_sizes})
    for name in ("num_tokens", "num_kv_heads", "num_parts"):
        count = getattr(case, name)
        if name == "num_parts" and declared.parts == "two":
            continue
        for fewer in {count // 2, count - count // 8 - 1, count - 1}:
            if 0 < fewer < count:
                rows: dict[str, Any] = {name: fewer}
                yield replace(case, **rows)


def _not_covered(target: FunctionTarget) -> list[str]:
    rows = target.declaration
    return [f"{name}: {value}" for name, value in
            (("empty_part", rows.empty_part), ("all_empty", rows.all_empty),
             ("strides", rows.strides)) if not rows.promises(name)]  # fmt: skip


def _check(name: str, sentence: str, run: Any, **more: Any) -> Check:
    severity = more.pop("severity", Severity.WRONG_DATA_OF_ONES_OWN)
    return Check(name=name, sentence=sentence, severity=severity, run=run, **more)


_CHECKS = (
    _check("merged", "output and log-sum-exp are those of all parts, within the bound", _dense),
    _check("inputs", "outputs and log-sum-exps of the parts are not written", _sources),
    _check("part order", "the order of the parts does not matter", _order),
    _check("one part", "one part alone, or beside one without keys, is itself", _alone),
    _check("shift", "what is added to all log-sum-exps changes no weight", _shifted),
    _check("tree", "parts merged one after another are what all at once are", _tree,
           applies=lambda t: t.declaration.lse == "returned" and t.declaration.parts == "any"),
)  # fmt: skip

MERGE = Kind(
    name="merge",
    checks={check.name: check for check in _CHECKS},
    read_case=MergeCase.from_json,
    in_order=order_of("merged", _draw, _LARGE),
    smaller=_smaller,
    work=lambda case: 1 + case.num_tokens * case.num_kv_heads // 8,
    precision=lambda case: str(case.dtype),
    why_not=why_not,
    not_covered=_not_covered,
)
