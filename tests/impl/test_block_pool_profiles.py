"""What each profile value of the block pool means."""

import pytest

from poolproof.impl.block_pool import BlockPool

# How many blocks are taken away first: bools could be taken for blocks 0 and 1.
low_and_high_ids = pytest.mark.parametrize("skip", [0, 2])


def freed_order(eviction: str, skip: int, given: list[int], hashed: list[int]) -> list[int]:
    """The queue after one free of `given` (numbers from 0), with two blocks free before it."""
    pool = BlockPool(skip + 6, eviction=eviction)
    pool.allocate(skip)
    ids = pool.allocate(4)
    pool.cache([ids[i] for i in hashed], [b"%d" % i for i in hashed])
    pool.free([ids[i] for i in given])
    order = pool.free_order()
    backwards = []
    block_id: int | None = order[-1]
    while block_id is not None:
        backwards.append(block_id)
        neighbours = pool.free_neighbours(block_id)
        assert neighbours is not None
        block_id = neighbours[0]
    assert backwards == order[::-1]
    assert pool.num_free() == len(order)
    return [block_id - skip for block_id in order]


@low_and_high_ids
def test_lru_sends_every_block_to_the_tail_in_the_order_given(skip: int) -> None:
    assert freed_order("lru", skip, [3, 1, 0], [1]) == [4, 5, 3, 1, 0]


@low_and_high_ids
def test_lifo_reuses_the_last_given_first(skip: int) -> None:
    assert freed_order("lifo", skip, [3, 1, 0], [1]) == [0, 1, 3, 4, 5]


@low_and_high_ids
def test_unhashed_first_reuses_the_first_given_unhashed_block_first(skip: int) -> None:
    assert freed_order("unhashed-first", skip, [3, 1, 2, 0], [1, 0]) == [3, 2, 4, 5, 1, 0]


@low_and_high_ids
def test_unhashed_first_with_only_hashed_blocks_is_lru(skip: int) -> None:
    assert freed_order("unhashed-first", skip, [3, 0], [0, 3]) == [4, 5, 3, 0]


def test_without_caching_unhashed_first_sends_every_block_to_the_head() -> None:
    pool = BlockPool(6, eviction="unhashed-first", enable_caching=False)
    ids = pool.allocate(4)
    pool.free(ids[::-1])
    assert pool.free_order() == [3, 2, 1, 0, 4, 5]


@low_and_high_ids
@pytest.mark.parametrize(("eviction", "order"), [("lifo", [1, 0]), ("lru", [0, 1])])
def test_a_shared_block_waits_for_its_last_owner(
    skip: int, eviction: str, order: list[int]
) -> None:
    pool = BlockPool(skip + 2, eviction=eviction)
    pool.allocate(skip)
    ids = pool.allocate(2)
    pool.touch(ids[1:])
    pool.free(ids)
    assert pool.free_order() == ids[:1]
    pool.free(ids[1:])
    assert pool.free_order() == [ids[i] for i in order]


@low_and_high_ids
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize(
    ("duplicates", "carriers"), [("kept", [0, 1]), ("first", [0]), ("last", [1])]
)
def test_duplicates(skip: int, batched: bool, duplicates: str, carriers: list[int]) -> None:
    pool = BlockPool(skip + 4, duplicates=duplicates)
    pool.allocate(skip)
    ids = pool.allocate(3)
    if batched:
        pool.cache(ids, [b"a", b"a", b"b"])
    else:
        for block_id, block_hash in zip(ids, [b"a", b"a", b"b"], strict=True):
            pool.cache([block_id], [block_hash])
    assert [i for i in (0, 1) if pool.block_hash(ids[i]) == b"a"] == carriers
    assert [i for i in (0, 1) if pool.block_hash(ids[i]) is None] == [
        i for i in (0, 1) if i not in carriers
    ]
    assert pool.lookup(b"a") in [ids[i] for i in carriers]
    assert pool.lookup(b"b") == ids[2]
    for i in carriers:
        assert pool.lookup(b"a") is not None
        pool.evict([ids[i]])
    assert pool.lookup(b"a") is None


