"""Contracts of one step of the abstract pool, as plain Python: the description that Z3 proves.

A pool of one block with any count, hash and flags; the step is the effect in `pool_model.py`, run
by `ConcreteLogic` over symbolic integers and bools. What is confirmed here of the running step is
proved there of the formulas, which is one more thread of the bridge between the two.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import ConcreteLogic
from poolproof.exploration.proof.model import State
from poolproof.exploration.proof.pool_invariants import counter, free_iff_unheld, index_is_hashes
from poolproof.exploration.proof.pool_model import allocate, cache, free, touch, without_hash

__all__ = ["allocating", "caching", "evicting", "freeing", "touching"]

_LOGIC = ConcreteLogic({"Block": (0,), "Hash": (0, 1), "Reference": (0,), "Int": (0, 1)})


def touching(count: int, hashed: bool, block_hash: bool) -> bool:
    """`touch` of a block that is held or cached.

    pre: count >= 0 and (count > 0 or hashed)
    post: _
    """
    before = _pool(count, hashed, block_hash)
    after = before.after(touch(_LOGIC, before, 0, 0))
    return _is_right(after) and after.count(0) == count + 1 and after.hashed(0) == hashed


def freeing(count: int, hashed: bool, block_hash: bool, lifo: bool) -> bool:
    """`free` of a held block.

    pre: count >= 1
    post: _
    """
    before = _pool(count, hashed, block_hash, lifo=lifo)
    after = before.after(free(_LOGIC, before, 0))
    return _is_right(after) and after.count(0) == count - 1 and after.hashed(0) == hashed


def allocating(hashed: bool, block_hash: bool) -> bool:
    """`allocate` of the only block, which is free.

    post: _
    """
    before = _pool(0, hashed, block_hash)
    after = before.after(allocate(_LOGIC, before, 0))
    return _is_right(after) and after.count(0) == 1 and not after.hashed(0)


def caching(count: int, hashed: bool, block_hash: bool, new_hash: bool) -> bool:
    """`cache` of a held block under one of two hashes.

    pre: count >= 1
    post: _
    """
    before = _pool(count, hashed, block_hash)
    after = before.after(cache(_LOGIC, before, 0, int(new_hash)))
    return _is_right(after) and after.hashed(0) and after.hash(0) == int(new_hash)


def evicting(count: int, hashed: bool, block_hash: bool) -> bool:
    """`evict`, of a free block or of one that is held.

    pre: count >= 0
    post: _
    """
    before = _pool(count, hashed, block_hash)
    after = before.after(without_hash(_LOGIC, before, 0))
    return _is_right(after) and after.count(0) == count and not after.hashed(0)


def _pool(count: int, hashed: bool, block_hash: bool, *, lifo: bool = False) -> State:
    queued = count == 0
    number = int(block_hash)
    return State(
        {
            "lifo": lifo,
            "unhashed_first": False,
            "keep_first": False,
            "keep_last": False,
            "recache_forbidden": False,
            "null": lambda _: False,
            "count": lambda _: count,
            "holder": lambda _b, _i: 0,
            "live": lambda _: count > 0,
            "on": lambda _: 0,
            "place": lambda _: 0,
            "queued": lambda _: queued,
            "first": 0,
            "end": 1 if queued else 0,
            "at": lambda _: 0,
            "index": lambda _: 0,
            "num_free": 1 if queued else 0,
            "hashed": lambda _: hashed,
            "hash": lambda _: number,
            "indexed": lambda h, _: hashed and h == number,
            "joined": lambda _: 0,
            "clock": 1,
        }
    )


def _is_right(s: State) -> bool:
    return all(fact(_LOGIC, s) for fact in (free_iff_unheld, counter, index_is_hashes))
