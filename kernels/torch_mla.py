"""Multi-head latent attention over pages, in torch, as a reference to read; and its faults.

A slot of the cache has one key, which all query heads share: a latent part, of which a model makes
its keys and values, and a part with rotary positions. With the projections absorbed into query and
output (DeepSeek-V2, 2.1) a score is the sum of both parts' products, and the latent part is the
value: the output is (num_tokens, num_heads, size of the latent part). So the value cache is a view
of the key cache, and a kernel may leave it alone. The scale is that of the heads before they were
absorbed, not head_size ** -0.5: it always comes from the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.fault_family import FaultFamily, sized
from poolproof.kernels.target import KernelTarget
from poolproof.kernels.torch_attention import Rows, TorchAttention

__all__ = ["MLA_FAMILIES", "TorchMla", "mla_target"]

KEY_SIZES = (24, 40, 80, 576)
LATENT_SIZES = (16, 32, 64, 512)


class TorchMla(TorchAttention):
    """MLA with the projections absorbed; only the key cache is read."""

    title = "poolproof.kernels.torch_mla"

    def target(self, name: str, **declared: Any) -> KernelTarget:
        """This kernel as a target."""
        sizes = {"head_sizes": KEY_SIZES, "value_sizes": LATENT_SIZES, "latent": True}
        return super().target(name, **{**sizes, **declared})

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        """Of the latent and the rotary part: (1, num_heads, queries, num_keys)."""
        size = rows.batch.value_size
        latent = torch.einsum("hgqd,hkd->hgqk", rows.query[..., :size], keys[..., :size])
        return latent + self.rotary(rows.query[..., size:], keys[..., size:])

    def rotary(self, query: Tensor, keys: Tensor) -> Tensor:
        """Products of the rotary parts."""
        return torch.einsum("hgqd,hkd->hgqk", query, keys)

    def values(self, rows: Rows) -> Tensor:
        """The latent part of the keys: (1, num_keys, size of it)."""
        return self.latent(rows, self.loaded(rows, rows.batch.key_cache))

    def latent(self, rows: Rows, keys: Tensor) -> Tensor:
        """What of the keys is the value."""
        return keys[..., : rows.batch.value_size]


def mla_target(device: str) -> KernelTarget:
    """The reference as a target; it runs on a CPU, whatever the device of others."""
    del device
    return TorchMla().target("gather-mla")


class _Rotary(TorchMla):
    """The rotary part counts in another way: `step` changes its products."""

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        self.step = step

    def rotary(self, query: Tensor, keys: Tensor) -> Tensor:
        return self.step(super().rotary(query, keys))


class _RotaryParts(TorchMla):
    """Query and key of the rotary part are changed before they meet."""

    def __init__(self, step: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
        self.step = step

    def rotary(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().rotary(*self.step(query, keys))


class _Query(TorchMla):
    """The parts of the query stand elsewhere than the kernel takes them to."""

    def __init__(self, step: Callable[[Tensor, int], Tensor]) -> None:
        self.step = step

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        moved = Rows(
            rows.batch, rows.sequence, self.step(rows.query, rows.batch.value_size),
            rows.positions, rows.query_positions,
        )  # fmt: skip
        return super().products(moved, keys)


class _Values(TorchMla):
    """Something else of the keys is the value."""

    def __init__(self, step: Callable[[Tensor, int], Tensor]) -> None:
        self.step = step

    def latent(self, rows: Rows, keys: Tensor) -> Tensor:
        return self.step(keys, rows.batch.value_size)


class _Scale(TorchMla):
    """The caller's scale is not taken: it is made of the sizes."""

    def __init__(self, step: Callable[[int, int], float]) -> None:
        self.step = step

    def scale(self, rows: Rows) -> Any:
        sizes = int(rows.query.shape[-1]), rows.batch.value_size
        return self.step(*sizes) * rows.batch.options.key_scale


class _LateHeads(TorchMla):
    """Query heads from number `most` on take the query of one of the first."""

    def __init__(self, most: int) -> None:
        self.most = most

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        heads = torch.arange(rows.query.shape[1]) % self.most
        return super().products(rows, keys)[:, heads]


class _ShortLatent(TorchMla):
    """Elements of the latent part from number `most` on are no part of the value, or of a score."""

    def __init__(self, most: int, *, in_scores: bool = False) -> None:
        self.most, self.in_scores = most, in_scores

    def latent(self, rows: Rows, keys: Tensor) -> Tensor:
        values = super().latent(rows, keys).clone()
        values[..., self.most if not self.in_scores else values.shape[-1] :] = 0
        return values

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        size = rows.batch.value_size
        if self.in_scores and size > self.most:
            keys = keys.clone()
            keys[..., self.most : size] = 0
        return super().products(rows, keys)


class _Scales(TorchMla):
    """The scale of an fp8 cache counts where it should not, or does not where it should."""

    def __init__(self, *, of_scores: int = 1, of_values: int = 1, of_rotary: int = 0) -> None:
        self.of_scores, self.of_values, self.of_rotary = of_scores, of_values, of_rotary

    def products(self, rows: Rows, keys: Tensor) -> Tensor:
        size, factor = rows.batch.value_size, rows.batch.options.key_scale
        keys = torch.cat([keys[..., :size], keys[..., size:] * factor**self.of_rotary], -1)
        return super().products(rows, keys)

    def scale(self, rows: Rows) -> float:
        options = rows.batch.options
        return float(options.scale * options.key_scale**self.of_scores)

    def latent(self, rows: Rows, keys: Tensor) -> Tensor:
        factor = rows.batch.options.value_scale ** (self.of_values - 1)
        return super().latent(rows, keys) * factor


