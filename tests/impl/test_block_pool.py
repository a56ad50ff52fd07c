"""The operations of the block pool in its default profile, and what is common to all profiles.

Lists take the pool's quick test of arguments and other iterables its close look, so what matters
is shown for both. Blocks 0 and 1 are the ones that bools could be taken for: `skip` says how many
blocks are taken away first.
"""

import copy
import pickle
from typing import Any

import pytest

from poolproof.impl import block_loops
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.key_table import KeyTable

low_and_high_ids = pytest.mark.parametrize("skip", [0, 3])


def pool_after(skip: int, num_blocks: int = 9, **profile: object) -> BlockPool:
    """A pool whose next block is `skip`; the blocks before it are held for good."""
    pool = BlockPool(num_blocks, **profile)
    pool.allocate(skip)
    return pool


def test_the_profile_of_a_default_pool_has_every_key() -> None:
    assert BlockPool(2).profile == {
        "null_block": None,
        "eviction": "lru",
        "duplicates": "kept",
        "recache": "replace",
        "null_in_lists": "misuse",
        "keys": "block",
        "events": "none",
        "misuse": "raises",
        "retention": "exact",
    }


def test_the_profile_describes_the_instance() -> None:
    chosen = {
        "null_block": 1,
        "eviction": "lifo",
        "duplicates": "last",
        "recache": "forbidden",
        "null_in_lists": "ignored",
        "keys": "partial",
        "events": "per-hash",
        "misuse": "ignores",
    }
    assert BlockPool(2, **chosen).profile == {**chosen, "retention": "exact"}


@pytest.mark.parametrize("null_block", [None, 0, 1])
def test_a_pool_shows_its_sizes(null_block: int | None) -> None:
    pool = BlockPool(2, null_block=null_block, enable_caching=False)
    assert (pool.num_blocks, pool.null_block, pool.enable_caching) == (2, null_block, False)


def test_a_subclass_may_count_in_its_own_way() -> None:
    class Doubled(BlockPool):
        def ref_count(self, block_id: int) -> int:
            return 2 * super().ref_count(block_id)

    pool = Doubled(2)
    assert [pool.ref_count(block_id) for block_id in pool.allocate(1)] == [2]


def test_iterators_are_read_once() -> None:
    pool = BlockPool(4)
    a, b = pool.allocate(2)
    pool.cache(iter([a, b]), [b"a", b"b"])
    pool.touch(iter([a]))
    pool.free(iter([a, b]))
    assert (pool.lookup(b"a"), pool.lookup(b"b"), pool.ref_count(a)) == (a, b, 1)
    pool.evict(iter([a]))
    pool.cache([a], iter([b"c"]))
    assert (pool.lookup(b"a"), pool.lookup(b"c")) == (None, a)


@pytest.mark.parametrize(
    "name", ["eviction", "duplicates", "recache", "null_in_lists", "keys", "events", "misuse"]
)
@pytest.mark.parametrize("value", ["unspecified", "", None, 0])
def test_an_unknown_profile_value_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be one of '.+', not "):
        BlockPool(2, **{name: value})


@pytest.mark.parametrize("num_blocks", [0, -3, True, 2.0, None])
def test_a_pool_needs_a_block(num_blocks: object) -> None:
    with pytest.raises(ValueError, match="num_blocks must be an int of at least 1"):
        BlockPool(num_blocks)


@pytest.mark.parametrize("null_block", [-1, 3, True, "0"])
def test_the_null_block_must_be_one_of_the_ids(null_block: object) -> None:
    with pytest.raises(ValueError, match="null_block must be None or a block id from 0 to 2"):
        BlockPool(3, null_block=null_block)


def test_enable_caching_must_be_a_bool() -> None:
    with pytest.raises(ValueError, match="enable_caching must be True or False, not 1"):
        BlockPool(3, enable_caching=1)


