"""The commands of the index level: a map from keys to the blocks that carry them.

A key is what an engine files blocks under: an opaque hash, an integer, or a hash together with
the cache group that it was computed for. Which of these a target takes is its own statement
(`key_kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from poolproof.contract.commands import Command
from poolproof.contract.outside import shown

__all__ = [
    "KEY_KINDS",
    "Clear",
    "Contains",
    "Get",
    "IndexCommand",
    "IndexKey",
    "Insert",
    "Pop",
    "index_key_from_json",
    "index_key_text",
    "index_key_to_json",
]

IndexKey = bytes | int | tuple[bytes, int]
"""An opaque hash, a number, or a hash and its cache group."""


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


KEY_KINDS: Mapping[str, Callable[[Any], bool]] = MappingProxyType(
    {
        "bytes": lambda key: isinstance(key, bytes),
        "int": _is_number,
        "pair": lambda key: (
            isinstance(key, tuple)
            and len(key) == 2
            and isinstance(key[0], bytes)
            and _is_number(key[1])
        ),
    }
)
"""The kinds of keys by the names that a target declares, each with what tells it."""

_WHOLE_BYTES = 16


class IndexCommand(Command):
    """Base of the commands of the index level; keys are shown so that they can be told apart."""

    __slots__ = ()

    def __str__(self) -> str:
        key, block_id = getattr(self, "key", None), getattr(self, "block_id", None)
        shown = [] if key is None else [index_key_text(key)]
        shown += [] if block_id is None else [str(block_id)]
        return f"{self.verb}({', '.join(shown)})"


@dataclass(frozen=True, slots=True)
class Insert(IndexCommand):
    """The block carries the key from here on; what other carriers the key keeps is a profile row.

    A block that carries the key already is no misuse, and changes nothing.
    """

    verb: ClassVar[str] = "insert"
    key: IndexKey
    block_id: int


@dataclass(frozen=True, slots=True)
class Pop(IndexCommand):
    """The block does not carry the key any more: answers the block, or None if it did not."""

    verb: ClassVar[str] = "pop"
    key: IndexKey
    block_id: int


@dataclass(frozen=True, slots=True)
class Get(IndexCommand):
    """Some block that carries the key, or None; changes nothing."""

    verb: ClassVar[str] = "get"
    key: IndexKey


@dataclass(frozen=True, slots=True)
class Contains(IndexCommand):
    """Whether the block carries the key; changes nothing."""

    verb: ClassVar[str] = "contains"
    key: IndexKey
    block_id: int


@dataclass(frozen=True, slots=True)
class Clear(IndexCommand):
    """No block carries any key any more."""

    verb: ClassVar[str] = "clear"


def index_key_text(key: IndexKey) -> str:
    """A key in a sentence: short hashes whole, of longer ones both ends and the length."""
    if isinstance(key, tuple):
        return f"({index_key_text(key[0])}, {key[1]})"
    if isinstance(key, int):
        return str(key)
    if len(key) <= _WHOLE_BYTES:
        return key.hex()
    return f"{key[:6].hex()}..{key[-6:].hex()} ({len(key)} bytes)"


def index_key_to_json(key: IndexKey) -> Any:
    """A key as JSON: a hash as hexadecimal text, a number as it is, a pair as a list of both."""
    if isinstance(key, tuple):
        return [key[0].hex(), key[1]]
    return key.hex() if isinstance(key, bytes) else key


def index_key_from_json(value: Any) -> IndexKey:
    """The key that `index_key_to_json` wrote. Raises TypeError or ValueError otherwise."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    if _is_number(value):
        number: int = value
        return number
    if isinstance(value, list) and len(value) == 2:
        block_hash, group = value
        if isinstance(block_hash, str) and _is_number(group):
            return bytes.fromhex(block_hash), group
    raise TypeError(f"{shown(value, 80)} is no key of an index")
