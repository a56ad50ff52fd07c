"""The protocols that targets speak at the queue, index and pool levels, and what a target can do.

A native target is any class with these methods; nothing has to be imported or inherited. The
required part drives it, the optional part (looked up on the instance, must be callable) shows
its inside. Managers and kernels are not covered here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from poolproof.contract.errors import PoolproofError
from poolproof.contract.index_commands import KEY_KINDS
from poolproof.contract.level import Level

__all__ = [
    "CHAIN_VERBS",
    "CONTRACT_VERSION",
    "INDEX_OBSERVERS",
    "INDEX_VERBS",
    "POOL_OBSERVERS",
    "Capabilities",
    "IndexTarget",
    "PoolTarget",
    "QueueTarget",
    "TargetError",
    "capabilities_of",
]

CONTRACT_VERSION = 1

QUEUE_VERBS = ("popleft", "popleft_n", "remove", "append", "append_n", "prepend_n")
QUEUE_REQUIRED = ("popleft", "remove", "append", "num_free", "free_order")
INDEX_VERBS = ("insert", "pop", "get", "contains", "clear")
INDEX_REQUIRED = ("insert", "pop", "get")
INDEX_OBSERVERS = ("num_keys", "carriers")
POOL_REQUIRED = ("allocate", "free", "cache", "num_free")
POOL_OPTIONAL_VERBS = ("evict", "reset")
CHAIN_VERBS = ("cache_chain", "lookup_chain", "cache_partial", "usage")
POOL_OBSERVERS = ("free_order", "free_neighbours", "ref_count", "block_hash", "take_events")


class TargetError(PoolproofError):
    """A target that cannot be run at all; the message names the cause and the next step."""


class PoolTarget(Protocol):
    """A native pool; docs/contract.md says what each operation means in every profile."""

    profile: dict[str, Any]

    def allocate(self, n: int, /) -> list[int]: ...
    def touch(self, block_ids: list[int], /) -> None: ...
    def free(self, block_ids: list[int], /) -> None: ...
    def cache(self, block_ids: list[int], hashes: list[Any], /) -> None: ...
    def lookup(self, block_hash: Any, /) -> int | None: ...
    def num_free(self) -> int: ...


class QueueTarget(Protocol):
    """A native free queue over block ids; batch forms are optional."""

    def popleft(self) -> int: ...
    def remove(self, block_id: int, /) -> None: ...
    def append(self, block_id: int, /) -> None: ...
    def num_free(self) -> int: ...
    def free_order(self) -> list[int]: ...


class IndexTarget(Protocol):
    """A native index: which blocks carry a key. `contains`, `clear`, `num_keys` are optional."""

    def insert(self, key: Any, block_id: int, /) -> object: ...
    def pop(self, key: Any, block_id: int, /) -> int | None: ...
    def get(self, key: Any, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Which verbs a target has and what it lets us see.

    `key_kinds` are the kinds of keys that an index takes, names of `index_commands.KEY_KINDS`.
    """

    level: Level
    verbs: frozenset[str]
    observers: frozenset[str]
    key_kinds: tuple[str, ...] = ()

    def sees(self, observer: str) -> bool:
        """Whether the target offers this optional method."""
        return observer in self.observers


def capabilities_of(instance: object) -> Capabilities:
    """What `instance` can do. Raises TargetError when a required method is missing."""

    def has(name: str) -> bool:
        return callable(getattr(instance, name, None))

    name = type(instance).__name__
    if has("popleft") and not has("allocate"):
        _require(name, Level.QUEUE, [verb for verb in QUEUE_REQUIRED if not has(verb)])
        return Capabilities(
            Level.QUEUE,
            frozenset(verb for verb in QUEUE_VERBS if has(verb)),
            frozenset({"free_neighbours"} if has("free_neighbours") else ()),
        )
    if has("insert") and (has("pop") or has("get")) and not has("allocate"):
        _require(name, Level.INDEX, [verb for verb in INDEX_REQUIRED if not has(verb)])
        return Capabilities(
            Level.INDEX,
            frozenset(verb for verb in INDEX_VERBS if has(verb)),
            frozenset(observer for observer in INDEX_OBSERVERS if has(observer)),
            _key_kinds(name, getattr(instance, "key_kinds", ("bytes",))),
        )
    missing = [verb for verb in POOL_REQUIRED if not has(verb)]
    if not has("acquire"):
        missing += [verb for verb in ("lookup", "touch") if not has(verb)]
    _require(name, Level.POOL, missing)
    verbs = (*POOL_REQUIRED, "acquire", "lookup", "touch", *POOL_OPTIONAL_VERBS, *CHAIN_VERBS)
    return Capabilities(
        Level.POOL,
        frozenset(verb for verb in verbs if has(verb) and verb != "num_free"),
        frozenset(observer for observer in POOL_OBSERVERS if has(observer)),
    )


def _key_kinds(name: str, declared: Any) -> tuple[str, ...]:
    """The kinds of keys that an index declares. Raises TargetError for what is none."""
    kinds = tuple(declared) if isinstance(declared, tuple | list) else ()
    if not kinds or not all(isinstance(kind, str) and kind in KEY_KINDS for kind in kinds):
        raise TargetError(
            f"{name}.key_kinds must be a tuple with some of {', '.join(map(repr, KEY_KINDS))}, "
            f"not {declared!r:.80}"
        )
    return kinds


def _require(name: str, level: Level, missing: list[str]) -> None:
    if missing:
        raise TargetError(
            f"{name} lacks {', '.join(f'{verb}()' for verb in missing)}, which "
            f"{level.with_article} target needs; run `poolproof new FILE` for a skeleton with "
            "every method"
        )
