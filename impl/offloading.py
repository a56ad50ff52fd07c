"""Keeps full blocks in host memory: an index over its places, and the transfers to and from it.

Transfers go beside the steps of the engine and end in any order, or fail. So whatever one touches
is pinned until it has ended: a block that is being stored is referenced (vllm#29870), a place that
is being written or read is not given to another block (sglang#31427). What is being stored can be
found once it has arrived. A load waits for the steps that were planned before it, because they may
still write into the blocks that it gets (vllm#45357). Where several workers share every step, what
one of them lacks nobody has: a transfer has ended once it has on every rank, and is done if it is
on each of them (vllm-omni#5636).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.sizing import require_int


def host_key(group: int, block_hash: bytes) -> bytes:
    """What a block of a cache group is kept under. Hashes are all of one length."""
    return block_hash + bytes([group]) if group else block_hash


@dataclass(slots=True)
class Kept:
    """What one place holds: the block with that key, once `is_ready`; transfers that use it."""

    key: bytes
    place: int
    is_ready: bool = False
    num_users: int = 0


@dataclass(slots=True)
class Move:
    """A transfer of blocks from or to places, which begins when steps before `after` are over."""

    transfer_id: int
    is_load: bool
    blocks: list[int]
    kept: list[Kept]
    after: int


class RankNotices:
    """The transfers of `num_ranks` workers, which each move their own part of every block.

    A notice may come again (vllm#54518); what counts is which rank it is from, not how many came.
    """

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = require_int("num_ranks", num_ranks, at_least=1)
        self._missing: dict[int, set[int]] = {}
        self._failed: set[int] = set()

    def of_ranks(self, moves: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A transfer for each rank and move, whose number tells both."""
        ranks = range(self.num_ranks)
        self._missing.update((move["id"], set(ranks)) for move in moves)
        if self.num_ranks == 1:
            return moves
        return [
            {**move, "id": move["id"] * self.num_ranks + rank, "rank": rank}
            for move in moves
            for rank in ranks
        ]

    def heard(self, transfer_id: int, is_done: bool) -> tuple[int, bool] | None:
        """The move that is over with this notice, and whether it is done on all ranks."""
        number, rank = divmod(transfer_id, self.num_ranks)
        missing = self._missing.get(number)
        if missing is None or rank not in missing:
            return None
        missing.remove(rank)
        if not is_done:
            self._failed.add(number)
        if missing:
            return None
        del self._missing[number]
        all_done = number not in self._failed
        self._failed.discard(number)
        return number, all_done

    def missing_of(self, number: int) -> tuple[tuple[int, ...], bool]:
        """The ranks that have not ended a move, and whether it has failed on another."""
        return tuple(sorted(self._missing.get(number, ()))), number in self._failed


class Offloader:
    """`num_places` blocks of host memory, used in the order in which they were last of use.

    `pool` has the blocks of the device, which count `block_size` tokens.
    """

    def __init__(self, pool: BlockPool, block_size: int, num_places: int) -> None:
        self.block_size = block_size
        self._pool = pool
        self._free_places = list(range(require_int("num_places", num_places, at_least=1)))
        self._index: dict[bytes, Kept] = {}  # the one that is given up first comes first
        self._waiting: list[Move] = []
        self._under_way: dict[int, Move] = {}
        self._num_moves = 0

    @property
    def is_busy(self) -> bool:
        """Whether a transfer is under way, or waits to begin."""
        return bool(self._waiting or self._under_way)

    def num_found(self, keys: Sequence[bytes]) -> int:
        """How many of the blocks, from the first on, can be loaded."""
        return sum(1 for _ in takewhile(self._is_found, keys))

    def load(self, blocks: list[int], keys: list[bytes], after: int) -> int:
        """Bring what was found into blocks, which the caller holds until it has ended.

        It begins once all steps before number `after` are answered. Returns its number.
        """
        kept = [self._index[key] for key in keys]
        for entry in kept:
            self._index[entry.key] = self._index.pop(entry.key)
            self._use(entry)
        return self._move(blocks, kept, after, is_load=True)

    def store(self, blocks: list[int], keys: list[bytes]) -> None:
        """Keep blocks that are computed; those that are kept already, or have no place, are not."""
        chosen: list[tuple[int, Kept]] = []
        for block, key in zip(blocks, keys, strict=True):
            if key in self._index:
                continue
            place = self._take_place()
            if place is None:
                break
            self._index[key] = entry = Kept(key, place)
            self._use(entry)
            chosen.append((block, entry))
        if chosen:
            ids = [block for block, _ in chosen]
            self._pin(ids)
            self._move(ids, [entry for _, entry in chosen], 0, is_load=False)

    def begin(self, oldest_step: int) -> list[dict[str, Any]]:
        """The transfers that begin with a step, given the oldest that is not answered yet."""
        begun = [move for move in self._waiting if self._may_begin(move, oldest_step)]
        self._waiting = [move for move in self._waiting if move not in begun]
        self._under_way.update((move.transfer_id, move) for move in begun)
        return [
            {
                "id": move.transfer_id,
                "kind": "load" if move.is_load else "store",
                "blocks": move.blocks,
                "places": [entry.place for entry in move.kept],
            }
            for move in begun
        ]

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        """A transfer has ended; where not `is_done`, nobody knows how much of it was moved."""
        move = self._under_way.pop(transfer_id)
        for entry in move.kept:
            self._release(entry)
            if is_done:
                entry.is_ready = True
            else:
                self._forget(entry)
        if not move.is_load:
            self._unpin(move.blocks)

    def under_way(self) -> list[int]:
        """The transfers that have begun and not ended, by number, the oldest first."""
        return sorted(self._under_way)

    def clear(self) -> None:
        """Forget everything; no transfer is under way."""
        for entry in list(self._index.values()):
            self._forget(entry)

    def _is_found(self, key: bytes) -> bool:
        entry = self._index.get(key)
        return entry is not None and entry.is_ready

    def _may_begin(self, move: Move, oldest_step: int) -> bool:
        return oldest_step >= move.after

    def _move(self, blocks: list[int], kept: list[Kept], after: int, *, is_load: bool) -> int:
        self._num_moves += 1
        self._waiting.append(Move(self._num_moves, is_load, blocks, kept, after))
        return self._num_moves

    def _pin(self, blocks: list[int]) -> None:
        self._pool.touch(blocks)

    def _unpin(self, blocks: list[int]) -> None:
        self._pool.free(blocks)

    def _use(self, entry: Kept) -> None:
        entry.num_users += 1

    def _release(self, entry: Kept) -> None:
        """A transfer has done with a place; it is free if nobody finds it any more."""
        entry.num_users -= 1
        if not entry.num_users and self._index.get(entry.key) is not entry:
            self._free_places.append(entry.place)

    def _take_place(self) -> int | None:
        """A place for a block; None while all are in use."""
        if not self._free_places:
            idle = next((e for e in self._index.values() if not e.num_users), None)
            if idle is None:
                return None
            self._forget(idle)
        return self._free_places.pop()

    def _forget(self, entry: Kept) -> None:
        """Nobody finds it from now on."""
        if self._index.get(entry.key) is entry:
            del self._index[entry.key]
            if not entry.num_users:
                self._free_places.append(entry.place)
