"""What can be seen of a target, and what the outside world knows about it.

An observation is read from the target alone: its counter, its walk, its counts, its hashes. A
ledger is kept outside, from the commands given and the answers received: who holds which block,
which keys a block was given, in which order the profile says that free blocks are reused. The
invariants compare the one with the other. Reading a target is the harness's work, not done here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from poolproof.contract.content import Key
from poolproof.contract.index_commands import IndexKey

__all__ = [
    "IndexLedger",
    "IndexObservation",
    "Neighbours",
    "PoolLedger",
    "PoolObservation",
    "QueueLedger",
    "QueueObservation",
]

Neighbours = tuple[int | None, int | None] | None
"""A block's neighbours in the free queue (None: an end of it); None for a block outside it."""


@dataclass(frozen=True, slots=True)
class PoolObservation:
    """What a pool shows of itself; a part that it does not show is None.

    `free_order` is the walk from the head. `block_hashes` and `ref_counts` are indexed by block
    id. `lookups` holds the answer for each key that was asked.
    """

    num_blocks: int
    num_free: int
    free_order: Sequence[int] | None = None
    ref_counts: Sequence[int] | None = None
    block_hashes: Sequence[Key | None] | None = None
    neighbours: Sequence[Neighbours] | None = None
    lookups: Mapping[Key, int | None] | None = None


@dataclass(frozen=True, slots=True)
class PoolLedger:
    """What is known about a pool from outside.

    `holders[b]` are the command numbers whose references to block b are outstanding; `keys[b]`
    the keys that block b was given and must still have, the first of them its block hash;
    `free_order` the blocks that must be free, in the profile's order when `ordered` is true. At
    manager level the holders are sequences, and `owner_noun` says so.
    """

    holders: Mapping[int, Sequence[int]]
    keys: Mapping[int, Sequence[Key]]
    carriers: Mapping[Key, Sequence[int]]
    free_order: Sequence[int]
    null_block: int | None = None
    ordered: bool = True
    owner_noun: str = "command"


@dataclass(frozen=True, slots=True)
class QueueObservation:
    """What a free queue shows of itself."""

    num_blocks: int
    num_free: int
    free_order: Sequence[int]
    neighbours: Sequence[Neighbours] | None = None


@dataclass(frozen=True, slots=True)
class QueueLedger:
    """Which blocks must be in the queue, in which order."""

    free_order: Sequence[int]


@dataclass(frozen=True, slots=True)
class IndexObservation:
    """What an index answered: to `get` by key, to `contains` by pair, and all that it lists.

    `num_keys` is None where it shows no number of keys.
    """

    found: Mapping[IndexKey, int | None]
    members: Mapping[tuple[IndexKey, int], bool]
    listed: Mapping[IndexKey, Sequence[int]]
    num_keys: int | None = None


@dataclass(frozen=True, slots=True)
class IndexLedger:
    """Which blocks must be found under which key; a key without blocks stands nowhere."""

    carriers: Mapping[IndexKey, Collection[int]]
