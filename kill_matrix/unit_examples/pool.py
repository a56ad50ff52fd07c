"""Unit examples of a block pool."""

from __future__ import annotations

from typing import Any

from poolproof.kill_matrix.unit_examples.example import Book, Rules

__all__ = ["POOL_EXAMPLES"]

POOL_EXAMPLES = Book()
example = POOL_EXAMPLES.add


def two_hashes(rules: Rules) -> tuple[bytes, bytes]:
    """Two block hashes."""
    length = rules.usual_hash_bytes
    return b"\x01" * length, b"\x02" * length


def allocated(pool: Any, count: int) -> list[int]:
    """The blocks of an allocation; some pools answer which hashes they evicted as well."""
    answer = pool.allocate(count)
    tells = isinstance(answer, tuple) and any(isinstance(part, list) for part in answer)
    return list(answer[0] if tells else answer)


def keeps_what_is_free(rules: Rules) -> bool:
    """Cached blocks stay cached until they are evicted."""
    return bool(rules.retention == "exact")


@example()
def allocated_blocks_are_distinct(pool: Any, rules: Rules) -> None:
    """Three blocks are three blocks, and the null block is none of them."""
    num_free = pool.num_free()
    blocks = allocated(pool, 3)
    assert len(set(blocks)) == 3
    assert rules.null_block not in blocks
    assert pool.num_free() == num_free - 3


@example()
def allocating_nothing_gives_nothing(pool: Any, _rules: Rules) -> None:
    """Zero is a count."""
    assert allocated(pool, 0) == []


@example()
def a_full_pool_refuses(pool: Any, _rules: Rules) -> None:
    """There is nothing left to give."""
    allocated(pool, pool.num_free())
    assert pool.num_free() == 0
    try:
        pool.allocate(1)
    except (ValueError, MemoryError):
        return
    raise AssertionError("a full pool gave a block")


@example()
def freed_blocks_are_free(pool: Any, _rules: Rules) -> None:
    """What was taken comes back."""
    num_free = pool.num_free()
    pool.free(allocated(pool, 3))
    assert pool.num_free() == num_free


@example()
def freed_blocks_are_used_again(pool: Any, _rules: Rules) -> None:
    """The whole pool can be taken twice."""
    first = allocated(pool, pool.num_free())
    pool.free(list(first))
    assert set(allocated(pool, len(first))) == set(first)


@example("lookup")
def a_cached_block_is_found(pool: Any, rules: Rules) -> None:
    """Under its hash, and under no other."""
    first, second = two_hashes(rules)
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    assert pool.lookup(first) == block
    assert pool.lookup(second) is None


@example("lookup", "touch", suits=keeps_what_is_free)
def a_cached_block_is_revived(pool: Any, rules: Rules) -> None:
    """It is found after it was freed, and is held again once it is touched."""
    first, _ = two_hashes(rules)
    num_free = pool.num_free()
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.free([block])
    assert pool.lookup(first) == block
    pool.touch([block])
    assert pool.num_free() == num_free - 1


@example("touch")
def a_shared_block_waits_for_its_last_owner(pool: Any, rules: Rules) -> None:
    """Two references need two frees."""
    first, _ = two_hashes(rules)
    num_free = pool.num_free()
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.touch([block])
    pool.free([block])
    assert pool.num_free() == num_free - 1
    pool.free([block])
    assert pool.num_free() == num_free


@example("lookup")
def a_block_that_is_used_again_is_forgotten(pool: Any, rules: Rules) -> None:
    """Its hash spoke of what it held before."""
    first, _ = two_hashes(rules)
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.free([block])
    allocated(pool, pool.num_free())
    assert pool.lookup(first) is None


@example("lookup", "evict")
def an_evicted_block_is_forgotten(pool: Any, rules: Rules) -> None:
    """It stays with whoever holds it."""
    first, _ = two_hashes(rules)
    (block,) = allocated(pool, 1)
    num_free = pool.num_free()
    pool.cache([block], [first])
    pool.evict([block])
    assert pool.lookup(first) is None
    assert pool.num_free() == num_free


@example("lookup", "reset")
def a_reset_forgets_everything(pool: Any, rules: Rules) -> None:
    """Once nobody holds anything."""
    first, _ = two_hashes(rules)
    (block,) = allocated(pool, 1)
    pool.cache([block], [first])
    pool.free([block])
    assert pool.reset() is True
    assert pool.lookup(first) is None


@example("reset")
def a_reset_is_refused_while_blocks_are_held(pool: Any, _rules: Rules) -> None:
    """Somebody still reads them."""
    allocated(pool, 1)
    assert pool.reset() is False


@example(suits=lambda rules: rules.eviction == "lru")
def the_block_freed_first_is_used_first(pool: Any, _rules: Rules) -> None:
    """The order of `free` is the order of eviction."""
    first, second = allocated(pool, pool.num_free())[:2]
    pool.free([second])
    pool.free([first])
    assert allocated(pool, 2) == [second, first]


@example("free_order", suits=lambda rules: rules.eviction == "lifo")
def the_block_freed_last_is_used_first(pool: Any, _rules: Rules) -> None:
    """Each freed block goes to the head."""
    first, second = allocated(pool, 2)
    pool.free([first])
    pool.free([second])
    assert allocated(pool, 1) == [second]
