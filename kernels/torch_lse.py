"""Paged attention in torch that returns its log-sum-exps too, and the faults of these.

A kernel that works on a part of the keys (a split, a shared prefix, another device's share) gives
the logarithm of its softmax's sum with the output, so that parts can be merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.fault_family import FaultFamily, sized
from poolproof.kernels.target import KernelTarget
from poolproof.kernels.torch_attention import Rows, TorchAttention

__all__ = ["LSE_FAMILIES", "TorchLse"]

TENSORS = (
    "query", "key_cache", "value_cache", "block_tables", "kv_lengths", "query_lengths",
)  # fmt: skip


class TorchLse(TorchAttention):
    """Attention with log-sum-exps, (num_tokens, num_heads), in base e."""

    def __call__(self, *tensors: Tensor, out: Tensor | None = None, **options: Any) -> Any:
        """The target's function: output and log-sum-exps."""
        output = super().__call__(*tensors, out=out, **options)
        named: dict[str, Any] = dict(zip(TENSORS, tensors, strict=True))
        batch = self.taken(PagedBatch(**named, options=self.options(**options)))
        lse = torch.full(output.shape[:2], self.without_keys())
        for sequence in self.sequences(batch):
            if sequence.query_length and sequence.kv_length:
                rows = self.rows(batch, sequence)
                scores = self.scores(rows, self.loaded(rows, batch.key_cache))
                lse[sequence.rows] = self.lse(rows, scores).flatten(0, 1).T.to(lse.dtype)
        return output, lse

    def target(self, name: str, **declared: Any) -> KernelTarget:
        """This kernel as a target."""
        return super().target(name, **{"lse": "e", **declared})

    def without_keys(self) -> float:
        """The log-sum-exp of a query without keys."""
        return float("-inf")

    def lse(self, rows: Rows, scores: Tensor) -> Tensor:
        """Log-sum-exps: (num_kv_heads, group, queries)."""
        sums, sinks = torch.logsumexp(scores, -1), self.sinks(rows)
        return sums if sinks is None else torch.logaddexp(sums, sinks.expand_as(sums))


class _Changed(TorchLse):
    """The right log-sum-exp becomes another number."""

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        self.step = step

    def lse(self, rows: Rows, scores: Tensor) -> Tensor:
        return self.step(super().lse(rows, scores))


class _OfOthers(TorchLse):
    """Something else is added up: `step` makes it of the rows and their scores."""

    def __init__(self, step: Callable[[Rows, Tensor], Tensor]) -> None:
        self.step = step

    def lse(self, rows: Rows, scores: Tensor) -> Tensor:
        return super().lse(rows, self.step(rows, scores))


class _WithoutSinks(TorchLse):
    """The sink counts in the output and not in the log-sum-exp, or with something added to it."""

    def __init__(self, step: Callable[[Tensor], Tensor] | None = None) -> None:
        self.step = step

    def lse(self, rows: Rows, scores: Tensor) -> Tensor:
        sums, sinks = torch.logsumexp(scores, -1), self.sinks(rows)
        if sinks is None or self.step is None:
            return sums
        return torch.logaddexp(sums, self.step(sinks).expand_as(sums))


class _Empty(TorchLse):
    """A query without keys gets another number than minus infinity."""

    def __init__(self, number: float) -> None:
        self.number = number

    def without_keys(self) -> float:
        return self.number


class _Places(TorchLse):
    """The log-sum-exps stand in other places."""

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        self.step = step

    def __call__(self, *tensors: Tensor, out: Tensor | None = None, **options: Any) -> Any:
        output, lse = super().__call__(*tensors, out=out, **options)
        return output, self.step(lse)


def _unscaled(rows: Rows, scores: Tensor) -> Tensor:
    return scores / rows.batch.options.scale


def _late_keys(most: int, _: Rows, scores: Tensor) -> Tensor:
    return scores[..., :most]


def _late_keys_from_end(most: int, _: Rows, scores: Tensor) -> Tensor:
    return scores[..., -most:]