def test_allocate_takes_from_the_head_with_one_reference_each() -> None:
    pool = BlockPool(4)
    assert pool.allocate(0) == []
    assert pool.allocate(3) == [0, 1, 2]
    assert [pool.ref_count(b) for b in range(4)] == [1, 1, 1, 0]
    assert pool.free_order() == [3]
    assert pool.num_free() == 1


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(4, null_block=2)
    assert pool.num_free() == 3
    assert pool.allocate(3) == [0, 1, 3]
    assert pool.free_neighbours(2) is None
    with pytest.raises(MemoryError):
        pool.allocate(1)


def test_a_refused_allocation_says_how_many_are_free_and_changes_nothing() -> None:
    pool = BlockPool(4)
    held = pool.allocate(2)
    pool.cache(held, [b"a", b"b"])
    pool.free(held[::-1])
    with pytest.raises(MemoryError, match="5 blocks asked for, 4 of 4 free"):
        pool.allocate(5)
    assert pool.free_order() == [2, 3, 1, 0]
    assert (pool.lookup(b"a"), pool.lookup(b"b")) == (0, 1)


@low_and_high_ids
def test_a_freed_block_keeps_its_hash_and_can_be_revived_from_the_middle(skip: int) -> None:
    pool = pool_after(skip)
    ids = pool.allocate(3)
    pool.cache(ids, [b"a", b"b", b"c"])
    pool.free(ids)
    pool.touch([ids[1]])
    assert pool.lookup(b"b") == ids[1]
    assert pool.ref_count(ids[1]) == 1
    assert pool.free_order()[-2:] == [ids[0], ids[2]]
    assert pool.free_neighbours(ids[1]) is None
    assert pool.free_neighbours(ids[2]) == (ids[0], None)


@low_and_high_ids
def test_touch_adds_a_reference_for_each_entry(skip: int) -> None:
    pool = pool_after(skip)
    [block_id] = pool.allocate(1)
    pool.cache([block_id], [b"a"])
    pool.free([block_id])
    pool.touch([block_id, block_id])
    assert pool.ref_count(block_id) == 2
    pool.touch((block_id,))
    assert pool.ref_count(block_id) == 3
    assert block_id not in pool.free_order()


@low_and_high_ids
def test_held_blocks_without_a_hash_can_be_touched(skip: int) -> None:
    pool = pool_after(skip)
    ids = pool.allocate(2)
    pool.cache(ids[:1], [b"a"])
    pool.touch(ids)
    assert [pool.ref_count(b) for b in ids] == [2, 2]


@low_and_high_ids
def test_a_block_joins_the_queue_once_at_the_entry_where_its_count_reaches_zero(skip: int) -> None:
    pool = pool_after(skip)
    first, second = pool.allocate(2)
    pool.touch([first])
    pool.free([first, second, first])
    assert pool.free_order()[-2:] == [second, first]
    assert pool.num_free() == 9 - skip
    assert pool.free_neighbours(first) == (second, None)


@low_and_high_ids
def test_a_shared_block_stays_held_when_one_owner_frees_it(skip: int) -> None:
    pool = pool_after(skip)
    ids = pool.allocate(3)
    pool.touch(ids[:1])
    pool.free(ids[::-1])
    assert pool.free_order()[-2:] == [ids[2], ids[1]]
    assert pool.ref_count(ids[0]) == 1


@low_and_high_ids
def test_allocation_evicts_what_was_cached(skip: int) -> None:
    pool = pool_after(skip, num_blocks=skip + 2)
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"b"])
    pool.free(ids)
    assert pool.allocate(1) == ids[:1]
    assert pool.lookup(b"a") is None
    assert pool.block_hash(ids[0]) is None
    assert pool.lookup(b"b") == ids[1]


@low_and_high_ids
def test_two_copies_are_both_found_and_the_second_outlives_the_first(skip: int) -> None:
    pool = pool_after(skip)
    ids = pool.allocate(3)
    pool.cache(ids, [b"a", b"b", b"a"])
    assert pool.lookup(b"a") in (ids[0], ids[2])
    pool.evict([ids[0]])
    assert pool.lookup(b"a") == ids[2]
    assert pool.block_hash(ids[0]) is None


