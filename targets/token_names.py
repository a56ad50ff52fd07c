"""Names tokens for a manager without extra keys: different KV, different token.

Some engines know no adapters, salts or images, or have no switch that turns their cache off. What
changes the KV of a token is put into the token itself, so that two prefixes look equal to the
manager if and only if their KV is; with caching off, no two admissions have a token in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["NO_EXTRA_KEYS", "TokenNames"]

NO_EXTRA_KEYS = "adapters, salts and images: there are none, so tokens under them are other tokens"
"""The note of an engine whose manager is told of none of them."""

_FIRST_NAME = 1 << 32
"""Names begin beyond every vocabulary, so plain tokens stand for themselves."""


class TokenNames:
    """Gives each token with its extra keys a number; plain tokens keep theirs."""

    def __init__(self, *, enable_caching: bool, first_name: int = _FIRST_NAME) -> None:
        self._enable_caching = enable_caching
        self._first_name = first_name
        self._names: dict[tuple[object, ...], int] = {}
        self._num_admissions = 0

    def setting(self, extra_keys: Any) -> tuple[object, ...]:
        """What holds for every token of a sequence that is admitted now, outputs included."""
        whole = tuple((kind, value) for kind, value, _, end in extra_keys or () if end is None)
        if self._enable_caching:
            return whole
        self._num_admissions += 1
        return (*whole, self._num_admissions)

    def named(
        self, tokens: Sequence[int], setting: tuple[object, ...], extra_keys: Any = None
    ) -> list[int]:
        """The tokens from the first on, under a setting and, where `extra_keys` says so, images."""
        images = [keys for keys in extra_keys or () if keys[3] is not None]
        if not setting and not images:
            return list(tokens)
        if not images:
            return [self._name(token, setting, ()) for token in tokens]
        names = []
        for position, token in enumerate(tokens):
            # An image shows something else at each of its positions.
            shown = tuple((v, position - o) for _, v, o, end in images if o <= position < end)
            names.append(self._name(token, setting, shown))
        return names

    def _name(self, token: int, setting: tuple[object, ...], shown: tuple[object, ...]) -> int:
        if not setting and not shown:
            return token
        return self._names.setdefault((token, setting, shown), self._first_name + len(self._names))