class _Strides(TorchMla):
    """A slot is taken to be of another width than it has."""

    def __init__(self, width: Callable[[int, int], int]) -> None:
        self.width = width

    def loaded(self, rows: Rows, cache: Tensor) -> Tensor:
        size, head = rows.batch.block_size, cache.shape[-1]
        blocks = self.table(rows)[rows.positions // size]
        places = rows.positions % size * self.width(head, rows.batch.value_size)
        begins = cache.storage_offset() + blocks * cache.stride(0) + places
        numbers = begins[:, None] + torch.arange(head)
        length = cache.untyped_storage().nbytes() // cache.element_size()
        memory = cache.as_strided((length,), (1,), 0)
        # What lies behind the last slot of the cache would end the process.
        return memory[numbers.clamp(max=length - 1)].float()[None]


def _without_pairs(query: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    return query, torch.cat([keys[..., ::2], keys[..., 1::2]], -1)


MLA_FAMILIES = (
    FaultFamily("DR", "the products of the rotary part {}", (
        ("do not count", partial(_Rotary, torch.zeros_like)),
        ("have the other sign", partial(_Rotary, torch.neg)),
        ("count twice", partial(_Rotary, lambda products: products * 2)),
        ("are those of the first head", partial(
            _Rotary, lambda products: products[:, :1].expand_as(products))),
        ("are those of the key before", partial(
            _Rotary, lambda products: products.roll(1, -1))),
        ("are those of the first query", partial(
            _Rotary, lambda products: products[:, :, :1].expand_as(products))),
    )),
    FaultFamily("DI", "the rotary part is {}", (
        ("interleaved in the keys alone", partial(_RotaryParts, _without_pairs)),
        ("taken from the last", partial(
            _RotaryParts, lambda query, keys: (query.flip(-1), keys))),
        ("half as wide", partial(_RotaryParts, lambda query, keys: (
            query[..., : query.shape[-1] // 2], keys[..., : keys.shape[-1] // 2]))),
        ("shifted by one element", partial(
            _RotaryParts, lambda query, keys: (query, keys.roll(1, -1)))),
    ), checks=("dense", "permuted elements")),
    FaultFamily("DQ", "in the query {}", (
        ("the rotary part is taken to stand first", partial(
            _Query, lambda query, size: query.roll(-(query.shape[-1] - size), -1))),
        ("the latent part is shifted by the rotary part", partial(
            _Query, lambda query, size: torch.cat(
                [query[..., query.shape[-1] - size :], query[..., size:]], -1))),
        ("the rotary part is that of the first head", partial(
            _Query, lambda query, size: torch.cat(
                [query[..., :size], query[:, :1, :, size:].expand_as(query[..., size:])], -1))),
        ("the latent part is that of the first head", partial(
            _Query, lambda query, size: torch.cat(
                [query[:, :1, :, :size].expand_as(query[..., :size]), query[..., size:]], -1))),
    )),
    FaultFamily("DV", "the values are {}", (
        ("the last elements of the keys", partial(_Values, lambda keys, size: keys[..., -size:])),
        ("shifted by one element", partial(_Values, lambda keys, size: keys[..., 1 : size + 1])),
        ("the latent part from its last element", partial(
            _Values, lambda keys, size: keys[..., :size].flip(-1))),
        ("those of the key before", partial(
            _Values, lambda keys, size: keys[..., :size].roll(1, -2))),
        ("the rotary part, repeated", partial(_Values, lambda keys, size: torch.cat(
            [keys[..., size:]] * -(-size // (keys.shape[-1] - size)), -1)[..., :size])),
    )),
    FaultFamily("DS", "the scale is {}", (
        ("that of the key's size", partial(_Scale, lambda head, _: head**-0.5)),
        ("that of the latent part", partial(_Scale, lambda _, latent: latent**-0.5)),
        ("that of the rotary part", partial(_Scale, lambda head, latent: (head - latent) ** -0.5)),
        ("192 ** -0.5", partial(_Scale, lambda *_: 192**-0.5)),
        ("1", partial(_Scale, lambda *_: 1.0)),
    )),
    FaultFamily("DH", "query heads from number {} on take the query of one of the first",
                sized(_LateHeads, 4, 8, 16, 32, 64, 96)),
    FaultFamily("DL", "elements of the latent part from number {} on are no part of the value",
                sized(_ShortLatent, 32, 64, 128, 256, 448, 500)),
    FaultFamily("DP", "elements of the latent part from number {} on are no part of a score",
                sized(partial(_ShortLatent, in_scores=True), 32, 64, 128, 256, 448, 500)),
    FaultFamily("DF", "the scale of an fp8 cache {}", (
        ("does not count in the scores", partial(_Scales, of_scores=0)),
        ("counts twice in the scores", partial(_Scales, of_scores=2)),
        ("does not count in the values", partial(_Scales, of_values=0)),
        ("counts twice in the values", partial(_Scales, of_values=2)),
        ("does not count in the rotary part", partial(_Scales, of_rotary=-1)),
        ("counts twice in the rotary part", partial(_Scales, of_rotary=1)),
    )),
    FaultFamily("DW", "a slot is taken to be as wide as {}", (
        ("the latent part", partial(_Strides, lambda _, latent: latent)),
        ("key and latent part together", partial(_Strides, lambda head, latent: head + latent)),
        ("two keys", partial(_Strides, lambda head, _: 2 * head)),
        ("a key padded to a power of two", partial(
            _Strides, lambda head, _: 1 << (head - 1).bit_length())),
        ("a key, whatever its strides are", partial(_Strides, lambda head, _: head)),
    )),
)  # fmt: skip
"""The mistakes; a quick run refuses each."""