@pytest.mark.parametrize(
    ("duplicates", "keys"), [("first", [[(b"a", 0)], []]), ("last", [[], [(b"a", 0)]])]
)
def test_the_loser_of_a_hash_loses_its_other_hash_too(
    duplicates: str, keys: list[list[tuple[bytes, int]]]
) -> None:
    pool = BlockPool(4, duplicates=duplicates)
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"b"])
    pool.cache(ids[1:], [b"a"])
    assert [pool.block_hashes(b) for b in ids] == keys
    assert pool.lookup(b"b") is None


@low_and_high_ids
def test_recache_forbidden_refuses_another_hash_and_changes_nothing(skip: int) -> None:
    pool = BlockPool(skip + 4, recache="forbidden")
    pool.allocate(skip)
    ids = pool.allocate(3)
    pool.cache(ids[1:2], [b"a"])
    with pytest.raises(ValueError, match=f"block {ids[1]} carries another hash already"):
        pool.cache(ids, [b"x", b"y", b"z"])
    assert [pool.block_hash(b) for b in ids] == [None, b"a", None]
    assert [pool.lookup(h) for h in (b"x", b"y", b"z", b"a")] == [None, None, None, ids[1]]


@low_and_high_ids
def test_recache_forbidden_allows_the_same_hash_and_a_new_one_after_evict(skip: int) -> None:
    pool = BlockPool(skip + 4, recache="forbidden")
    pool.allocate(skip)
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"b"])
    pool.cache(ids, [b"a", b"b"])
    pool.evict(ids[:1])
    pool.cache(ids, [b"c", b"b"])
    assert [pool.block_hash(b) for b in ids] == [b"c", b"b"]
    assert pool.lookup(b"a") is None


@pytest.mark.parametrize("null_block", [0, 4])
@pytest.mark.parametrize("misuse", ["raises", "ignores", "undefined"])
def test_ignored_null_blocks_are_skipped_everywhere(null_block: int, misuse: str) -> None:
    pool = BlockPool(
        6, null_block=null_block, null_in_lists="ignored", misuse=misuse, keys="partial"
    )
    a, b = pool.allocate(2)
    pool.cache([null_block, a, null_block, b], [b"x", b"a", b"y", b"b"])
    assert [pool.lookup(h) for h in (b"x", b"a", b"y", b"b")] == [None, a, None, b]
    pool.cache_partial(null_block, b"p", num_tokens=2)
    assert pool.lookup(b"p") is None
    pool.touch([null_block, a])
    pool.free([a, null_block, null_block, a])
    assert pool.free_order()[-1] == a
    assert null_block not in pool.free_order()
    pool.evict([null_block, b])
    assert pool.lookup(b"b") is None
    assert pool.num_free() == 4


@pytest.mark.parametrize("null_block", [0, 4])
@pytest.mark.parametrize("operation", ["touch", "free", "evict"])
def test_null_blocks_in_lists_are_misuse_by_default(null_block: int, operation: str) -> None:
    pool = BlockPool(6, null_block=null_block)
    ids = pool.allocate(3)
    with pytest.raises(ValueError, match=f"{operation}: block {null_block} .* is the null block"):
        getattr(pool, operation)([*ids, null_block])
    with pytest.raises(ValueError, match=f"cache: block {null_block} .* is the null block"):
        pool.cache([ids[0], null_block], [b"a", b"b"])
    assert [pool.ref_count(b) for b in ids] == [1, 1, 1]
    assert pool.lookup(b"a") is None


def replay(events: list[dict[str, object]], *, as_set: bool) -> dict[tuple[bytes, int], int]:
    """Counts by (hash, group); asserts that a set never gets or loses a member twice."""
    mirror: dict[tuple[bytes, int], int] = {}
    for event in events:
        if event["type"] == "cleared":
            mirror.clear()
            continue
        for block_hash in event["hashes"]:
            key = (block_hash, event["group"])
            change = {"stored": 1, "removed": -1}[event["type"]]
            mirror[key] = mirror.get(key, 0) + change
            assert mirror[key] >= 0
            assert not as_set or mirror[key] <= 1
    return {key: count for key, count in mirror.items() if count}


def short(events: list[dict[str, object]]) -> list[tuple[object, object, object]]:
    return [(event["type"], event["hashes"], event["group"]) for event in events]


def test_events_none_gives_none() -> None:
    pool = BlockPool(3)
    pool.cache(pool.allocate(1), [b"a"])
    assert pool.take_events() == []


