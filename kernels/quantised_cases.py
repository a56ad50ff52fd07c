"""Draws what of a case is quantised, within what a target declares.

Nothing here takes a choice from the grammar of a target that declares none of it, so that its cases
stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from poolproof.kernels.case import Case
from poolproof.kernels.declaration import Declaration

__all__ = [
    "draw_quantisation",
    "formats",
    "is_quantised",
    "large_rows",
    "wide_features",
    "wide_rows",
    "with_declared_quantisation",
]

Choose = Callable[[int], int]

_OF_FEATURE = {
    "fp8": ("float8_e4m3fn", "float8_e5m2"), "int8": ("int8",), "int4": ("int4",),
}  # fmt: skip


def formats(allowed: Declaration) -> list[str]:
    """The types of quantised caches that a target takes."""
    return [kind for feature, kinds in _OF_FEATURE.items() if feature in allowed.features
            for kind in kinds]  # fmt: skip


def is_quantised(allowed: Declaration) -> bool:
    """Whether a target declares more than fp8 with one scale."""
    more = {"int8", "int4", "fp8_query"} & set(allowed.features)
    return bool(more or set(allowed.scales) != {"tensor"} or not allowed.unquantised)


def draw_quantisation(choose: Choose, allowed: Declaration) -> dict[str, Any]:
    """The rows of a case beyond what every target may get; in two of three cases of those."""
    kinds = formats(allowed)
    if not is_quantised(allowed) or not kinds or (allowed.unquantised and choose(3) == 0):
        return {}
    return _rows(choose, allowed, kinds[choose(len(kinds))])


def _rows(choose: Choose, allowed: Declaration, kind: str) -> dict[str, Any]:
    scales = allowed.scales[choose(len(allowed.scales))]
    has_query = "fp8_query" in allowed.features and kind.startswith("float8") and choose(2) == 1
    return {"cache_dtype": kind, "scales": scales, "fp8_query": has_query}


def wide_features(allowed: Declaration) -> list[tuple[str, str]]:
    """Each feature that a target declares, with the scales that a case for it has."""
    return [
        (feature, scales)
        for feature in allowed.features
        for scales in (allowed.scales if _kinds_of(feature) else ("tensor",))
    ]


def _kinds_of(feature: str | None) -> tuple[str, ...]:
    return _OF_FEATURE.get("fp8" if feature == "fp8_query" else feature or "", ())


def wide_rows(feature: str | None, scales: str) -> dict[str, Any]:
    """The rows of a case in a wide cache that is there for one feature."""
    kinds = _kinds_of(feature)
    return {
        "cache_dtype": kinds[0] if kinds else None,
        "scales": scales if kinds else "tensor",
        "fp8_query": feature == "fp8_query",
    }


def large_rows(allowed: Declaration) -> list[dict[str, Any]]:
    """Every cache that a target declares beyond fp8 with one scale: the rows of a case for each."""
    if not is_quantised(allowed):
        return []
    return [
        {"cache_dtype": kind, "scales": scales,
         "fp8_query": kind == "float8_e4m3fn" and "fp8_query" in allowed.features}
        for kind in formats(allowed) for scales in allowed.scales
    ]  # fmt: skip


def with_declared_quantisation(case: Case, allowed: Declaration) -> Case:
    """The case with a cache that the target takes, and int4 codes as it has them."""
    kind, kinds = case.cache_dtype, formats(allowed)
    size = case.value_size or case.head_size
    if (case.head_size % 2 or size % 2) and "int4" in kinds:
        kinds = [name for name in kinds if name != "int4"]
    if kind is None and not allowed.unquantised and kinds:
        kind = kinds[case.seed % len(kinds)]
    if kind is not None and kind not in kinds:
        kind = kinds[0] if kinds else None
    scales = case.scales if kind and case.scales in allowed.scales else allowed.scales[0]
    is_packed = kind == "int4"
    return replace(
        case,
        cache_dtype=kind,
        scales=scales if kind else "tensor",
        fp8_query=case.fp8_query and (kind or "").startswith("float8"),
        nibbles=allowed.nibbles if is_packed else "low-first",
        zero_points=allowed.zero_points if is_packed else "absent",
    )
