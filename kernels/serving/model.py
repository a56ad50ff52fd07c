"""A transformer of two layers with random weights, small enough to run in float64 beside itself.

Two layers, because what the second one stores depends on everything that the first one read: a
block with the right tokens under the wrong parents has the right keys in the first layer and wrong
ones in the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["LAYERS", "TinyModel"]

LAYERS = 2
VOCABULARY = 8
POSITIONS = 256


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Weights in float64; `single` gives what an engine computes with."""

    num_heads: int
    num_kv_heads: int
    head_size: int
    embedding: Tensor
    places: Tensor
    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @classmethod
    def random(cls, num_heads: int, num_kv_heads: int, head_size: int, seed: int) -> TinyModel:
        """Weights that keep numbers near 1 through both layers."""
        draw = torch.Generator().manual_seed(seed)
        width, narrow = num_heads * head_size, num_kv_heads * head_size

        def weights(rows: int, columns: int) -> tuple[Tensor, ...]:
            return tuple(
                torch.randn(rows, columns, generator=draw).double() * (2.0 / rows**0.5)
                for _ in range(LAYERS)
            )

        return cls(
            num_heads,
            num_kv_heads,
            head_size,
            torch.randn(VOCABULARY, width, generator=draw).double(),
            torch.randn(POSITIONS, width, generator=draw).double() * 0.5,
            weights(width, width),
            weights(width, narrow),
            weights(width, narrow),
            weights(width, width),
        )

    def embed(self, tokens: list[int], first_position: int, dtype: torch.dtype) -> Tensor:
        """What enters the first layer: (tokens, width)."""
        rows = self.embedding[torch.tensor(tokens, dtype=torch.int64)]
        return (rows + self.places[first_position : first_position + len(tokens)]).to(dtype)

    def project(self, layer: int, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (tokens, heads, head_size)."""
        normal = states / states.pow(2).mean(-1, keepdim=True).sqrt()
        return (
            self._heads(normal, self.queries[layer], self.num_heads),
            self._heads(normal, self.keys[layer], self.num_kv_heads),
            self._heads(normal, self.values[layer], self.num_kv_heads),
        )

    def after(self, layer: int, states: Tensor, attention: Tensor) -> Tensor:
        """What leaves the layer: (tokens, width)."""
        return states + attention.flatten(1) @ self.outputs[layer].to(states.dtype)

    def dense(self, tokens: list[int]) -> Tensor:
        """What leaves the last layer for each token, in float64, without any cache."""
        states = self.embed(tokens, 0, torch.float64)
        group = self.num_heads // self.num_kv_heads
        ahead = torch.ones(len(tokens), len(tokens), dtype=torch.bool).triu(1)
        for layer in range(LAYERS):
            queries, keys, values = self.project(layer, states)
            keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", queries, keys) * self.head_size**-0.5
            weights = torch.softmax(scores.masked_fill(ahead, float("-inf")), dim=2)
            states = self.after(layer, states, torch.einsum("hqk,khd->qhd", weights, values))
        return states

    def _heads(self, states: Tensor, weights: Tensor, count: int) -> Tensor:
        return (states @ weights.to(states.dtype)).unflatten(1, (count, self.head_size))
