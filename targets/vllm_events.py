"""Translates the events of vLLM's shape into those of the contract.

An event's kind is read from the name of its class, its hashes from `block_hashes` and its cache
group from `group_idx`. Hashes must be whole: by default vLLM publishes 64 bits of each, as a
number, which does not say which of two hashes is meant when they end alike. Parent hashes, token
ids and extra keys of an event are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
    return {"type": kind, "hashes": hashes, "group": group}


def _key(value: Any, group: int, book: HashBook) -> Any:
    """The key behind a published hash; an unknown one stays as it is, for the check to see."""
    key = book.key(value, group) if isinstance(value, bytes) else None
    return value if key is None else key
