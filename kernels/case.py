"""A test case of paged attention in a few plain numbers, and the tensors that follow from it.

A case is small enough to print, to store in a file and to shrink; the tensors follow from it and
its seed on every machine. Block 0 is the null block and is never owned. Unowned slots are filled
with finite numbers of the same size as the rest; the relations put poison there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.layouts import (
    LAYOUTS,
    REACHES,
    placed,
    restrided,
    spread_beside,
    spread_out,
)
from poolproof.kernels.masks import MASKS, mask_of
from poolproof.kernels.quantised_cache import (
    CACHE_TYPES,
    NIBBLES,
    SCALES,
    ZERO_POINTS,
    Factor,
    Quantisation,
    Quantised,
    quantised,
    quantised_query,
)

__all__ = [
    "DISTRIBUTIONS",
    "LAYOUTS",
    "VIEWS",
    "Case",
    "CaseError",
    "build",
    "check_rows",
    "contradiction",
]

DISTRIBUTIONS = ("plain", "sharp", "flat", "even", "high", "far")
"""Scores of size 1; of size 4, so that few keys count; near 0; near 0 with values around 1, so that
a sum that loses small numbers shows; all near 300; all below -50,000."""

VIEWS = ("query", "out", "table", "mask")
"""What may be a slice of a larger tensor: a query of a projection that holds keys and values too,
an output between other columns, a table or a mask of a wider one."""

NULL_BLOCK = 0

_WORDS: dict[str, tuple[str | None, ...]] = {
    "distribution": DISTRIBUTIONS, "reach": REACHES, "cache_dtype": (None, *CACHE_TYPES),
    "scales": SCALES, "nibbles": NIBBLES, "zero_points": ZERO_POINTS,
}  # fmt: skip


class CaseError(ValueError):
    """A case that cannot be read; the message says what is wrong with it."""


def check_rows(case: type[Any], value: Any) -> None:
    """Raises CaseError unless a value is an object whose keys are all rows of such a case."""
    if not isinstance(value, dict):
        raise CaseError(f"a case is a JSON object, not {value!r}")
    known = [field.name for field in fields(case)]
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise CaseError(f"unknown key {unknown[0]!r} in a case; known are {', '.join(known)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One batch. `sequences` are pairs of query length and kv length.

    The first `shared_blocks` blocks of every sequence that is long enough are the same ones.
    `cache_dtype` is None for the query's own; `scales`, `nibbles` and `zero_points` of a quantised
    cache are told in `quantised_cache.py`. With `fp8_query` queries are in the cache's type, and
    `dtype` is that of the output. `spare_blocks` have no owner; `spare_entries` follow the
    longest row of the table in each row. `scale` None is head_size ** -0.5, and `value_layout`
    None is the layout of the keys. `views` are the tensors that are slices of larger ones. `reach`
    says how large the cache is of which these blocks are a part. `value_size` None is that of the
    keys; `latent` values are the first elements of the keys. `mask` is one of `masks.MASKS`.
    """

    sequences: tuple[tuple[int, int], ...]
    seed: int = 0
    dtype: str = "float32"
    cache_dtype: str | None = None
    scales: str = "tensor"
    nibbles: str = NIBBLES[0]
    zero_points: str = ZERO_POINTS[0]
    fp8_query: bool = False
    num_kv_heads: int = 1
    queries_per_kv_head: int = 1
    head_size: int = 16
    value_size: int | None = None
    latent: bool = False
    block_size: int = 4
    shared_blocks: int = 0
    spare_blocks: int = 1
    spare_entries: int = 0
    distribution: str = "plain"
    layout: str = "slots-heads"
    value_layout: str | None = None
    views: tuple[str, ...] = ()
    reach: str = "small"
    scale: float | None = None
    causal: bool = True
    sliding_window: int | None = None
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False
    attention_chunk: int | None = None
    window_ahead: int | None = None
    mask: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        sequences = [list(pair) for pair in self.sequences]
        return {**asdict(self), "sequences": sequences, "views": list(self.views)}

    @classmethod
    def from_json(cls, value: Any) -> Case:
        """What `to_json` wrote. Raises CaseError."""
        check_rows(cls, value)
        try:
            sequences = tuple((int(q), int(kv)) for q, kv in value["sequences"])
        except (KeyError, TypeError, ValueError) as error:
            raise CaseError(
                "a case needs sequences: a list of pairs of query length and kv length"
            ) from error
        may_cross = not value.get("causal", True)
        if any(not (0 <= q <= kv or kv == 0 <= q or 0 <= kv <= q * may_cross)
               for q, kv in sequences):  # fmt: skip
            raise CaseError("in a case a query length is at most its kv length, or that is 0")
        views = tuple(value.get("views", ()))
        case = cls(**{**value, "sequences": sequences, "views": views})
        for name, allowed in _WORDS.items():
            if getattr(case, name) not in allowed:
                words = ", ".join(word for word in allowed if word is not None)
                raise CaseError(f"{name} of a case must be one of {words}")
        wrong = case.wrong_quantisation()
        if wrong:
            raise CaseError(wrong)
        size = case.value_size
        if size is not None and (type(size) is not int or size < 1):
            raise CaseError(f"value_size of a case must be a number of elements, not {size!r}")
        if case.latent and (size is None or size > case.head_size):
            raise CaseError("latent values of a case need a value_size of at most its head_size")
        if case.latent and case.num_kv_heads != 1:
            raise CaseError("a case with latent values has one head in the cache")
        if wrong := contradiction(case):
            raise CaseError(wrong)
        return case

    def wrong_quantisation(self) -> str | None:
        """What of queries and cache cannot be together, None if it can."""
        size = self.value_size or self.head_size
        if self.fp8_query and not (self.cache_dtype or "").startswith("float8"):
            return "queries in fp8 of a case need a cache_dtype of fp8"
        if self.scales != "tensor" and self.cache_dtype is None:
            return f"scales for each {self.scales} of a case need a cache_dtype"
        if self.cache_dtype == "int4" and (self.latent or self.head_size % 2 or size % 2):
            return "an int4 cache of a case needs even sizes of heads, and no latent values"
        if self.zero_points != "absent" and self.cache_dtype != "int4":
            return "zero_points of a case need a cache_dtype of int4"
        return None

    def blocks(self, sequence: int) -> int:
        """How many blocks a sequence fills or begins."""
        return -(-self.sequences[sequence][1] // self.block_size)

    def shares(self, sequence: int) -> bool:
        """Whether a sequence is long enough to use the shared blocks."""
        return self.sequences[sequence][1] >= self.shared_blocks * self.block_size

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.num_kv_heads * self.queries_per_kv_head

    def words(self) -> str:
        """One line for a person."""
        pairs = " ".join(f"{q}/{kv}" for q, kv in self.sequences[:8])
        if len(self.sequences) > 8:
            pairs += f" and {len(self.sequences) - 8} more"
        text = (
            f"{self.dtype}, heads {self.num_heads} over {self.num_kv_heads}, head size "
            f"{self.head_size}, block size {self.block_size}, queries/keys {pairs}"
        )
        if self.value_size is not None:
            text += f", value size {self.value_size}{' in the keys' if self.latent else ''}"
        if self.cache_dtype:
            text += f", cache {self.cache_dtype}"
            text += "" if self.scales == "tensor" else f" with scales by {self.scales}"
        if self.cache_dtype == "int4":
            text += f" ({self.nibbles}, zero points {self.zero_points})"
        text += ", queries in fp8" if self.fp8_query else ""
        if self.shared_blocks:
            text += f", {self.shared_blocks} blocks shared"
        for name in ("scale", "sliding_window", "window_ahead", "attention_chunk", "softcap"):
            if getattr(self, name) is not None:
                text += f", {name.replace('_', ' ')} {getattr(self, name)}"
        for name in ("alibi", "sinks"):
            text += f", {name}" if getattr(self, name) else ""
        text += f", {MASK_WORDS[self.mask]}" if self.mask else ""
        text += "" if self.causal or self.mask else ", not causal"
        text += "" if self.layout == LAYOUTS[0] else f", layout {self.layout}"
        text += "" if self.value_layout is None else f", values {self.value_layout}"
        text += f", sliced {' and '.join(self.views)}" if self.views else ""
        text += "" if self.reach == REACHES[0] else f", a cache of more than {self.reach}"
        return text + ("" if self.distribution == "plain" else f", {self.distribution} scores")


MASK_WORDS = {
    "tree": "a mask of drafts in a tree",
    "seen": "any mask in which each query sees a key",
    "any": "any mask",
}


def contradiction(case: Case) -> str | None:
    """What in a case cannot stand together in who sees which key, as a sentence; None if nothing.

    A causal mask, a window and a chunk count from a query's position. A window looks ahead where
    the mask is not causal; a mask is the whole truth.
    """
    if case.mask is not None and case.mask not in MASKS:
        return f"mask of a case must be one of {', '.join(MASKS)}, not {case.mask!r}"
    for name, least in (("attention_chunk", 1), ("window_ahead", 0)):
        value = getattr(case, name)
        if value is not None and (type(value) is not int or value < least):
            return f"{name} of a case must be a number of tokens of at least {least}, not {value!r}"
    for name, causal, others in (
        ("attention_chunk", True, ("sliding_window",)),
        ("window_ahead", False, ("alibi",)),
        ("mask", False, ("sliding_window", "window_ahead", "alibi")),
    ):
        if getattr(case, name) is None:
            continue
        if case.causal is not causal:
            return f"a case with {name} has causal {str(causal).lower()}"
        for other in others:
            value = getattr(case, other)
            if value is not None and value is not False:
                return f"a case with {name} has no {other}"
    if not case.causal and case.sliding_window is not None and case.window_ahead is None:
        return "a case with sliding_window that is not causal has window_ahead"
    crosses = any(queries > keys > 0 for queries, keys in case.sequences)
    if crosses and (case.causal or case.window_ahead is not None or case.mask == "tree"):
        return "a case with more queries than keys has no causal mask, window or tree"
    return None


def build(case: Case, device: str = "cpu") -> PagedBatch:
    """The tensors of a case."""
    draw = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, case.dtype)
    table, num_blocks = _block_tables(case, draw)
    shape = (num_blocks, case.block_size, case.num_kv_heads, case.head_size)
    num_tokens = sum(query for query, _ in case.sequences)
    query = torch.randn(num_tokens, case.num_heads, case.head_size, generator=draw)
    keys = torch.randn(shape, generator=draw)
    values = torch.randn((*shape[:3], case.value_size or case.head_size), generator=draw)
    query, keys, values = _shaped(case, query, keys, values)
    if case.latent:
        keys = torch.cat([values, keys[..., case.value_size :]], -1)
    stored = _store(case, (keys, values), table, draw, device)
    quantisation = stored.quantisation
    if case.fp8_query and case.cache_dtype:
        query, scale = quantised_query(query, case.cache_dtype, draw)
        quantisation = replace(quantisation, query_scale=scale, out_dtype=dtype)
    else:
        query = query.to(dtype)
    slopes = 2.0 ** -torch.arange(1, case.num_heads + 1).float() if case.alibi else None
    sinks = torch.randn(case.num_heads, generator=draw) if case.sinks else None
    options = AttentionOptions(
        scale=case.head_size**-0.5 if case.scale is None else case.scale,
        causal=case.causal,
        sliding_window=case.sliding_window,
        softcap=case.softcap,
        alibi_slopes=None if slopes is None else slopes.to(device),
        sinks=None if sinks is None else sinks.to(device),
        key_scale=stored.scales[0],
        value_scale=stored.scales[1],
        quantisation=quantisation,
        attention_chunk=case.attention_chunk,
        window_ahead=case.window_ahead,
        mask=None if case.mask is None else _sliced_mask(case, mask_of(case).to(device)),
    )
    return PagedBatch(
        query=_sliced_query(case, query.to(device)),
        key_cache=stored.keys,
        value_cache=stored.values,
        block_tables=_sliced_table(case, stored.table.to(device)),
        kv_lengths=_lengths(case, 1, device),
        query_lengths=_lengths(case, 0, device),
        options=options,
    )