@low_and_high_ids
def test_per_copy_events_tell_of_every_copy(skip: int) -> None:
    pool = BlockPool(skip + 3, events="per-copy")
    pool.allocate(skip)
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"a"], group=3)
    pool.evict(ids[:1])
    assert short(pool.take_events()) == [
        ("stored", [b"a"], 3),
        ("stored", [b"a"], 3),
        ("removed", [b"a"], 3),
    ]
    assert pool.take_events() == []


@low_and_high_ids
def test_per_hash_events_tell_of_the_first_copy_and_the_last(skip: int) -> None:
    pool = BlockPool(skip + 2, events="per-hash")
    pool.allocate(skip)
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"a"])
    pool.free(ids)
    pool.allocate(1)
    assert short(pool.take_events()) == [("stored", [b"a"], 0)]
    pool.allocate(1)
    assert short(pool.take_events()) == [("removed", [b"a"], 0)]


@pytest.mark.parametrize("events", ["per-copy", "per-hash"])
def test_replacing_a_hash_removes_before_it_stores_and_the_same_hash_is_silent(events: str) -> None:
    pool = BlockPool(3, events=events)
    ids = pool.allocate(1)
    pool.cache(ids, [b"a"])
    pool.cache(ids, [b"a"])
    pool.cache(ids, [b"b"])
    assert short(pool.take_events()) == [
        ("stored", [b"a"], 0),
        ("removed", [b"a"], 0),
        ("stored", [b"b"], 0),
    ]


@pytest.mark.parametrize(
    ("events", "expected"),
    [("per-copy", [("stored", [b"a"], 0), ("removed", [b"a"], 0)]), ("per-hash", [])],
)
def test_a_hash_that_the_last_carrier_takes_over_is_never_missing_from_a_mirror(
    events: str, expected: list[object]
) -> None:
    pool = BlockPool(3, duplicates="last", events=events)
    ids = pool.allocate(2)
    pool.cache(ids[:1], [b"a"])
    pool.take_events()
    pool.cache(ids[1:], [b"a"])
    assert short(pool.take_events()) == expected


@pytest.mark.parametrize("events", ["per-copy", "per-hash"])
def test_a_block_that_loses_to_the_first_carrier_is_not_announced(events: str) -> None:
    pool = BlockPool(3, duplicates="first", events=events)
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"b"])
    pool.take_events()
    pool.cache(ids[1:], [b"a"])
    assert short(pool.take_events()) == [("removed", [b"b"], 0)]


def test_reset_announces_that_all_is_gone() -> None:
    pool = BlockPool(3, events="per-hash")
    ids = pool.allocate(1)
    pool.cache(ids, [b"a"])
    pool.free(ids)
    assert pool.reset() is True
    events = pool.take_events()
    assert short(events) == [("stored", [b"a"], 0), ("cleared", [], 0)]
    assert replay(events, as_set=True) == {}


def partial_pool(**profile: object) -> tuple[BlockPool, int, int]:
    pool = BlockPool(6, keys="partial", events="per-copy", **profile)
    pool.allocate(1)
    a, b = pool.allocate(2)
    return pool, a, b


def test_a_partial_key_makes_a_block_reachable() -> None:
    pool, a, _ = partial_pool()
    pool.cache_partial(a, b"p4", num_tokens=4, group=2)
    assert pool.lookup(b"p4", group=2) == a
    assert pool.block_hashes(a) == [(b"p4", 2)]


def test_a_longer_partial_key_replaces_a_shorter_one() -> None:
    pool, a, _ = partial_pool()
    pool.cache_partial(a, b"p4", num_tokens=4)
    pool.cache_partial(a, b"p2", num_tokens=2)
    pool.cache_partial(a, b"p8", num_tokens=8)
    assert pool.block_hashes(a) == [(b"p8", 0)]
    assert [pool.lookup(h) for h in (b"p2", b"p4", b"p8")] == [None, None, a]
    assert short(pool.take_events()) == [
        ("stored", [b"p4"], 0),
        ("stored", [b"p2"], 0),
        ("removed", [b"p4"], 0),
        ("removed", [b"p2"], 0),
        ("stored", [b"p8"], 0),
    ]


@pytest.mark.parametrize("num_tokens", [3, 4])
def test_a_partial_key_that_is_no_longer_is_added(num_tokens: int) -> None:
    pool, a, _ = partial_pool()
    pool.cache_partial(a, b"p4", num_tokens=4)
    pool.cache_partial(a, b"q", num_tokens=num_tokens)
    assert pool.block_hash(a) == b"p4"
    assert pool.block_hashes(a) == [(b"p4", 0), (b"q", 0)]
    assert (pool.lookup(b"p4"), pool.lookup(b"q")) == (a, a)


