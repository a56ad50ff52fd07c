"""KV events as engines publish them: which blocks can be found in a cache, and no longer.

The words are vLLM's (`KVEventBatch`, with `BlockStored`, `BlockRemoved` and `AllBlocksCleared`),
which routers and other engines speak as well. A batch comes with a sequence number, one higher than
that of the batch before. Both forms of the wire are read: events as maps with a "type", and as
arrays that begin with it, as older releases wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.errors import PoolproofError
from poolproof.contract.outside import shown

__all__ = [
    "AllBlocksCleared",
    "BlockHash",
    "BlockRemoved",
    "BlockStored",
    "EventBatch",
    "EventError",
    "KVEvent",
    "batch_from",
]

BlockHash = int | bytes | str
"""What an engine calls a block's content; equal hashes are meant to stand for equal prefixes."""


class EventError(PoolproofError, ValueError):
    """Something on the wire that is no batch of KV events; the message says what and where."""


@dataclass(frozen=True, slots=True)
class BlockStored:
    """Blocks can be found from now on: `hashes` in order, behind the block `parent`.

    `tokens` are those of all blocks from the parent on, `block_size` of each; where windows skip
    blocks there are more tokens than hashes. A tier that does not know the tokens tells none.
    """

    hashes: tuple[BlockHash, ...]
    parent: BlockHash | None
    tokens: tuple[int, ...]
    block_size: int
    lora: str | None = None
    medium: str | None = None
    group: int = 0
    kind: str | None = None
    extra_keys: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """One copy of each of these blocks cannot be found any more."""

    hashes: tuple[BlockHash, ...]
    medium: str | None = None
    group: int = 0


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing can be found any more."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared


@dataclass(frozen=True, slots=True)
class EventBatch:
    """What one engine, or one data-parallel rank of it, published at once."""

    sequence: int
    events: tuple[KVEvent, ...]
    rank: int = 0
    time_s: float = 0.0


_STORED = (
    "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
    "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
)  # fmt: skip
_REMOVED = ("block_hashes", "medium", "group_idx")


def batch_from(sequence: int, value: Any) -> EventBatch:
    """The batch that a decoded payload is. Raises EventError; what is not known is passed over."""
    if isinstance(value, Mapping):
        value = [value.get("ts", 0.0), value.get("events"), value.get("data_parallel_rank")]
    if not isinstance(value, Sequence) or len(value) < 2 or not isinstance(value[1], list | tuple):
        raise EventError(
            f"batch {sequence} is no KVEventBatch but {shown(value)}; the endpoint publishes "
            "something else, or another version of KV events"
        )
    rank = value[2] if len(value) > 2 and value[2] is not None else 0
    try:
        events = tuple(event for item in value[1] for event in _event(item))
        return EventBatch(sequence, events, int(rank), float(value[0]))
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise EventError(
            f"batch {sequence} has an event that cannot be read ({error}): {shown(value[1])}"
        ) from error


def _event(item: Any) -> tuple[KVEvent, ...]:
    """The event, or nothing for a type that is not known."""
    if isinstance(item, Mapping):
        kind, fields = item.get("type"), dict(item)
    else:
        kind, *rest = item
        names = {"BlockStored": _STORED, "BlockRemoved": _REMOVED}.get(str(kind), ())
        fields = dict(zip(names, rest, strict=False))
    if kind == "AllBlocksCleared":
        return (AllBlocksCleared(),)
    if kind == "BlockRemoved":
        return (
            BlockRemoved(_hashes(fields["block_hashes"]), _text(fields, "medium"), _group(fields)),
        )
    if kind != "BlockStored":
        return ()
    extra = fields.get("extra_keys")
    lora = fields.get("lora_name", fields.get("lora_id"))
    return (
        BlockStored(
            _hashes(fields["block_hashes"]),
            fields.get("parent_block_hash"),
            tuple(map(int, fields.get("token_ids") or ())),
            int(fields.get("block_size") or 0),
            None if lora is None else str(lora),
            _text(fields, "medium"),
            _group(fields),
            _text(fields, "kv_cache_spec_kind"),
            None if extra is None else tuple(map(_hashable, extra)),
        ),
    )


def _hashes(value: Any) -> tuple[BlockHash, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"block_hashes is {shown(value)}")
    for item in value:
        if not isinstance(item, int | bytes | str):
            raise TypeError(f"a hash is {shown(item)}")
    return tuple(value)


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else str(value)


def _group(fields: Mapping[str, Any]) -> int:
    return int(fields.get("group_idx") or 0)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
