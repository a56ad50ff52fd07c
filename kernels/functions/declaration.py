"""What a function beside attention declares: its kind, what it supports, what it promises.

A missing row gets its first value, the strictest, and the report prints it as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from poolproof.kernels.declaration import DeclarationError
from poolproof.kernels.functions.stored_forms import FP8_TYPES
from poolproof.kernels.layouts import LAYOUTS

__all__ = ["CASTS", "ROWS", "FunctionDeclaration"]

Values = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class DeclaredRow:
    """The values that a row may have.

    With `is_list` it has several of them, `default` where it is missing; where `allowed` is a range
    these are sizes. Else it has one, the first where it is missing.
    """

    allowed: Values | range
    default: Values = ()
    is_list: bool = False


def _several(*allowed: Any) -> DeclaredRow:
    return DeclaredRow(allowed, allowed, is_list=True)


def _sizes(most: int, *default: int) -> DeclaredRow:
    return DeclaredRow(range(1, most + 1), default, is_list=True)


CASTS = ("half", "fp8", "int8")
"""Caches of another type than that of the tokens."""

_FLOATS = ("float32", "float16", "bfloat16")
_CACHE = {
    "layouts": _several(*LAYOUTS),
    "layouts_apart": DeclaredRow((True, False)),
    "head_sizes": _sizes(1024, 16, 24, 64, 128, 256),
    "block_sizes": _sizes(1024, 1, 2, 4, 8, 16, 3, 64),
    "empty": DeclaredRow(("nothing", "refused")),
    "cache_size": DeclaredRow(("any", "fewer-slots", "fewer-elements")),
    "cache_reads": DeclaredRow(("in-place", "copied")),
}
_PAIRS = {"dtypes": _several(*_FLOATS, "float8_e4m3fn"), "pair_types": _several("int64", "int32")}

ROWS: dict[str, dict[str, DeclaredRow]] = {
    "cache-write": {
        "dtypes": _several(*_FLOATS),
        # int8 has to be declared: a write that was asked for fp8 alone stays what it was.
        "casts": DeclaredRow(CASTS, ("half", "fp8"), is_list=True),
        "fp8_types": _several(*FP8_TYPES),
        "scales": DeclaredRow(("given", "measured")),
        "beyond_range": DeclaredRow(("cut", "undefined")),
        "padding": DeclaredRow(("negative", "minus-one", "absent")),
        "extra_rows": DeclaredRow(("ignored", "absent")),
        "slot_types": _several("int64", "int32"),
        "views": _several("key", "value"),
        **_CACHE,
    },
    "block-copy": {"overlap": DeclaredRow(("at-once", "in-order", "absent")), **_PAIRS, **_CACHE},
    "block-swap": {**_PAIRS, **_CACHE},
    "merge": {
        "dtypes": _several(*_FLOATS),
        "base": DeclaredRow(("e", "2")),
        "parts": DeclaredRow(("any", "two")),
        "empty_part": DeclaredRow(("any", "finite", "absent")),
        "all_empty": DeclaredRow(("zeros", "undefined")),
        "strides": DeclaredRow(("any", "packed")),
        "head_sizes": _sizes(1024, 16, 24, 64, 128, 256),
        "lse": DeclaredRow(("returned", "absent")),
    },
}
"""Of a cache write: `casts` are the caches of another type that it takes: a half type for tokens in
float32, fp8 and int8 with a scale; `fp8_types` are the types that fp8 stands for, and `scales` says
whether the caller gives the scales or the function measures one for each token and head, which it
stores in caches of scales; then every cache is one of fp8 or int8. `beyond_range` says whether
numbers beyond the range are cut, `padding` which slots are skipped, `extra_rows` whether keys may
have more rows than there are slots, `views` what may be a slice of a larger tensor. `overlap`: what
a list of copies means in which a block is source and destination. `empty`: whether a call may have
nothing to do.
`cache_size` and `cache_reads` are those of attention. Of a merge: `base` is that of the
log-sum-exps, `parts` how many may be merged at once, `empty_part` what may stand in the output of a
part without keys, `all_empty` what a row without any key gets, `strides` whether its tensors may be
views, and `lse` whether the merged log-sum-exp is returned."""


@dataclass(frozen=True, slots=True)
class FunctionDeclaration:
    """The rows of a kind; each is an attribute."""

    kind: str
    rows: Mapping[str, Any]
    assumed: tuple[str, ...] = ()

    @classmethod
    def from_mapping(cls, declared: object) -> FunctionDeclaration:
        """The declaration of a target. Raises DeclarationError."""
        if not isinstance(declared, Mapping):
            raise DeclarationError(f"declaration must be a mapping, not {declared!r}")
        kind = declared.get("kind")
        if kind not in ROWS:
            raise DeclarationError(
                f"'kind' in a declaration must be one of {', '.join(ROWS)}, not {kind!r}"
            )
        known = ROWS[kind]
        for key in declared:
            if key != "kind" and key not in known:
                raise DeclarationError(
                    f"unknown key {key!r} in a declaration of a {kind}; known are "
                    f"{', '.join(known)}"
                )
        rows: dict[str, Any] = {
            key: _checked(key, row, declared[key])
            if key in declared
            else (row.default if row.is_list else row.allowed[0])
            for key, row in known.items()
        }
        if rows.get("scales") == "measured" and {"fp8", "int8"}.isdisjoint(rows["casts"]):
            raise DeclarationError(
                "'casts' in a declaration must hold fp8 or int8 where 'scales' is measured"
            )
        missing = tuple(key for key in known if key not in declared)
        return cls(kind, MappingProxyType(rows), missing)

    def __getattr__(self, name: str) -> Any:
        if name in self.__slots__ or name not in self.rows:
            raise AttributeError(name)
        return self.rows[name]

    def to_json(self) -> dict[str, Any]:
        """The rows as a mapping that `from_mapping` reads back."""
        rows = {key: list(value) if isinstance(value, tuple) else value
                for key, value in self.rows.items()}  # fmt: skip
        return {"kind": self.kind, **rows}

    def promises(self, key: str) -> bool:
        """Whether the strictest value of the row is promised."""
        return bool(self.rows[key] == ROWS[self.kind][key].allowed[0])


def _checked(key: str, row: DeclaredRow, value: Any) -> Any:
    def must(what: str, given: Any) -> DeclarationError:
        return DeclarationError(f"{key!r} in a declaration must {what}, not {given!r}")

    words = (
        f"sizes up to {row.allowed[-1]}"
        if isinstance(row.allowed, range)
        else ", ".join(map(str, row.allowed))
    )
    if not row.is_list:
        if value not in row.allowed or isinstance(value, bool) != isinstance(row.allowed[0], bool):
            raise must(f"be one of {words}", value)
        return value
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise must("be a list", value)
    items = tuple(value)
    for item in items:
        if item not in row.allowed or isinstance(item, bool):
            raise must(f"hold {words}", item)
    if not items and key not in {"casts", "views"}:
        raise must("not be empty", value)
    return items