@low_and_high_ids
def test_allocation_of_one_copy_leaves_the_other_in_the_index(skip: int) -> None:
    pool = pool_after(skip, num_blocks=skip + 2)
    ids = pool.allocate(2)
    pool.cache(ids[:1], [b"a"])
    pool.cache(ids[1:], [b"a"])
    pool.free(ids)
    pool.allocate(1)
    assert pool.lookup(b"a") == ids[1]


@low_and_high_ids
def test_another_hash_replaces_the_old_one(skip: int) -> None:
    pool = pool_after(skip)
    [block_id] = pool.allocate(1)
    pool.cache([block_id], [b"a"])
    pool.cache([block_id], [b"b"])
    assert pool.block_hash(block_id) == b"b"
    assert pool.lookup(b"a") is None
    assert pool.lookup(b"b") == block_id


@low_and_high_ids
@pytest.mark.parametrize("misuse", ["raises", "undefined"])
def test_the_empty_hash_is_a_hash(skip: int, misuse: str) -> None:
    pool = pool_after(skip, misuse=misuse)
    [block_id] = pool.allocate(1)
    pool.cache([block_id], [b""])
    pool.free([block_id])
    pool.touch([block_id])
    assert pool.lookup(b"") == block_id
    pool.cache([block_id], [b"b"])
    assert pool.lookup(b"") is None
    assert pool.block_hashes(block_id) == [(b"b", 0)]


@low_and_high_ids
def test_caching_nothing_is_fine(skip: int) -> None:
    pool = pool_after(skip)
    for operation in (pool.touch, pool.free, pool.evict):
        operation([])
    pool.cache([], [])
    assert pool.num_free() == 9 - skip


@low_and_high_ids
def test_arguments_may_be_any_iterables(skip: int) -> None:
    pool = pool_after(skip)
    ids = pool.allocate(3)
    pool.cache(tuple(ids), iter([b"a", b"b", b"c"]))
    pool.free(reversed(ids))
    assert pool.free_order()[-3:] == ids[::-1]
    pool.touch(dict.fromkeys(ids))
    pool.evict(set(ids))
    assert pool.lookup(b"b") is None


def test_evict_takes_hashes_and_leaves_references_and_positions() -> None:
    pool = BlockPool(4)
    ids = pool.allocate(3)
    pool.cache(ids, [b"a", b"b", b"c"])
    pool.free(ids[:2])
    pool.evict([ids[0], ids[0], ids[2], 3])
    assert pool.free_order() == [3, 0, 1]
    assert [pool.ref_count(b) for b in range(4)] == [0, 0, 1, 0]
    assert [pool.lookup(h) for h in (b"a", b"b", b"c")] == [None, 1, None]


def test_reset_is_refused_while_a_block_is_held() -> None:
    pool = BlockPool(3, null_block=0, events="per-copy")
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"b"])
    pool.free(ids[:1])
    pool.take_events()
    assert pool.reset() is False
    assert pool.lookup(b"a") == ids[0]
    assert pool.take_events() == []


def test_reset_forgets_hashes_on_both_sides_and_keeps_the_queue() -> None:
    pool = BlockPool(4, null_block=1, keys="partial")
    pool.free(pool.allocate(1))
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"b"])
    pool.cache_partial(ids[0], b"p", num_tokens=1)
    pool.free(ids[::-1])
    assert pool.reset() is True
    assert pool.free_order() == [0, 3, 2]
    assert [pool.block_hashes(b) for b in ids] == [[], []]
    assert [pool.lookup(h) for h in (b"a", b"b", b"p")] == [None, None, None]
    _, *again = pool.allocate(3)
    pool.cache(again, [b"a", b"b"])
    assert pool.lookup(b"a") == again[0] == ids[1]
    assert [pool.block_hashes(b) for b in ids] == [[(b"b", 0)], [(b"a", 0)]]


