"""The commands of the queue and pool levels: small immutable values.

A command names a verb of the target and its arguments, nothing else; the reference says what must
come back, the invariants say what must hold afterwards. The same classes carry legal
commands and deliberate misuse. Manager commands are in `manager_commands.py`, their JSON form in
`command_json.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from poolproof.contract.content import Image, Key, TokenChain
from poolproof.contract.prefix_words import listed, shortened

__all__ = [
    "Acquire",
    "Allocate",
    "Append",
    "AppendN",
    "Cache",
    "CacheChain",
    "CachePartial",
    "Command",
    "Evict",
    "Free",
    "Lookup",
    "LookupChain",
    "PopLeft",
    "PopLeftN",
    "PrependN",
    "Remove",
    "Reset",
    "Touch",
    "Usage",
]


@dataclass(frozen=True, slots=True)
class Command:
    """Base of all commands; `verb` is the method of the target that the command calls."""

    verb: ClassVar[str]

    @property
    def operation(self) -> str:
        """What findings are told apart by; commands that do the same in other ways share it."""
        return self.verb

    def __str__(self) -> str:
        given = ((getattr(self, field.name), field.default) for field in fields(self))
        arguments = (_shown(value) for value, default in given if value != default)
        return f"{self.verb}({', '.join(arguments)})"


@dataclass(frozen=True, slots=True)
class Allocate(Command):
    """`count` distinct blocks from the head of the free queue."""

    verb: ClassVar[str] = "allocate"
    count: int


@dataclass(frozen=True, slots=True)
class Touch(Command):
    """One more reference for each entry."""

    verb: ClassVar[str] = "touch"
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Free(Command):
    """One reference less for each entry, in eviction order."""

    verb: ClassVar[str] = "free"
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cache(Command):
    """Held, full blocks get their hashes and enter the prefix index."""

    verb: ClassVar[str] = "cache"
    block_ids: tuple[int, ...]
    hashes: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Lookup(Command):
    """A block that carries the hash, or None."""

    verb: ClassVar[str] = "lookup"
    block_hash: Key


@dataclass(frozen=True, slots=True)
class Acquire(Command):
    """The longest cached prefix of `hashes`, looked up and pinned at once."""

    verb: ClassVar[str] = "acquire"
    hashes: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Evict(Command):
    """The blocks lose hash and index entry; references and queue positions stay."""

    verb: ClassVar[str] = "evict"
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reset(Command):
    """Every hash goes, unless a block is held."""

    verb: ClassVar[str] = "reset"


@dataclass(frozen=True, slots=True)
class CacheChain(Command):
    """The blocks of one request, of which the first `num_cached` are cached already.

    Block i of the request gets the key of the chain's first (i + 1) * block_size tokens in cache
    group `group`; null blocks among them are skipped.
    """

    verb: ClassVar[str] = "cache_chain"
    chain: TokenChain
    block_ids: tuple[int, ...]
    num_cached: int
    group: int


@dataclass(frozen=True, slots=True)
class LookupChain(Command):
    """One block for each group under the key of the chain's first `num_tokens` tokens, or None."""

    verb: ClassVar[str] = "lookup_chain"
    chain: TokenChain
    num_tokens: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CachePartial(Command):
    """A block becomes reachable under a key that ends inside it, after `num_tokens` tokens."""

    verb: ClassVar[str] = "cache_partial"
    chain: TokenChain
    block_id: int
    num_tokens: int
    group: int


@dataclass(frozen=True, slots=True)
class Usage(Command):
    """The share of the usable blocks that are held, between 0.0 and 1.0."""

    verb: ClassVar[str] = "usage"


@dataclass(frozen=True, slots=True)
class PopLeft(Command):
    """Queue level: the block at the head leaves the queue."""

    verb: ClassVar[str] = "popleft"


@dataclass(frozen=True, slots=True)
class PopLeftN(Command):
    """Queue level: the first `count` blocks leave the queue."""

    verb: ClassVar[str] = "popleft_n"
    count: int


@dataclass(frozen=True, slots=True)
class Remove(Command):
    """Queue level: a block leaves the queue from wherever it stands."""

    verb: ClassVar[str] = "remove"
    block_id: int


@dataclass(frozen=True, slots=True)
class Append(Command):
    """Queue level: a block joins at the tail."""

    verb: ClassVar[str] = "append"
    block_id: int


@dataclass(frozen=True, slots=True)
class AppendN(Command):
    """Queue level: blocks join at the tail in the order given."""

    verb: ClassVar[str] = "append_n"
    block_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PrependN(Command):
    """Queue level: blocks join at the head; the first given ends up first."""

    verb: ClassVar[str] = "prepend_n"
    block_ids: tuple[int, ...]


_MOST_SHOWN = 32
"""Ids or tokens of a command that stand in a sentence; a server's may have thousands."""


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()[:8]
    if isinstance(value, tuple):
        if len(value) > _MOST_SHOWN and len(set(value)) == 1:
            return f"[{_shown(value[0])}] * {len(value)}"
        return listed([_shown(item) for item in value], _MOST_SHOWN)
    if isinstance(value, TokenChain):
        extra = [f"lora {value.lora[0]}"] if value.lora else []
        extra += [f"salt {value.salt}"] if value.salt is not None else []
        extra += [_image(image) for image in value.images]
        return f"<{' '.join([*shortened(value.tokens, 'tokens', _MOST_SHOWN), *extra])}>"
    return str(value)


def _image(image: Image) -> str:
    length = f"+{image.length}" if image.length != 1 else ""
    return f"image {image.identifier}@{image.offset}{length}"