_SCALES_OF_FP8 = (0.3, 0.7)
"""Not powers of two, so that a lost or doubled scale cannot hide."""


@dataclass(frozen=True, slots=True)
class _StoredCache:
    """Keys and values in their layouts, what their codes stand for, and a table of their blocks."""

    keys: Tensor
    values: Tensor
    scales: tuple[Factor, Factor]
    quantisation: Quantisation
    table: Tensor


def _store(
    case: Case, numbers: tuple[Tensor, Tensor], table: Tensor, draw: torch.Generator, device: str
) -> _StoredCache:
    """Keys and values, (num_blocks, block_size, num_kv_heads, size), in the cache of a case."""
    pair = _codes(case, *numbers, draw)
    layouts = case.layout, case.value_layout or case.layout
    if case.reach == REACHES[0]:
        stored = placed(pair[0].codes.to(device), pair[1].codes.to(device), layouts)
    else:
        *far, table = spread_out((pair[0].codes, pair[1].codes), layouts, table, case.reach)
        stored = far[0], far[1]
    if case.latent:
        stored = stored[0], stored[0][..., : case.value_size]

    def in_place(one: Factor, other: Factor) -> tuple[Any, Any]:
        return _factors(case, one, other, tuple(pair[0].codes.shape[1:]), device)

    scales = in_place(pair[0].scale, pair[1].scale)
    zeros: tuple[Any, Any] = (None, None)
    if pair[0].zeros is not None and pair[1].zeros is not None:
        zeros = in_place(pair[0].zeros, pair[1].zeros)
    quantisation = Quantisation(
        key_zeros=zeros[0], value_zeros=zeros[1], nibbles=case.nibbles, zero_points=case.zero_points
    )
    return _StoredCache(*stored, scales, quantisation, table)