@pytest.mark.parametrize("end", ["reset", "evict"])
def test_a_block_that_was_partial_once_is_full_when_cached_in_full(end: str) -> None:
    pool = BlockPool(4, keys="partial", recache="forbidden")
    *others, block_id = pool.allocate(4)
    pool.free(others)
    pool.cache_partial(block_id, b"p", num_tokens=4)
    if end == "reset":
        pool.free([block_id])
        assert pool.reset() is True
        pool.allocate(4)
    else:
        pool.evict([block_id])
    pool.cache([block_id], [b"f"])
    with pytest.raises(ValueError, match="carries another hash already"):
        pool.cache([block_id], [b"g"])


def test_without_caching_nothing_is_found_and_nothing_is_checked() -> None:
    pool = BlockPool(4, enable_caching=False, keys="partial", events="per-copy")
    ids = pool.allocate(2)
    pool.cache(ids, [b"a", b"b"])
    pool.cache([99, True], None)
    pool.cache_partial(99, b"a", num_tokens=-1)
    pool.evict([99])
    assert pool.lookup(b"a") is None
    assert pool.block_hash(ids[0]) is None
    pool.free(ids)
    assert pool.reset() is True
    assert pool.take_events() == []


def test_groups_have_entries_of_their_own() -> None:
    pool = BlockPool(8)
    a, b, c, d = pool.allocate(4)
    pool.cache([a, c], [b"h", b"i"])
    pool.cache([b, d], [b"h", b"i"], group=1)
    assert (pool.lookup(b"h"), pool.lookup(b"h", group=0)) == (a, a)
    assert pool.lookup(b"h", group=1) == b
    assert pool.lookup(b"h", group=2) is None
    assert pool.block_hash(b) == b"h"
    assert pool.block_hashes(b) == [(b"h", 1)]
    pool.evict([a])
    assert pool.lookup(b"h") is None
    assert pool.lookup(b"h", group=1) == b


def test_a_block_that_is_cached_again_is_found_in_the_group_that_is_named() -> None:
    pool = BlockPool(4)
    (block,) = pool.allocate(1)
    pool.cache([block], [b"old"], group=1)
    pool.cache([block], [b"new"], group=1)
    assert pool.lookup(b"new", group=1) == block
    assert pool.lookup(b"new") is None


def test_lookup_groups_needs_a_hit_in_every_group() -> None:
    pool = BlockPool(8)
    ids = pool.allocate(2)
    pool.cache(ids[:1], [b"h"], group=1)
    pool.cache(ids[1:], [b"h"], group=0)
    assert pool.lookup_groups(b"h", [1, 0]) == [0, 1]
    assert pool.lookup_groups(b"h", [0, 1]) == [1, 0]
    assert pool.lookup_groups(b"h", [0, 1, 2]) is None
    assert pool.lookup_groups(b"h", []) == []


def test_usage_is_the_share_of_held_blocks() -> None:
    pool = BlockPool(5, null_block=0)
    assert pool.usage() == 0.0
    ids = pool.allocate(1)
    assert pool.usage() == 0.25
    pool.touch(ids)
    pool.allocate(3)
    assert pool.usage() == 1.0


def test_usage_of_a_pool_with_nothing_but_the_null_block_is_zero() -> None:
    pool = BlockPool(1, null_block=0)
    assert pool.usage() == 0.0
    assert pool.num_free() == 0
    assert pool.reset() is True


def test_the_callers_lists_are_left_alone() -> None:
    pool = BlockPool(9)
    ids = pool.allocate(5)
    hashes = [b"a", b"b", b"c", b"d", b"e"]
    ids_before, hashes_before = list(ids), list(hashes)
    pool.cache(ids, hashes)
    pool.free(ids)
    pool.touch(ids)
    pool.evict(ids)
    assert (ids, hashes) == (ids_before, hashes_before)
    ids.clear()
    assert pool.num_free() == 4


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda pool: pickle.loads(pickle.dumps(pool))])  # noqa: S301 - our own bytes
def test_a_copy_lives_its_own_life(clone: object) -> None:
    pool = BlockPool(6, events="per-copy")
    ids = pool.allocate(4)
    pool.cache(ids, [b"a", b"b", b"c", b"d"])
    twin = clone(pool)
    twin.free(ids[2:])
    twin.evict([ids[0]])
    assert [pool.ref_count(b) for b in ids] == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="block 3 stands 2"):
        pool.free([2, 3, 3])
    with pytest.raises(ValueError, match="block 2 stands 1"):
        twin.free(ids[2:])
    assert twin.lookup(b"a") is None
    assert pool.lookup(b"a") == ids[0]
    assert pool.lookup(b"c") == ids[2]
    assert len(pool.take_events()) == 4


