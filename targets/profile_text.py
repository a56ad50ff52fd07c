"""Profile overrides in a target string: `impl[eviction=lifo,duplicates=first,null_block=0]`.

Only the text is read here; whether rows and values exist is said by `contract.profile`.
"""

from __future__ import annotations

from typing import Any

from poolproof.contract.target import TargetError

__all__ = ["split_overrides"]


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