def _codes(
    case: Case, keys: Tensor, values: Tensor, draw: torch.Generator
) -> tuple[Quantised, Quantised]:
    kind = case.cache_dtype
    if kind is None:
        dtype = getattr(torch, case.dtype)
        return Quantised(keys.to(dtype), 1.0), Quantised(values.to(dtype), 1.0)
    if kind.startswith("float8") and case.scales == "tensor":
        scales = _SCALES_OF_FP8[0], _SCALES_OF_FP8[not case.latent]
        return _with_scale(keys, kind, scales[0]), _with_scale(values, kind, scales[1])
    form = {"nibbles": case.nibbles, "zero_points": case.zero_points}
    of_keys = quantised(keys, kind, case.scales, draw, **form)
    if case.latent:
        return of_keys, Quantised(of_keys.codes[..., : case.value_size], of_keys.scale)
    return of_keys, quantised(values, kind, case.scales, draw, **form)


def _with_scale(numbers: Tensor, kind: str, scale: float) -> Quantised:
    dtype = getattr(torch, kind)
    limit = torch.finfo(dtype).max
    return Quantised((numbers / scale).clamp(-limit, limit).to(dtype), scale)


def _factors(
    case: Case, one: Factor, other: Factor, block: tuple[int, ...], device: str
) -> tuple[Any, Any]:
    """Scales or zero points in their places: those of slots in the layouts of the slots."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return one, other
    if one.dim() == 1:
        both = torch.stack([one, other], -1).to(device)
        apart = both[:, 0].contiguous(), both[:, 1].contiguous()
        return (both[:, 0], both[:, 1]) if case.layout == "interleaved" else apart
    layouts = case.layout, case.value_layout or case.layout
    if case.reach == REACHES[0]:
        pair = placed(one.to(device), other.to(device), layouts)
    else:
        pair = spread_beside((one, other), layouts, case.reach, block)
    # Latent values have the scales of their keys.
    return (pair[0], pair[0]) if case.latent else pair


def _sliced_query(case: Case, query: Tensor) -> Tensor:
    """The query, within a projection that holds keys and values too where the case says so."""
    if "query" not in case.views:
        return query
    rows, heads, size = query.shape
    width = (heads + 2 * case.num_kv_heads) * size
    # Keys stand before it, values behind it, and they are not numbers.
    return restrided(query, (width, size, 1), case.num_kv_heads * size, rows * width)


def _sliced_table(case: Case, table: Tensor) -> Tensor:
    """The table, within a wider one whose other entries are the null block."""
    if "table" not in case.views:
        return table
    wide = torch.full((len(table), table.shape[1] + 3), NULL_BLOCK).to(table)
    wide[:, 1:-2] = table
    return wide[:, 1:-2]


def _sliced_mask(case: Case, mask: Tensor) -> Tensor:
    """The mask, within a wider one whose other columns are True where the case says so."""
    if "mask" not in case.views:
        return mask
    wide = torch.ones(len(mask), mask.shape[1] + 5, dtype=mask.dtype, device=mask.device)
    view = wide[:, 2:-3]
    return view.copy_(mask)


def _lengths(case: Case, which: int, device: str) -> Tensor:
    return torch.tensor([pair[which] for pair in case.sequences], dtype=torch.int32, device=device)


def _block_tables(case: Case, draw: torch.Generator) -> tuple[Tensor, int]:
    """Tables over blocks in random order, and the number of blocks."""
    count = len(case.sequences)
    shared = case.shared_blocks if any(case.shares(s) for s in range(count)) else 0
    needed = [case.blocks(s) - (shared if case.shares(s) else 0) for s in range(count)]
    num_blocks = 1 + shared + sum(needed) + case.spare_blocks
    ids = (1 + torch.randperm(num_blocks - 1, generator=draw)).tolist()
    width = max((case.blocks(s) for s in range(count)), default=0) + case.spare_entries
    table = torch.full((count, width), NULL_BLOCK, dtype=torch.int32)
    common, ids = ids[:shared], ids[shared:]
    for sequence in range(count):
        own, ids = ids[: needed[sequence]], ids[needed[sequence] :]
        row = (common if case.shares(sequence) else []) + own
        table[sequence, : len(row)] = torch.tensor(row, dtype=torch.int32)
    return table, num_blocks


def _shaped(
    case: Case, query: Tensor, keys: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values whose scores have the size that the distribution says."""
    scale = case.head_size**-0.5 if case.scale is None else case.scale
    offset = torch.zeros(case.head_size)
    # What makes scores large must not make latent values large: it is in the rest of the keys.
    there = offset[case.value_size if case.latent and case.value_size != case.head_size else 0 :]
    if case.distribution == "sharp":
        return query * 4, keys, values
    if case.distribution == "flat":
        return query * 0.1, keys, values
    if case.distribution == "even":
        # A sum of 2,000 like terms in a half type stops growing, or loses every small one.
        return query * 0.1, keys, 1 + values * 0.1
    if case.distribution == "high":
        # exp(300) is no float32, and exp(12) no float16: a maximum that is not subtracted shows.
        there += (300 / (len(there) * scale)) ** 0.5
        return query * 0.1 + offset, keys * 0.1 + offset, values
    if case.distribution == "far":
        # Every score is near -60,000: below the -10,000 and -50,000 that kernels have used in the
        # place of minus infinity (flashinfer#4450).
        there += (60_000 / (len(there) * scale)) ** 0.5
        return query * 0.01 + offset, keys * 0.01 - offset, values
    return query, keys, values
