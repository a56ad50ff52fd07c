"""What a pool says when it refuses, word for word: the operation, what was wrong, what to do."""

import re
from typing import Any

import pytest

from poolproof.impl.block_pool import BlockPool


def strict_pool(**profile: Any) -> BlockPool:
    """Block 0 is held and cached, block 1 held, block 2 free, block 3 the null block."""
    chosen = {"null_block": 3, "recache": "forbidden", "keys": "partial", **profile}
    pool = BlockPool(4, **chosen)
    pool.allocate(2)
    pool.cache([0], [b"a"])
    return pool


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


def null(operation: str, position: int = 0) -> str:
    return (
        f"{operation}: block 3 at position {position} is the null block, which nobody holds; "
        "leave it out or build the pool with null_in_lists='ignored'"
    )


def no_id(operation: str, block_id: object, position: int = 0) -> str:
    return (
        f"{operation}: {block_id!r} at position {position} is not a block id; "
        "ids are ints from 0 to 3"
    )


def no_list(operation: str) -> str:
    return f"{operation}: block_ids must be a list of block ids, not 5"


REFUSALS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("allocate", (-1,), {}, "allocate: n must be an int of at least 0, not -1"),
    ("touch", (5,), {}, no_list("touch")),
    ("touch", ([0, 3],), {}, null("touch", 1)),
    ("touch", ([0, 4],), {}, no_id("touch", 4, 1)),
    (
        "touch",
        ([2],),
        {},
        (
            "touch: block 2 is free and carries no hash, so its content is nobody's; "
            "it was evicted since the lookup, look it up again"
        ),
    ),
    ("free", (5,), {}, no_list("free")),
    ("free", ([3],), {}, null("free")),
    ("free", ([True],), {}, no_id("free", True)),
    (
        "free",
        ([0, 1, 0],),
        {},
        "free: block 0 stands 2 time(s) in the list but has 1 reference(s)",
    ),
    ("evict", (5,), {}, no_list("evict")),
    ("evict", ([3],), {}, null("evict")),
    ("evict", ([-1],), {}, no_id("evict", -1)),
    ("cache", (5, []), {}, no_list("cache")),
    ("cache", ([3], [b"x"]), {}, null("cache")),
    ("cache", (["1"], [b"x"]), {}, no_id("cache", "1")),
    ("cache", ([1], 5), {}, "cache: hashes must be a list of bytes, not 5"),
    ("cache", ([1], []), {}, "cache: 1 block ids but 0 hashes"),
    ("cache", ([1], ["x"]), {}, "cache: a block hash must be bytes, not 'x'"),
    (
        "cache",
        ([1], [b"x"]),
        {"group": -1},
        "cache: group must be an int of at least 0, not -1",
    ),
    ("cache", ([1, 1], [b"x", b"y"]), {}, "cache: block 1 stands 2 times in the list"),
    (
        "cache",
        ([2], [b"x"]),
        {},
        "cache: block 2 is free; only its holder can say what is in it",
    ),
    (
        "cache",
        ([0], [b"x"]),
        {},
        (
            "cache: block 0 carries another hash already, and this pool has "
            "recache='forbidden'; evict it first"
        ),
    ),
    ("cache_partial", (3, b"x"), {"num_tokens": 1}, null("cache_partial")),
    ("cache_partial", (9, b"x"), {"num_tokens": 1}, no_id("cache_partial", 9)),
    (
        "cache_partial",
        (1, "x"),
        {"num_tokens": 1},
        "cache_partial: a block hash must be bytes, not 'x'",
    ),
    (
        "cache_partial",
        (1, b"x"),
        {"num_tokens": 0},
        "cache_partial: num_tokens must be an int of at least 1, not 0",
    ),
    (
        "cache_partial",
        (1, b"x"),
        {"num_tokens": 1, "group": True},
        "cache_partial: group must be an int of at least 0, not True",
    ),
    (
        "cache_partial",
        (2, b"x"),
        {"num_tokens": 1},
        "cache_partial: block 2 is free; only its holder can say what is in it",
    ),
]


@pytest.mark.parametrize(("operation", "arguments", "options", "message"), REFUSALS)
def test_misuse_is_told_word_for_word(
    operation: str, arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=exactly(message)):
        getattr(strict_pool(), operation)(*arguments, **options)


def test_a_pool_of_whole_blocks_has_no_partial_keys() -> None:
    told = "cache_partial: the pool keeps one key a block; use keys='partial'"
    with pytest.raises(ValueError, match=exactly(told)):
        strict_pool(keys="block").cache_partial(1, b"x", num_tokens=1)


def test_a_pool_that_cannot_give_so_many_says_how_many_there_are() -> None:
    pool = strict_pool()
    told = "allocate: 2 blocks asked for, 1 of 3 free; free some or ask for fewer"
    with pytest.raises(MemoryError, match=exactly(told)):
        pool.allocate(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_blocks": 0}, "num_blocks must be an int of at least 1, not 0"),
        ({"enable_caching": 1}, "enable_caching must be True or False, not 1"),
        ({"null_block": 4}, "null_block must be None or a block id from 0 to 3, not 4"),
        (
            {"eviction": "fifo"},
            "eviction must be one of 'lru', 'unhashed-first', 'lifo', not 'fifo'",
        ),
    ],
)
def test_a_pool_that_cannot_be_built_says_why(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=exactly(message)):
        BlockPool(**{"num_blocks": 4, **arguments})
