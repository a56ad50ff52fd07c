"""Rows of a profile as text: overrides in a target string, and a profile in one line.

`impl[eviction=lifo,duplicates=first,null_block=0]` is only read here; whether rows and values exist
is said by `contract.profile`.
"""

from __future__ import annotations

from typing import Any

from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError

__all__ = ["profile_words", "split_overrides"]


def split_overrides(text: str) -> tuple[str, dict[str, Any]]:
    """The string without its brackets, and the rows in them. Raises TargetError."""
    if not text.endswith("]") or "[" not in text:
        return text, {}
    base, _, inside = text[:-1].rpartition("[")
    rows: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in inside.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise TargetError(
                f"{item!r} in {text!r} is not key=value; write {base}[eviction=lifo,null_block=0]"
            )
        if key in rows:
            raise TargetError(f"{key!r} stands twice in {text!r}; keep one of them")
        rows[key] = _value(value)
    return base, rows


def _value(text: str) -> Any:
    if text == "None":
        return None
    try:
        return int(text)
    except ValueError:
        return text


def profile_words(profile: Profile, rows: tuple[str, ...] | None = None) -> str:
    """The rows of a profile in one line, all but those assumed, or just the ones named."""
    values = profile.to_json()
    names = [name for name in values if name not in profile.assumed] if rows is None else rows
    return ", ".join(f"{name} {_value_words(values[name])}" for name in names)


def _value_words(value: object) -> str:
    """A value as it is; the groups of a manager as a target string takes them."""
    if not isinstance(value, list):
        return str(value)
    return "+".join(_group_words(group) for group in value)


def _group_words(group: dict[str, object]) -> str:
    """KIND[:WINDOW[:BLOCK_SIZE]]."""
    numbers = [group["window"], group["block_size"]] if group["block_size"] else [group["window"]]
    shown = [str(number) for number in numbers] if any(numbers) else []
    return ":".join([str(group["kind"]), *shown])
