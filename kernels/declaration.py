"""What a paged-attention target declares about itself: what it supports, what it promises.

A promise that is not made is still examined and then reported separately; only what is promised can
be broken. Unknown keys and values are errors; a missing key gets the first value of its row, which
is the strictest, and the report prints it as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from poolproof.kernels.case import LAYOUTS, VIEWS
from poolproof.kernels.quantised_cache import NIBBLES, SCALES, ZERO_POINTS

__all__ = [
    "FEATURES",
    "LSE",
    "PROMISES",
    "QUANTISED_FEATURES",
    "SIGHTS",
    "Declaration",
    "DeclarationError",
]

PROMISES: dict[str, tuple[str, ...]] = {
    "tail": ("any", "finite-values", "finite"),
    "unowned": ("any", "finite"),
    "behind_window": ("any", "finite"),
    "table_tail": ("any", "block-ids"),
    "empty_row": ("zeros", "untouched", "undefined", "refused"),
    "placement": ("exact", "close"),
    "batch": ("exact", "close"),
    "block_size": ("exact", "close"),
    "strides": ("exact", "close"),
    "repeat": ("exact", "close"),
    "cache_writes": ("none", "newest"),
    "window_reads": ("exact", "tile"),
    "isolation": ("any", "finite"),
    "scores": ("float32", "query"),
    "dequantised": ("float32", "query"),
    "weights": ("float", "cache"),
    "scale": ("any", "head-size"),
    "cache_size": ("any", "fewer-slots", "fewer-elements"),
    "cache_reads": ("in-place", "copied"),
    "masked": ("any", "finite-values", "finite"),
    "chunks": ("any", "blocks"),
}
"""`tail`: what may stand in the slots behind a sequence's last token, without any effect.
`unowned`: the same for blocks of nobody, the null block included. `behind_window`: for blocks that
no query sees any more and whose table entry is the null block. `table_tail`: what may stand in a
table row behind its last needed entry. `empty_row`: what a query without keys gets. `placement`,
`batch`, `block_size`, `strides`, `repeat`: whether the same numbers give the same bits in other
blocks, in another batch, in blocks of half the size, in another layout, and again.
`cache_writes`: whether the target itself writes the newest token. `window_reads`: whether keys in
front of a window are read. `isolation`: what may stand in the memory of other live requests, their
queries, keys and values, without any effect on a request. `scores`: the type in which scores are
kept; `query` is the query's own. `dequantised`: the same of keys and values of a quantised cache.
`weights`: whether those of the softmax are rounded to the type of an fp8 cache. `scale`: which
scales are taken; `head-size` is head_size ** -0.5 alone. `cache_size`: whether a cache may have
2^31 slots and more, or 2^31 elements and more. `cache_reads`: whether the whole cache is
copied at a call, which nobody can do with a large one. `masked`: what may stand in the keys and
values that a mask hides from every query of a sequence. `chunks`: whether an attention chunk may
have any length, or only whole blocks."""

LSE = ("absent", "e", "2")
"""Whether a log-sum-exp is returned beside the output, and the base of its logarithm."""

FEATURES = ("sliding_window", "softcap", "alibi", "sinks", "non_causal", "fp8")
"""What a declaration without this row has: the function then needs no keyword beside today's."""

QUANTISED_FEATURES = ("int8", "int4", "fp8_query")
"""What has to be declared: other caches than fp8, and queries in the type of an fp8 cache."""

SIGHTS = ("chunked", "window_ahead", "mask", "tree_mask", "cross")
"""Who sees which key in other ways. They are driven only where they are declared by name, since
most bring a keyword that other functions do not take; see `sights.py`."""

_CHOICES = {"lse": LSE, "nibbles": NIBBLES, "zero_points": ZERO_POINTS}