def test_the_same_partial_key_again_changes_nothing() -> None:
    pool, a, _ = partial_pool()
    pool.cache_partial(a, b"p4", num_tokens=4)
    pool.cache_partial(a, b"p2", num_tokens=2)
    pool.take_events()
    pool.cache_partial(a, b"p4", num_tokens=9)
    pool.cache_partial(a, b"p2", num_tokens=9)
    assert pool.block_hashes(a) == [(b"p4", 0), (b"p2", 0)]
    assert pool.take_events() == []


@pytest.mark.parametrize("recache", ["replace", "forbidden"])
@pytest.mark.parametrize("full", [b"f", b"p4"])
def test_caching_in_full_drops_the_partial_keys(recache: str, full: bytes) -> None:
    pool, a, _ = partial_pool(recache=recache)
    pool.cache_partial(a, b"p4", num_tokens=4)
    pool.cache_partial(a, b"p2", num_tokens=2)
    pool.take_events()
    pool.cache([a], [full])
    assert pool.block_hashes(a) == [(full, 0)]
    assert pool.lookup(b"p2") is None
    assert short(pool.take_events()) == [
        ("removed", [b"p4"], 0),
        ("removed", [b"p2"], 0),
        ("stored", [full], 0),
    ]
    pool.cache([a], [full])
    assert pool.take_events() == []


def test_a_full_block_keeps_its_key_and_gets_partial_ones_beside_it() -> None:
    pool, a, _ = partial_pool(recache="forbidden")
    pool.cache([a], [b"f"])
    pool.cache_partial(a, b"p4", num_tokens=4)
    pool.cache_partial(a, b"p8", num_tokens=8)
    pool.cache([a], [b"f"])
    assert pool.block_hashes(a) == [(b"f", 0), (b"p4", 0), (b"p8", 0)]
    with pytest.raises(ValueError, match="carries another hash already"):
        pool.cache([a], [b"g"])


@pytest.mark.parametrize("events", ["none", "per-copy"])
def test_eviction_by_allocation_takes_every_key_of_a_block(events: str) -> None:
    pool = BlockPool(2, keys="partial", events=events)
    ids = pool.allocate(2)
    pool.cache(ids[:1], [b"f"])
    pool.cache_partial(ids[0], b"p", num_tokens=4)
    pool.cache_partial(ids[1], b"p", num_tokens=4)
    pool.free(ids)
    pool.allocate(1)
    assert pool.block_hashes(ids[0]) == []
    assert (pool.lookup(b"f"), pool.lookup(b"p")) == (None, ids[1])
    assert replay(pool.take_events(), as_set=False) == ({(b"p", 0): 1} if events != "none" else {})


def test_the_first_carrier_of_a_partial_key_keeps_it() -> None:
    pool, a, b = partial_pool(duplicates="first")
    pool.cache_partial(a, b"p", num_tokens=4)
    pool.cache_partial(b, b"p", num_tokens=4)
    assert [pool.block_hashes(x) for x in (a, b)] == [[(b"p", 0)], []]
    # Nothing is left of the attempt: a full key of b is not taken for a promotion.
    pool.cache([b], [b"f"])
    pool.cache([b], [b"f"])
    assert pool.block_hashes(b) == [(b"f", 0)]
    assert short(pool.take_events()) == [("stored", [b"p"], 0), ("stored", [b"f"], 0)]


def test_the_last_carrier_of_a_partial_key_takes_it_over() -> None:
    pool, a, b = partial_pool(duplicates="last")
    pool.cache([a], [b"f"])
    pool.cache_partial(a, b"p", num_tokens=4)
    pool.cache_partial(b, b"p", num_tokens=4)
    assert [pool.block_hashes(x) for x in (a, b)] == [[], [(b"p", 0)]]
    assert replay(pool.take_events(), as_set=False) == {(b"p", 0): 1}


def test_partial_keys_need_the_profile() -> None:
    pool = BlockPool(3)
    [a] = pool.allocate(1)
    with pytest.raises(ValueError, match="use keys='partial'"):
        pool.cache_partial(a, b"p", num_tokens=4)