@pytest.mark.parametrize("group", [0, 2])
def test_lookup_prefix_ends_at_the_first_miss(group: int) -> None:
    pool = BlockPool(4)
    pool.cache(pool.allocate(3), [b"a", b"b", b"c"], group=group)
    assert pool.lookup_prefix([b"a", b"b", b"x", b"c"], group=group) == [0, 1]
    assert pool.lookup_prefix([b"a"], group=1) == []
    assert pool.lookup_prefix([], group=group) == []


@pytest.mark.parametrize("group", [0, 2])
def test_carry_compares_blocks_with_hashes(group: int) -> None:
    pool = BlockPool(4)
    pool.cache(pool.allocate(2), [b"a", b"b"], group=group)
    assert pool.carry([0, 1], [b"a", b"b"], group=group)
    assert pool.carry([], [], group=group)
    assert not pool.carry([1, 0], [b"a", b"b"], group=group)
    assert not pool.carry([0], [b"a", b"b"], group=group)
    assert not pool.carry([0, 9], [b"a", b"b"], group=group)
    assert not pool.carry([0, 1], [b"a", b"b"], group=1)


def test_carry_asks_about_group_0_when_none_is_named() -> None:
    pool = BlockPool(4)
    pool.cache(pool.allocate(1), [b"a"])
    assert pool.carry([0], [b"a"])


def test_the_index_holds_the_cached_hashes_and_nothing_else() -> None:
    pool = BlockPool(4)
    pool.cache(pool.allocate(2), [b"a", b"b"])
    first = pool._cached.index.first
    assert {key: first[key] for key in first} == {b"a": 0, b"b": 1}


@pytest.mark.skipif(block_loops.COMPILED, reason="a compiled method cannot be replaced")
@pytest.mark.parametrize("given", [list, tuple, iter])
def test_lookup_prefix_of_a_compiled_pool_takes_any_hashes(
    monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.setattr(block_loops, "COMPILED", True)
    pool = BlockPool(4)
    ids = pool.allocate(3)
    pool.cache(ids, [b"a", b"b", b"c"])
    asked: list[list[bytes]] = []
    find_prefix = KeyTable.find_prefix
    monkeypatch.setattr(
        KeyTable, "find_prefix", lambda self, keys: asked.append(keys) or find_prefix(self, keys)
    )
    hashes = given([b"a", b"b", b"x", b"c"])
    assert pool.lookup_prefix(hashes) == ids[:2]
    assert asked == [[b"a", b"b", b"x", b"c"]]
    assert (asked[0] is hashes) == (given is list)


@pytest.mark.parametrize("group", ["0", 1.5, None, True, -1])
def test_a_compiled_pool_tells_of_groups_that_are_none(
    monkeypatch: pytest.MonkeyPatch, group: Any
) -> None:
    monkeypatch.setattr(block_loops, "COMPILED", True)
    pool = BlockPool(4)
    ids = pool.allocate(2)
    with pytest.raises(ValueError, match="group"):
        pool.cache(ids, [b"a", b"b"], group=group)
    assert pool.block_hashes(0) == []


def test_a_compiled_pool_keeps_several_keys_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_loops, "COMPILED", True)
    pool = BlockPool(4, keys="partial")
    (block,) = pool.allocate(1)
    pool.cache_partial(block, b"a", num_tokens=2)
    pool.cache_partial(block, b"b", num_tokens=1)
    assert (pool.lookup(b"a"), pool.lookup(b"b")) == (block, block)
