"""Managers whose keys say too little of adapters, salts and images, as functions of a constant.

They are families of `production_manager_families.py`, which has the constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolproof.bugs.clean_manager import CleanManager, Copies

__all__ = [
    "bits_of_image_places",
    "cut_texts",
    "ends_of_texts",
    "few_keys",
    "fork_keys",
    "images_once",
    "images_up_to",
    "joined_texts",
    "some_keys",
]


def cut_texts(what: str, length: int) -> type[CleanManager]:
    """Of a text the first characters are in the key, or with a negative length the last."""

    class CutTexts(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            return [
                (kind, _cut(value, length) if kind == what else value, *place)
                for kind, value, *place in super()._extra_keys(extra_keys, first, end)
            ]

    return CutTexts


def _cut(value: Any, length: int) -> Any:
    """The first characters of a text or of each of two, or with a negative length the last."""
    if isinstance(value, tuple):
        return tuple(_cut(part, length) for part in value)
    return value[length:] if length < 0 else value[:length]


def ends_of_texts(count: int) -> type[CleanManager]:
    """Of a long text its length and so many characters of both ends are in the key."""

    def ends(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(ends, value))
        return value if len(value) <= 2 * count else (value[:count], value[-count:], len(value))

    class EndsOfTexts(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            return [
                (kind, ends(value), *place)
                for kind, value, *place in super()._extra_keys(extra_keys, first, end)
            ]

    return EndsOfTexts


def images_once(which: str) -> type[CleanManager]:
    """Of images with one name in a block the first or the last is in the key."""

    class ImagesOnce(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            keys = super()._extra_keys(extra_keys, first, end)
            ordered = keys if which == "last" else keys[::-1]
            return sorted({key[:2]: key for key in ordered}.values(), key=repr)

    return ImagesOnce


def bits_of_image_places(bits: int) -> type[CleanManager]:
    """Where an image begins in a block is kept in so many bits."""

    class BitsOfImagePlaces(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            return [
                (kind, value, place % 2**bits if place > 0 else place, None)
                for kind, value, place, _ in super()._extra_keys(extra_keys, first, end)
            ]

    return BitsOfImagePlaces


def fork_keys(lost: str) -> type[CleanManager]:
    """The child of a fork has not all other keys of its parent."""

    class ForkKeys(CleanManager):
        def fork(self, seq_id: int, child_id: int) -> Copies | str:
            answer = super().fork(seq_id, child_id)
            child = self.sequences.get(child_id)
            if child is not None:
                keys = list(child.extra_keys or ())
                kinds = [kind for kind, *_ in keys]
                if lost in kinds:
                    # The last of its kind: of several images one is left.
                    del keys[len(kinds) - 1 - kinds[::-1].index(lost)]
                child.extra_keys = tuple(keys)
            return answer

    return ForkKeys


def images_up_to(depth: int) -> type[CleanManager]:
    """Images in the blocks behind so many are in no key."""

    class ImagesUpTo(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            keys = super()._extra_keys(extra_keys, first, end)
            return [key for key in keys if key[0] != "image" or first < depth * self.block_size]

    return ImagesUpTo


def some_keys(which: str) -> type[CleanManager]:
    """Of several extra keys of a block one is taken, or one hides another."""

    def taken(keys: list[Any]) -> list[Any]:
        if which in ("first", "last"):
            return keys[:1] if which == "first" else keys[-1:]
        hiding, hidden = which.split(" over ")
        if any(kind == hiding for kind, *_ in keys):
            return [key for key in keys if key[0] != hidden]
        return keys

    class SomeKeys(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            return taken(super()._extra_keys(extra_keys, first, end))

    return SomeKeys


def few_keys(count: int) -> type[CleanManager]:
    """Of all extra keys of a sequence the first few."""

    class FewKeys(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            return super()._extra_keys(extra_keys[:count], first, end)

    return FewKeys


def joined_texts(what: str) -> type[CleanManager]:
    """Adapters, or all values of several extra keys, are one text without a separator."""

    class JoinedTexts(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            keys = super()._extra_keys(extra_keys, first, end)
            if what == "lora":
                return [(k, "".join(v) if k == what else v, *place) for k, v, *place in keys]
            joined = "".join(str(value) for kind, value, *_ in keys if kind == what)
            places = [place for kind, _, *place in keys if kind == what]
            return [joined, places, *(key for key in keys if key[0] != what)]

    return JoinedTexts