_LISTS: dict[str, tuple[Any, ...]] = {
    "features": (*FEATURES, *QUANTISED_FEATURES, *SIGHTS),
    "scales": SCALES,
    "modes": ("decode", "prefill"),
    "dtypes": ("float32", "float16", "bfloat16"),
    "layouts": LAYOUTS,
    "views": VIEWS,
}

_FLAGS = ("grouped", "mixed", "out", "idle", "layouts_apart", "latent", "unquantised")

_LARGEST = {
    "head_sizes": 1024, "value_sizes": 1024, "block_sizes": 256, "tiles": 1 << 15,
    "smallest_window": 1 << 15,
}  # fmt: skip


class DeclarationError(ValueError):
    """A declaration with an unknown key or value; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One value for each row of `PROMISES`, and what the target supports.

    `head_sizes` and `block_sizes` are what cases are drawn from, and `tiles` are the sizes in which
    the target cuts keys and queries: large cases are drawn around their multiples. `grouped` says
    whether query heads may share a head of the cache, `mixed` whether a batch may mix sequences of
    one query with longer ones, `idle` whether it may hold a sequence that asks nothing, `out`
    whether an output tensor may be passed. `views` are the tensors that may be slices of larger
    ones; with `layouts_apart` keys and values may have different layouts. `smallest_window` is 2
    for a target to which 1 means that there is no window. With `lse` of `e` or `2` the target
    returns the output and the logarithm of each softmax's sum, sink included, to that base.
    `value_sizes` are the sizes of a value's head where they are not the keys', one for each of
    `head_sizes`; `latent` values are the first elements of the keys, in the same memory, and the
    cache has one head (MLA, absorbed). `scales` of quantised caches are one, one for each head, or
    one for each token and head; `nibbles` and `zero_points` say what int4 codes are
    (`quantised_cache.py`). Without `unquantised` every cache is a quantised one.
    """

    tail: str = "any"
    unowned: str = "any"
    behind_window: str = "any"
    table_tail: str = "any"
    empty_row: str = "zeros"
    placement: str = "exact"
    batch: str = "exact"
    block_size: str = "exact"
    strides: str = "exact"
    repeat: str = "exact"
    cache_writes: str = "none"
    window_reads: str = "exact"
    isolation: str = "any"
    scores: str = "float32"
    dequantised: str = "float32"
    weights: str = "float"
    scale: str = "any"
    cache_size: str = "any"
    cache_reads: str = "in-place"
    masked: str = "any"
    chunks: str = "any"
    features: tuple[str, ...] = FEATURES
    modes: tuple[str, ...] = ("decode", "prefill")
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    layouts: tuple[str, ...] = LAYOUTS
    head_sizes: tuple[int, ...] = (16, 24, 32, 64, 128, 192, 256)
    block_sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 3)
    tiles: tuple[int, ...] = ()
    views: tuple[str, ...] = VIEWS
    smallest_window: int = 1
    lse: str = "absent"
    value_sizes: tuple[int, ...] = ()
    latent: bool = False
    scales: tuple[str, ...] = ("tensor",)
    nibbles: str = NIBBLES[0]
    zero_points: str = ZERO_POINTS[0]
    unquantised: bool = True
    grouped: bool = True
    mixed: bool = True
    idle: bool = True
    layouts_apart: bool = True
    out: bool = False
    assumed: tuple[str, ...] = field(default=())

    @classmethod
    def from_mapping(cls, declared: object) -> Declaration:
        """The declaration of a target. Raises DeclarationError."""
        if not isinstance(declared, Mapping):
            raise DeclarationError(f"declaration must be a mapping, not {declared!r}")
        known = [row.name for row in fields(cls) if row.name != "assumed"]
        rows = {}
        for key, value in declared.items():
            if key not in known:
                raise DeclarationError(
                    f"unknown key {key!r} in a declaration; known are {', '.join(known)}"
                )
            rows[key] = _checked(key, value)
        missing = tuple(key for key in known if key not in declared)
        declaration = cls(**rows, assumed=missing)
        _check_values(declaration)
        _check_quantisation(declaration)
        return declaration

    def to_json(self) -> dict[str, Any]:
        """The rows as a mapping that `from_mapping` reads back."""
        rows = {row.name: getattr(self, row.name) for row in fields(self) if row.name != "assumed"}
        return {key: list(value) if isinstance(value, tuple) else value
                for key, value in rows.items()}  # fmt: skip

    def value_size(self, head_size: int) -> int | None:
        """The size of a value's head beside keys of a size; None where it is the same."""
        if not self.value_sizes:
            return None
        return dict(zip(self.head_sizes, self.value_sizes, strict=True)).get(head_size)

    def promises(self, key: str) -> bool:
        """Whether the strictest value of the row is promised."""
        return bool(getattr(self, key) == PROMISES[key][0])


