"""A merge in torch, cut into steps, its families of faults, and correct oddities."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.fault_family import FaultFamily, sized
from poolproof.kernels.functions.merge import MERGE
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.functions.torch_storage import function_target

__all__ = ["MERGE_FAMILIES", "ODD_MERGES", "TorchMerge"]


class TorchMerge:
    """A merge, in float32."""

    def __call__(self, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        """The target's function."""
        base = self.base(lses)
        weights = self.weights(lses, base)
        total = self.total(weights)
        parts = self.parts(outputs, lses).float()
        output = (weights[..., None] * parts).sum(0) / total.clamp(min=1e-30)[..., None]
        return self.stored(output, outputs), self.lse(base, total)

    def base(self, lses: Tensor) -> Tensor:
        """What is subtracted from every log-sum-exp."""
        return torch.nan_to_num(lses.amax(0), neginf=0.0)

    def weights(self, lses: Tensor, base: Tensor) -> Tensor:
        """The weights of the parts, not normalised."""
        return torch.exp(lses - base)

    def total(self, weights: Tensor) -> Tensor:
        """Their sum."""
        return weights.sum(0)

    def parts(self, outputs: Tensor, lses: Tensor) -> Tensor:
        """The outputs; zeros where a part has no keys."""
        return outputs.masked_fill((lses == float("-inf"))[..., None], 0.0)

    def stored(self, output: Tensor, outputs: Tensor) -> Tensor:
        """The output in its type."""
        return output.to(outputs.dtype)

    def lse(self, base: Tensor, total: Tensor) -> Tensor:
        """The merged log-sum-exp."""
        return base + torch.log(total)

    def target(self, name: str, **declared: Any) -> FunctionTarget:
        """This function as a target."""
        return function_target(MERGE, self, name, **declared)


class _Base(TorchMerge):
    """Something else is subtracted."""

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        self.step = step

    def base(self, lses: Tensor) -> Tensor:
        return torch.nan_to_num(self.step(lses), neginf=0.0)