def _from_key(number: int) -> _OfOthers:
    return _OfOthers(partial(_late_keys, number))


def _last_keys(number: int) -> _OfOthers:
    return _OfOthers(partial(_late_keys_from_end, number))


def _of_maximum(_: Rows, scores: Tensor) -> Tensor:
    return scores.amax(-1, keepdim=True)


def _without_maximum(_: Rows, scores: Tensor) -> Tensor:
    return scores - scores.amax(-1, keepdim=True).nan_to_num(neginf=0.0)


def _in_type(dtype: torch.dtype, sums: Tensor) -> Tensor:
    return sums.to(dtype).float()


LSE_FAMILIES = (
    FaultFamily("AB", "the log-sum-exp is {}", (
        ("in base 2", partial(_Changed, lambda sums: sums / math.log(2))),
        ("in base 10", partial(_Changed, lambda sums: sums / math.log(10))),
        ("the sum itself", partial(_Changed, torch.exp)),
        ("of the other sign", partial(_Changed, torch.neg)),
        ("half as large", partial(_Changed, lambda sums: sums / 2)),
        ("2 % too large", partial(_Changed, lambda sums: sums * 1.02)),
    ), ("dense", "split keys")),
    FaultFamily("AR", "the log-sum-exp is kept in {}", (
        ("float16", partial(_Changed, partial(_in_type, torch.float16))),
        ("bfloat16", partial(_Changed, partial(_in_type, torch.bfloat16))),
        ("steps of 1/256", partial(_Changed, lambda sums: (sums * 256).round() / 256)),
        ("steps of 1/1024", partial(_Changed, lambda sums: (sums * 1024).round() / 1024)),
    )),
    FaultFamily("AS", "the log-sum-exp is that of {}", (
        ("scores before the scale", partial(_OfOthers, _unscaled)),
        ("the largest score alone", partial(_OfOthers, _of_maximum)),
        ("scores less their maximum, which is not added again",
         partial(_OfOthers, _without_maximum)),
        ("the first query of its sequence", partial(
            _OfOthers, lambda _, scores: scores[:, :, :1].expand_as(scores))),
        ("the first head of its group", partial(
            _OfOthers, lambda _, scores: scores[:, :1].expand_as(scores))),
        ("the first head of the cache", partial(
            _OfOthers, lambda _, scores: scores[:1].expand_as(scores))),
    )),
    FaultFamily("AK", "the log-sum-exp ends at key {}", sized(_from_key, 16, 32, 64, 512, 1024)),
    FaultFamily("AT", "the log-sum-exp is that of the last {} keys",
                sized(_last_keys, 16, 32, 64, 512, 1024)),
    FaultFamily("AI", "a sink in the log-sum-exp {}", (
        ("is missing", _WithoutSinks),
        ("has the other sign", partial(_WithoutSinks, torch.neg)),
        ("counts twice", partial(_WithoutSinks, lambda sinks: sinks + math.log(2))),
        ("is that of the first head", partial(
            _WithoutSinks, lambda sinks: sinks[:1, :1].expand_as(sinks))),
    )),
    FaultFamily("AE", "the log-sum-exp of a query without keys is {}", (
        ("0", partial(_Empty, 0.0)),
        ("plus infinity", partial(_Empty, float("inf"))),
        ("NaN", partial(_Empty, float("nan"))),
        ("-10,000", partial(_Empty, -10_000.0)),
        ("the smallest float32", partial(_Empty, torch.finfo(torch.float32).min)),
    ), ("empty rows",)),
    FaultFamily("AP", "log-sum-exps stand in other places: {}", (
        ("heads from the last", partial(_Places, lambda sums: sums.flip(1))),
        ("rows from the last", partial(_Places, lambda sums: sums.flip(0))),
        ("heads before tokens", partial(_Places, lambda sums: sums.T.reshape(sums.shape))),
        ("one row later", partial(_Places, lambda sums: sums.roll(1, 0))),
    )),
)  # fmt: skip
"""The mistakes; a quick run refuses each."""
