"""Checks that dataclasses of plain values hold what their fields say, for what was read from disk.

JSON has the right shape sooner than the right types: a count that is text, a share that is NaN or a
number of a thousand digits would otherwise be met where it is drawn.
"""

from __future__ import annotations

import math
import types
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = ["checked"]

AnyValue = TypeVar("AnyValue")

_MOST = 1 << 63


def checked(value: AnyValue, lowest: int = 0) -> AnyValue:
    """The dataclass as it is, with no number below `lowest`.

    Raises TypeError that names the first field that does not fit.
    """
    hints = get_type_hints(type(value))
    for field in fields(value):  # type: ignore[arg-type] # is one
        if not _fits(getattr(value, field.name), hints[field.name], lowest):
            raise TypeError(f"{field.name} has a value that it cannot have")
    return value


def _fits(value: Any, hint: Any, lowest: int) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return any(_fits(value, one, lowest) for one in inner)
    if origin is tuple and inner[-1] is Ellipsis:
        return isinstance(value, tuple) and all(_fits(item, inner[0], lowest) for item in value)
    if origin is tuple:
        return (
            isinstance(value, tuple)
            and len(value) == len(inner)
            and all(_fits(item, one, lowest) for item, one in zip(value, inner, strict=True))
        )
    if origin is Counter:
        return isinstance(value, Counter) and all(
            _fits(key, inner[0], lowest) and _fits(item, int, lowest) for key, item in value.items()
        )
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0], lowest) and _fits(item, inner[1], lowest)
            for key, item in value.items()
        )
    if hint is type(None):
        return value is None
    if origin in {set, frozenset}:
        return isinstance(value, origin) and all(_fits(item, inner[0], lowest) for item in value)
    if hint is Any or not isinstance(hint, type):
        return True
    if is_dataclass(hint):
        return isinstance(value, hint) and checked(value, lowest) is value
    if hint is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and lowest <= value < _MOST and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and lowest <= value < _MOST
    return isinstance(value, hint)