class _Weights(TorchMerge):
    """The weights are others."""

    def __init__(self, step: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.step = step

    def weights(self, lses: Tensor, base: Tensor) -> Tensor:
        return self.step(lses, base)


class _Empty(TorchMerge):
    """Parts without keys are not kept out, or rows without any give no zeros."""

    def __init__(self, mistake: str) -> None:
        self.mistake = mistake

    def base(self, lses: Tensor) -> Tensor:
        if self.mistake == "minus infinity minus itself":
            return lses.amax(0)
        return super().base(lses)

    def weights(self, lses: Tensor, base: Tensor) -> Tensor:
        if self.mistake == "-10,000 stands for them":
            lses = lses.clamp(min=-10_000)
        if self.mistake == "they count as zero":
            lses = torch.nan_to_num(lses, neginf=0.0)
        return torch.exp(lses - base)

    def parts(self, outputs: Tensor, lses: Tensor) -> Tensor:
        return outputs if "weight" in self.mistake else super().parts(outputs, lses)

    def lse(self, base: Tensor, total: Tensor) -> Tensor:
        if self.mistake == "their sums are 1e-30":
            total = total.clamp(min=1e-30)
        return super().lse(base, total)


class _Lse(TorchMerge):
    """The merged log-sum-exp is another number."""

    def __init__(self, step: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.step = step

    def lse(self, base: Tensor, total: Tensor) -> Tensor:
        return self.step(base, total)


class _Late(TorchMerge):
    """Parts, tokens, heads or elements from some number on are not merged."""

    def __init__(self, dimension: int, most: int) -> None:
        self.dimension, self.most = dimension, most

    def __call__(self, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        if self.dimension == 0:
            return super().__call__(outputs[: self.most], lses[: self.most])
        output, lse = super().__call__(outputs, lses)
        late = [slice(None)] * 3
        late[self.dimension - 1] = slice(self.most, None)
        output[tuple(late)] = outputs[0][tuple(late)]
        return output, lse


class _Packed(TorchMerge):
    """Strides are made up."""

    def __init__(self, which: str) -> None:
        self.which = which

    def __call__(self, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        if "outputs" in self.which:
            outputs = outputs.as_strided(outputs.shape, _packed_strides(outputs))
        if "sums" in self.which:
            lses = lses.as_strided(lses.shape, _packed_strides(lses))
        return super().__call__(outputs, lses)


def _packed_strides(tensor: Tensor) -> tuple[int, ...]:
    lengths = tensor.shape
    return tuple(math.prod(lengths[place + 1 :]) for place in range(len(lengths)))


class _InPlace(TorchMerge):
    """Writes its inputs."""

    def __init__(self, which: str) -> None:
        self.which = which

    def __call__(self, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        output, lse = super().__call__(outputs, lses)
        if self.which == "the output over the first part's":
            outputs[0] = output
        else:
            lses[0] = lse
        return output, lse


class _HalfOutput(TorchMerge):
    """Weighted parts are added up in the output's type, or in a half type."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def parts(self, outputs: Tensor, lses: Tensor) -> Tensor:
        return super().parts(outputs, lses).to(self.dtype)


MERGE_FAMILIES = (
    FaultFamily("GB", "{} is subtracted", (
        ("nothing", partial(_Base, lambda lses: lses[0] * 0)),
        ("the first part's", partial(_Base, lambda lses: lses[0])),
        ("the mean", partial(_Base, lambda lses: lses.clamp(min=-3e4).mean(0))),
        ("at most 80", partial(_Base, lambda lses: lses.amax(0).clamp(max=80))),
        ("at least -80", partial(_Base, lambda lses: lses.amax(0).clamp(min=-80))),
    ), ("merged",)),
    FaultFamily("GW", "weights: {}", (
        ("base 2 for base e", partial(_Weights, lambda lses, base: torch.exp2(lses - base))),
        ("all alike", partial(_Weights, lambda lses, _: (lses > float("-inf")).float())),
        ("in bfloat16", partial(
            _Weights, lambda lses, base: torch.exp(lses - base).bfloat16().float())),
        ("log-sum-exps in float16", partial(
            _Weights, lambda lses, base: torch.exp(lses.half().float() - base))),
        ("differences of at most 10", partial(
            _Weights, lambda lses, base: torch.exp((lses - base).clamp(min=-10)))),
        ("squared", partial(_Weights, lambda lses, base: torch.exp(2 * (lses - base)))),
    ), ("merged",), thread="https://github.com/flashinfer-ai/flashinfer/issues/58"),
    FaultFamily("GE", "parts without keys: {}", tuple(
        (mistake, partial(_Empty, mistake)) for mistake in (
            "minus infinity minus itself", "-10,000 stands for them", "they count as zero",
            "a weight of 0 removes them", "their sums are 1e-30")), ("merged",)),
    FaultFamily("GL", "the merged log-sum-exp: {}", (
        ("the largest part's", partial(_Lse, lambda base, _: base)),
        ("without the largest", partial(_Lse, lambda _, total: torch.log(total))),
        ("in base 2", partial(_Lse, lambda base, total: (base + torch.log(total)) / math.log(2))),
        ("the sum itself", partial(_Lse, lambda base, total: base + total)),
        ("in bfloat16", partial(
            _Lse, lambda base, total: (base + torch.log(total)).bfloat16().float())),
    ), ("merged",)),
    FaultFamily("GP", "parts from number {} on are dropped",
                   sized(partial(_Late, 0), 2, 4, 7, 63), ("merged",)),
    FaultFamily("GT", "tokens from number {} on are the first part's",
                   sized(partial(_Late, 1), 4, 64, 128, 256), ("merged",)),
    FaultFamily("GH", "heads from number {} on are the first part's",
                   sized(partial(_Late, 2), 2, 8, 16, 32), ("merged",)),
    FaultFamily("GD", "elements of a head from number {} on are the first part's",
                   sized(partial(_Late, 3), 16, 64, 128, 255), ("merged",)),
    FaultFamily("GS", "strides are made up: {} packed", tuple(
        (which, partial(_Packed, which)) for which in ("outputs", "sums", "outputs and sums")),
        ("merged",)),
    FaultFamily("GI", "{} is written", tuple(
        (which, partial(_InPlace, which)) for which in (
            "the output over the first part's", "the sum over the first part's")), ("inputs",)),
    FaultFamily("GR", "outputs are rounded before they are weighted: {}", (
        ("bfloat16", partial(_HalfOutput, torch.bfloat16)),
        ("float16", partial(_HalfOutput, torch.float16)),
    ), ("merged",)),
)  # fmt: skip
"""Each is refused with every one of its constants."""


class _OneByOne(TorchMerge):
    """Merges part after part, in float32."""

    def __init__(self, *, backwards: bool = False) -> None:
        self.backwards = backwards

    def __call__(self, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        order = list(range(len(lses)))
        order = order[::-1] if self.backwards else order
        parts = self.parts(outputs, lses).float()
        output, lse = parts[order[0]], lses[order[0]]
        for number in order[1:]:
            both = torch.stack([output, parts[number]])
            output, lse = super().__call__(both, torch.stack([lse, lses[number]]))
        return output.to(outputs.dtype), lse.clone()


class _Base2(TorchMerge):
    """Takes log-sum-exps in base 2, as it declares."""

    def weights(self, lses: Tensor, base: Tensor) -> Tensor:
        return torch.exp2(lses - base)

    def lse(self, base: Tensor, total: Tensor) -> Tensor:
        return base + torch.log2(total)


class _ThroughBase2(TorchMerge):
    """Brings log-sum-exps to base 2 and back, before anything is subtracted."""

    def __call__(self, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        output, lse = _Base2()(outputs, lses * math.log2(math.e))
        return output, lse * math.log(2)


class _Double(TorchMerge):
    """In float64."""

    def weights(self, lses: Tensor, base: Tensor) -> Tensor:
        return torch.exp(lses.double() - base)

    def lse(self, base: Tensor, total: Tensor) -> Tensor:
        return (base + torch.log(total)).float()


class _Normalised(TorchMerge):
    """Weights from the merged log-sum-exp, without a quotient."""

    def __call__(self, outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        lse = torch.logsumexp(lses, 0)
        weights = torch.exp(lses - torch.nan_to_num(lse, neginf=0.0))
        output = (weights[..., None] * self.parts(outputs, lses).float()).sum(0)
        return output.to(outputs.dtype), lse


class _OutputAlone(TorchMerge):
    """Returns no log-sum-exp, as it declares."""

    def __call__(self, outputs: Tensor, lses: Tensor) -> Any:
        return super().__call__(outputs, lses)[0]


class _Pairs(TorchMerge):
    """Two parts, finite ones, as it declares: 0 times what an empty part holds."""

    def parts(self, outputs: Tensor, lses: Tensor) -> Tensor:
        assert len(outputs) == len(lses) == 2
        return outputs


ODD_MERGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "merge: part after part": (_OneByOne(), {}),
    "merge: part after part, from the last": (_OneByOne(backwards=True), {}),
    "merge: base 2": (_Base2(), {"base": "2"}),
    "merge: through base 2": (_ThroughBase2(), {}),
    "merge: float64": (_Double(), {}),
    "merge: normalised weights": (_Normalised(), {}),
    "merge: no log-sum-exp": (_OutputAlone(), {"lse": "absent"}),
    "merge: two finite parts": (_Pairs(), {"parts": "two", "empty_part": "finite"}),
}
"""Each with what it does not promise."""
