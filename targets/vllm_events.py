"""Translates the events of vLLM's shape into those of the contract.

An event's kind is read from the name of its class, its hashes from `block_hashes` and its cache
group from `group_idx`. Hashes must be whole: by default vLLM publishes 64 bits of each, as a
number, which does not say which of two hashes is meant when they end alike. Of what a stored
event tells beside them, the parent, the tokens, the block size and the extra keys are translated;
adapter numbers, the medium and the session are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from poolproof.contract.content import ContentKey
from poolproof.targets.hash_book import HashBook

__all__ = ["translate_events"]

_KINDS = {"Stored": "stored", "Removed": "removed", "Cleared": "cleared"}


def translate_events(events: Iterable[Any], book: HashBook) -> list[dict[str, Any]]:
    """The events as the contract writes them; an unknown kind keeps the name of its class."""
    return [_translate(event, book) for event in events]


def _translate(event: Any, book: HashBook) -> dict[str, Any]:
    name = type(event).__name__
    kind = next((kind for part, kind in _KINDS.items() if part in name), name)
    group = getattr(event, "group_idx", None) or 0
    hashes = [_key(value, group, book) for value in getattr(event, "block_hashes", ())]
    translated = {"type": kind, "hashes": hashes, "group": group}
    if kind == "stored":
        translated |= _told_beside(event, hashes, group, book)
    return translated


def _told_beside(event: Any, hashes: list[Any], group: int, book: HashBook) -> dict[str, Any]:
    """What the event tells of the content behind its hashes, as far as it has these attributes."""
    told: dict[str, Any] = {}
    if hasattr(event, "parent_block_hash"):
        parent = event.parent_block_hash
        told["parent"] = None if parent is None else _key(parent, group, book)
    if hasattr(event, "token_ids"):
        told["tokens"] = event.token_ids
    if hasattr(event, "block_size"):
        told["block_size"] = event.block_size
        if hasattr(event, "extra_keys"):
            # None stands for blocks that all have none.
            extra_keys = event.extra_keys or [None] * len(hashes)
            told["extra_keys"] = [
                _extra_keys(extras or (), key, event.block_size)
                for extras, key in zip_longest(extra_keys, hashes)
            ]
    return told


def _extra_keys(extras: Iterable[Any], key: Any, block_size: int) -> list[tuple[Any, ...]]:
    """The extra keys of a block, which vLLM publishes without their kinds.

    Of an adapter and a salt that are the same word, the adapter stands first. An image's offset
    is counted from the block's beginning.
    """
    translated: list[tuple[Any, ...]] = []
    words = {}
    if isinstance(key, ContentKey):
        words = {"lora": key.lora and key.lora[0], "salt": key.salt}
    for extra in extras:
        kind = next((kind for kind, word in words.items() if word == extra), "unknown")
        if isinstance(extra, tuple | list) and len(extra) == 2 and isinstance(key, ContentKey):
            identifier, offset = extra
            translated.append(("image", identifier, offset + len(key.tokens) - block_size))
        else:
            translated.append((kind, extra))
            words.pop(kind, None)
    return translated


def _key(value: Any, group: int, book: HashBook) -> Any:
    """The key behind a published hash; an unknown one stays as it is, for the check to see."""
    key = book.key(value, group) if isinstance(value, bytes) else None
    return value if key is None else key