def _check_quantisation(declared: Declaration) -> None:
    """Whether queries, caches and sizes belong together. Raises DeclarationError."""
    features = declared.features
    if "fp8_query" in features and "fp8" not in features:
        raise DeclarationError("'fp8_query' in a declaration's 'features' needs 'fp8'")
    if "int4" in features and declared.latent:
        raise DeclarationError("'latent' in a declaration goes with no 'int4' among its 'features'")
    if "int4" in features and not any(size % 2 == 0 for size in declared.head_sizes):
        raise DeclarationError("'int4' in a declaration needs an even size in 'head_sizes'")
    if not declared.unquantised and not {"fp8", "int8", "int4"} & set(features):
        raise DeclarationError(
            "without 'unquantised' a declaration needs fp8, int8 or int4 among its 'features'"
        )


def _check_values(declared: Declaration) -> None:
    """Whether sizes of keys and values belong together. Raises DeclarationError."""
    heads, values = declared.head_sizes, declared.value_sizes
    if values and not len(values) == len(heads) == len(set(heads)):
        raise DeclarationError(
            f"'value_sizes' in a declaration must hold one size for each of 'head_sizes', all of "
            f"which differ, not {len(values)} for {', '.join(map(str, heads))}"
        )
    if declared.latent and not values:
        raise DeclarationError("'latent' in a declaration needs 'value_sizes'")
    if not declared.latent:
        return
    for head, value in zip(heads, values, strict=True):
        if value > head:
            raise DeclarationError(
                f"with 'latent' a declaration's 'value_sizes' are at most its 'head_sizes', not "
                f"{value} for {head}"
            )


def _checked(key: str, value: Any) -> Any:
    if key in PROMISES:
        if value not in PROMISES[key]:
            raise DeclarationError(
                f"{key!r} in a declaration must be one of {', '.join(PROMISES[key])}, not {value!r}"
            )
        return value
    if key in _CHOICES:
        if value not in _CHOICES[key]:
            raise DeclarationError(
                f"{key!r} in a declaration must be one of {', '.join(_CHOICES[key])}, not {value!r}"
            )
        return value
    if key == "smallest_window":
        if type(value) is not int or not 1 <= value <= _LARGEST[key]:
            raise DeclarationError(f"{key!r} in a declaration must be a length, not {value!r}")
        return value
    if key in _FLAGS:
        if not isinstance(value, bool):
            raise DeclarationError(f"{key!r} in a declaration must be True or False, not {value!r}")
        return value
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise DeclarationError(f"{key!r} in a declaration must be a list, not {value!r}")
    items = tuple(value)
    allowed = _LISTS.get(key)
    for item in items:
        if allowed is None and (type(item) is not int or not 1 <= item <= _LARGEST[key]):
            raise DeclarationError(f"{key!r} in a declaration must hold sizes, not {item!r}")
        if allowed is not None and item not in allowed:
            raise DeclarationError(
                f"{key!r} in a declaration may hold {', '.join(allowed)}, not {item!r}"
            )
    if not items and key not in {"features", "tiles", "views", "value_sizes"}:
        raise DeclarationError(f"{key!r} in a declaration must not be empty")
    return items
