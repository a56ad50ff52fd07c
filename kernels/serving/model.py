"""A small transformer with random weights, and a float64 run of it to compare with.

Two layers for each cache group, because what a second layer stores depends on everything that the
first one read: a block with the right tokens under the wrong parents has the right keys in the
first layer and wrong ones in the second. Layers of a group may see a sliding window.

What tells prefixes apart besides their tokens (an adapter, a salt, an image) moves the embeddings
of the positions that it covers. No real model uses a salt so; here it represents the tenant, whose
keys and values no other tenant may read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from poolproof.contract.content import TokenChain

__all__ = ["LAYERS", "TinyModel"]

LAYERS = 2
VOCABULARY = 8
POSITIONS = 256


@dataclass(frozen=True, slots=True)
class TinyModel:
    """Weights in float64, a matrix for each layer.

    `windows` has the sliding window of each group, None for full attention. Layer n belongs to
    group n % len(windows); there are `LAYERS` of each.
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    embedding: Tensor
    places: Tensor
    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    windows: tuple[int | None, ...] = (None,)

    @classmethod
    def random(
        cls,
        num_heads: int,
        num_kv_heads: int,
        head_size: int,
        seed: int,
        windows: tuple[int | None, ...] = (None,),
    ) -> TinyModel:
        """Weights that keep numbers near 1 through all layers."""
        draw = torch.Generator().manual_seed(seed)
        width, narrow = num_heads * head_size, num_kv_heads * head_size

        def weights(rows: int, columns: int) -> tuple[Tensor, ...]:
            return tuple(
                torch.randn(rows, columns, generator=draw).double() * (2.0 / rows**0.5)
                for _ in range(LAYERS * len(windows))
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
            windows,
        )

    @property
    def num_layers(self) -> int:
        """Layers of all groups together."""
        return len(self.queries)

    def window_of(self, layer: int) -> int | None:
        """How many positions a query of the layer sees, including its own; None means all."""
        return self.windows[layer % len(self.windows)]

    def embed(self, chain: TokenChain, first: int, end: int, dtype: torch.dtype) -> Tensor:
        """The input of the first layer at positions `first` to `end` - 1: (tokens, width)."""
        rows = torch.stack([self._token(token) for token in chain.tokens[first:end]])
        # Beyond POSITIONS the places come again; no two slots of a test are that far apart.
        rows = rows + self.places[torch.arange(first, end) % POSITIONS]
        for kind, value, start, stop in chain.extra_keys() or ():
            begin = max(start, first)
            until = end if stop is None else min(stop, end)
            if begin < until:
                rows[begin - first : until - first] += self._named(f"{kind} {value!r}")
        return rows.to(dtype)

    def project(self, layer: int, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (tokens, heads, head_size)."""
        normal = states / states.pow(2).mean(-1, keepdim=True).sqrt()
        return (
            self._heads(normal, self.queries[layer], self.num_heads),
            self._heads(normal, self.keys[layer], self.num_kv_heads),
            self._heads(normal, self.values[layer], self.num_kv_heads),
        )

    def after(self, layer: int, states: Tensor, attention: Tensor) -> Tensor:
        """The output of the layer: (tokens, width)."""
        return states + attention.flatten(1) @ self.outputs[layer].to(states.dtype)

    def dense(self, chain: TokenChain) -> Tensor:
        """The output of the last layer for each token, in float64, without any cache."""
        count = len(chain.tokens)
        states = self.embed(chain, 0, count, torch.float64)
        group = self.num_heads // self.num_kv_heads
        positions = torch.arange(count)
        distance = positions[:, None] - positions[None, :]
        for layer in range(self.num_layers):
            window = self.window_of(layer)
            hidden = (distance < 0) | (distance >= (count if window is None else window))
            queries, keys, values = self.project(layer, states)
            keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
            scores = torch.einsum("qhd,khd->hqk", queries, keys) * self.head_size**-0.5
            weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=2)
            states = self.after(layer, states, torch.einsum("hqk,khd->qhd", weights, values))
        return states

    def _token(self, token: int) -> Tensor:
        if 0 <= token < VOCABULARY:
            return self.embedding[token]
        return self._named(f"token {token}")

    def _named(self, name: str) -> Tensor:
        """A row that represents a name, the same in every process."""
        digest = hashlib.blake2b(name.encode(), digest_size=7).digest()
        draw = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
        return torch.randn(self.embedding.shape[1], generator=draw).double()

    def _heads(self, states: Tensor, weights: Tensor, count: int) -> Tensor:
        return (states @ weights.to(states.dtype)).unflatten(1, (count, self.head_size))
