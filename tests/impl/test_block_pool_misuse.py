"""Misuse of the block pool: told or ignored as the profile says, and never half done."""

from typing import Any

import pytest

from poolproof.impl.block_pool import BlockPool


class Indexable:
    """A number to Python's indexing, and no int."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __radd__(self, other: object) -> "Indexable":
        return self

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return False


def state(pool: BlockPool) -> tuple[object, ...]:
    """All that can be seen of a pool."""
    ids = range(pool.num_blocks)
    return (
        pool.free_order(),
        pool.num_free(),
        [pool.free_neighbours(b) for b in ids],
        [pool.ref_count(b) for b in ids],
        [pool.block_hashes(b) for b in ids],
        [pool.lookup(h, group=g) for h in (b"a", b"b", b"c", b"d") for g in (0, 1)],
    )


def example(misuse: str) -> BlockPool:
    """Ten blocks: 9 null; 0, 1, 4, 5 held (1 and 5 twice); 2, 6 free and cached; 3, 7, 8 free.

    Of the held ones 0 and 4 are hashed.
    """
    pool = BlockPool(
        10, null_block=9, recache="forbidden", keys="partial", events="per-copy", misuse=misuse
    )
    pool.allocate(8)
    pool.touch([1, 5])
    pool.cache([0, 4, 2, 6], [b"a", b"b", b"c", b"d"])
    pool.free([2, 6, 3, 7])
    pool.take_events()
    return pool


NO_IDS: list[Any] = [
    -1,
    -5,
    -6,
    10,
    20,
    25,
    -11,
    10**30,
    True,
    False,
    1.0,
    4.0,
    "4",
    None,
    b"4",
    [4],
]
CALLS: list[tuple[str, tuple[Any, ...], str]] = [
    *[("allocate", (n,), "n must be an int of at least 0") for n in (-1, True, False, 2.0, "2")],
    *[
        (operation, ([*start, no_id],), f"{operation}: .* is not a block id")
        for operation in ("touch", "free", "evict")
        for start in ([], [4], [0, 1])
        for no_id in [*NO_IDS, Indexable(4), Indexable(5)]
    ],
    *[
        ("cache", ([*start, no_id], [b"x"] * (len(start) + 1)), "cache: .* is not a block id")
        for start in ([], [5])
        for no_id in [*NO_IDS, Indexable(5)]
    ],
    *[
        (operation, (block_ids,), f"{operation}: block_ids must be a list")
        for operation in ("touch", "free", "evict")
        for block_ids in (None, 4)
    ],
    *[(operation, ([4, 9],), "the null block") for operation in ("touch", "free", "evict")],
    ("cache", ([5, 9], [b"x", b"y"]), "the null block"),
    ("touch", ([3],), "block 3 is free and carries no hash"),
    ("touch", ([2, 6, 7],), "block 7 is free and carries no hash"),
    ("free", ([2],), r"block 2 stands 1 time\(s\) in the list but has 0 reference"),
    ("free", ([4, 5, 8],), r"block 8 stands 1 time\(s\) in the list but has 0 reference"),
    ("free", ([4, 4],), r"block 4 stands 2 time\(s\) in the list but has 1 reference"),
    ("free", ([5, 4, 5, 5],), r"block 5 stands 3 time\(s\) in the list but has 2 reference"),
    ("cache", (None, [b"x"]), "block_ids must be a list"),
    ("cache", ([5], None), "hashes must be a list of bytes"),
    ("cache", ([5], []), "1 block ids but 0 hashes"),
    ("cache", ([1, 5], [b"x"]), "2 block ids but 1 hashes"),
    ("cache", ([5], [b"x", b"y"]), "1 block ids but 2 hashes"),
    ("cache", ([], [b"x"]), "0 block ids but 1 hashes"),
    ("cache", ([5, 5], [b"x", b"x"]), "block 5 stands 2 times"),
    ("cache", ([1, 5, 1], [b"x", b"y", b"z"]), "block 1 stands 2 times"),
    ("cache", ([5, 7], [b"x", b"y"]), "block 7 is free"),
    ("cache", ([6], [b"d"]), "block 6 is free"),
    ("cache", ([5, 4], [b"x", b"y"]), "block 4 carries another hash"),
    ("cache", ([5], ["x"]), "must be bytes, not 'x'"),
    ("cache", ([5], [(b"x", 1)]), "must be bytes"),
    ("cache", ([5], [bytearray(b"x")]), "must be bytes"),
    ("cache", ([5], [None]), "must be bytes, not None"),
]


@pytest.mark.parametrize(("operation", "arguments", "message"), CALLS)
def test_misuse_raises_with_its_reason_and_changes_nothing(
    operation: str, arguments: tuple[Any, ...], message: str
) -> None:
    pool = example("raises")
    before = state(pool)
    with pytest.raises(ValueError, match=message):
        getattr(pool, operation)(*arguments)
    assert state(pool) == before
    assert pool.take_events() == []


@pytest.mark.parametrize(("operation", "arguments", "message"), CALLS)
def test_misuse_can_be_ignored_as_a_whole(
    operation: str, arguments: tuple[Any, ...], message: str
) -> None:
    pool = example("ignores")
    before = state(pool)
    result = getattr(pool, operation)(*arguments)
    assert result == ([] if operation == "allocate" else None)
    assert state(pool) == before
    assert pool.take_events() == []


PARTIAL_CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((12, b"x"), {"num_tokens": 1}, "12 at position 0 is not a block id"),
    ((True, b"x"), {"num_tokens": 1}, "True at position 0 is not a block id"),
    ((9, b"x"), {"num_tokens": 1}, "the null block"),
    ((7, b"x"), {"num_tokens": 1}, "block 7 is free"),
    ((5, "x"), {"num_tokens": 1}, "cache_partial: a block hash must be bytes"),
    ((5, b"x"), {"num_tokens": 0}, "num_tokens must be an int of at least 1, not 0"),
    ((5, b"x"), {"num_tokens": True}, "num_tokens must be an int of at least 1, not True"),
    ((5, b"x"), {"num_tokens": 1, "group": -1}, "group must be an int of at least 0"),
    ((5, b"x"), {"num_tokens": 1, "group": None}, "group must be an int of at least 0"),
]


@pytest.mark.parametrize(("arguments", "keywords", "message"), PARTIAL_CALLS)
@pytest.mark.parametrize("misuse", ["raises", "ignores"])
def test_misuse_of_partial_keys(
    misuse: str, arguments: tuple[Any, ...], keywords: dict[str, Any], message: str
) -> None:
    pool = example(misuse)
    before = state(pool)
    if misuse == "raises":
        with pytest.raises(ValueError, match=message):
            pool.cache_partial(*arguments, **keywords)
    else:
        pool.cache_partial(*arguments, **keywords)
    assert state(pool) == before


@pytest.mark.parametrize("group", [-1, True, "0", None, 1.0])
@pytest.mark.parametrize("block_id", [1, 5])
def test_a_group_is_a_count(group: Any, block_id: int) -> None:
    pool = example("raises")
    with pytest.raises(ValueError, match="cache: group must be an int of at least 0"):
        pool.cache([block_id], [b"x"], group=group)
    assert pool.block_hashes(block_id) == []


@pytest.mark.parametrize("misuse", ["raises", "ignores", "undefined"])
def test_more_blocks_than_there_are_is_a_refusal_in_every_profile(misuse: str) -> None:
    pool = example(misuse)
    before = state(pool)
    with pytest.raises(MemoryError, match="6 blocks asked for, 5 of 9 free"):
        pool.allocate(6)
    assert state(pool) == before


@pytest.mark.parametrize("eviction", ["lru", "unhashed-first", "lifo"])
def test_an_unchecked_pool_does_the_same_for_legal_calls(eviction: str) -> None:
    pools = [BlockPool(12, eviction=eviction, misuse=misuse) for misuse in ("raises", "undefined")]
    for pool in pools:
        ids = pool.allocate(8)
        pool.cache(ids[:6], [b"a", b"b", b"c", b"d", b"b", b"c"])
        pool.cache(tuple(ids[4:6]), [b"a", b"d"])
        pool.cache(ids[5:7], [b"e", b"f"])
        pool.touch(ids[:2])
        pool.free(tuple(ids[::-1]))
        pool.touch([ids[3], ids[3]])
        pool.evict(ids[2:3])
        pool.free([ids[0]])
        pool.free([])
        assert pool.allocate(-1 if pool.profile["misuse"] == "undefined" else 0) == []
    assert state(pools[0]) == state(pools[1])
    assert pools[0].lookup(b"e") == pools[1].lookup(b"e") == 5


@pytest.mark.parametrize("as_given", [list, tuple])
def test_a_pool_that_defines_no_misuse_checks_nothing(as_given: type) -> None:
    pool = BlockPool(3, misuse="undefined")
    pool.touch(as_given([2]))
    assert pool.ref_count(2) == 1
    pool.cache(as_given([0]), as_given([b"a"]))
    assert pool.lookup(b"a") == 0
