"""Puts calls of ours around methods of an engine, and takes them out again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["Taps"]


class Taps:
    """The tapped methods of one engine.

    A tap calls `around(original, *arguments, **named)` in place of the engine's method, which must
    call `original` with what it was given and return what that returned. Where `is_on` says no,
    only the engine's own method is called.
    """

    def __init__(self, is_on: Callable[[], bool]) -> None:
        self._is_on = is_on
        self._taps: list[tuple[Any, str, Any, Any]] = []

    def put(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Tap a method of one object; nothing happens where it has none of this name."""
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def tapped(*arguments: Any, **named: Any) -> Any:
            if not self._is_on():
                return original(*arguments, **named)
            return around(original, *arguments, **named)

        before = owner.__dict__.get(name)
        setattr(owner, name, tapped)
        self._taps.append((owner, name, tapped, before))

    def remove(self) -> None:
        """Take all of them out, where nobody has put something of theirs over them."""
        for owner, name, tapped, before in self._taps:
            if owner.__dict__.get(name) is tapped:
                if before is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
        self._taps.clear()
