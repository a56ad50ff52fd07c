"""The operation table and the profile table, row by row, against states worked out by hand."""

import pytest

from poolproof.contract.commands import CacheChain
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import undefined_in

A, B, C = b"a", b"b", b"c"


def pool_of(num_blocks, *, enable_caching=True, **rows):
    return DictPool(num_blocks, Profile(**rows), enable_caching=enable_caching)


def counts(pool):
    return [len(pool.holders[b]) for b in range(pool.num_blocks)]


def order(pool):
    return list(pool.free)


def hashes(pool):
    return [keys[0] if (keys := pool.keys[b]) else None for b in range(pool.num_blocks)]


def test_the_initial_order_is_ascending_without_the_null_block():
    assert order(pool_of(4)) == [0, 1, 2, 3]
    assert order(pool_of(4, null_block=2)) == [0, 1, 3]


def test_a_pool_of_which_nothing_is_said_caches_blocks_of_one_token():
    pool = DictPool(2)
    pool.allocate(2)
    pool.cache([0], [A])
    assert hashes(pool) == [A, None]
    assert undefined_in(pool, CacheChain(TokenChain((1, 2)), (0, 1), 1, 0)) is None
    assert undefined_in(pool, CacheChain(TokenChain((1,)), (0, 1), 1, 0)) is not None


def test_what_is_taken_before_any_command_counts_as_taken_by_command_0():
    pool = pool_of(1)
    pool.allocate(1)
    assert pool.ledger().holders == {0: [0]}
    assert pool.ledger().owner_noun == "command"


def test_a_hash_for_each_block_is_believed_to_be_there():
    pool = pool_of(2)
    pool.allocate(2)
    with pytest.raises(ValueError, match="zip"):
        pool.cache([0, 1], [A])


def test_allocate_takes_the_head_with_one_reference_and_no_hash():
    pool = pool_of(3)
    assert pool.allocate(2) == [0, 1]
    assert (counts(pool), order(pool)) == ([1, 1, 0], [2])
    pool.cache([0], [A])
    pool.release([0, 1])
    assert pool.allocate(2) == [2, 0]
    assert hashes(pool) == [None, None, None]
    assert pool.lookup(A) == ()


def test_allocate_zero_changes_nothing():
    pool = pool_of(2)
    assert pool.allocate(0) == []
    assert (counts(pool), order(pool)) == ([0, 0], [0, 1])


@pytest.mark.parametrize("count", [-1, 3])
def test_allocate_believes_that_the_count_fits(count):
    with pytest.raises(AssertionError):
        pool_of(2).allocate(count)


def test_allocate_takes_chosen_blocks_where_the_order_is_free():
    pool = pool_of(3, eviction="unspecified")
    assert pool.allocate(2, [2, 0]) == [2, 0]
    assert (counts(pool), order(pool)) == ([1, 0, 1], [1])
    assert not pool.ledger().ordered


def test_touch_revives_a_free_block_with_its_hash():
    pool = pool_of(3)
    pool.allocate(2)
    pool.cache([1], [A])
    pool.release([1])
    pool.touch([1, 1, 0])
    assert (counts(pool), order(pool), hashes(pool)) == ([2, 2, 0], [2], [None, A, None])


def test_touch_and_free_pass_over_the_null_block():
    pool = pool_of(3, null_block=0, null_in_lists="ignored")
    pool.allocate(1)
    pool.touch([0, 1])
    pool.cache([0, 1], [A, B])
    assert (counts(pool), hashes(pool)) == ([0, 2, 0], [None, B, None])
    assert pool.release([0, 1, 1]) == [1]
    assert order(pool) == [2, 1]


def test_free_queues_a_block_where_its_count_reaches_zero():
    pool = pool_of(3)
    pool.allocate(3)
    pool.touch([0])
    assert pool.release([0, 1, 0, 2]) == [1, 0, 2]
    assert order(pool) == [1, 0, 2]
    assert counts(pool) == [0, 0, 0]


def test_free_gives_back_the_oldest_reference():
    pool = pool_of(1)
    for number, act in enumerate([lambda: pool.allocate(1), lambda: pool.touch([0])], start=1):
        pool.command_number = number
        act()
    assert pool.holders[0] == [1, 2]
    pool.release([0])
    assert pool.holders[0] == [2]


@pytest.mark.parametrize(
    ("eviction", "expected"),
    [
        ("lru", [5, 3, 1, 0, 2]),
        ("lifo", [2, 0, 1, 3, 5]),
        ("unhashed-first", [3, 0, 5, 1, 2]),
        ("unspecified", [5, 3, 1, 0, 2]),
    ],
)
def test_eviction_places_the_blocks_of_one_free(eviction, expected):
    pool = pool_of(6, eviction=eviction)
    pool.allocate(5)
    pool.cache([1, 2], [A, B])
    pool.release([3, 1, 0, 2])
    assert order(pool) == expected


@pytest.mark.parametrize(
    ("duplicates", "shown", "carriers"),
    [("kept", [A, A], [0, 1]), ("first", [A, None], [0]), ("last", [None, A], [1])],
)
def test_duplicates_decide_who_carries_a_hash(duplicates, shown, carriers):
    pool = pool_of(2, duplicates=duplicates)
    pool.allocate(2)
    pool.cache([0], [A])
    pool.cache([1], [A])
    assert hashes(pool) == shown
    assert list(pool.lookup(A)) == carriers


@pytest.mark.parametrize(
    ("duplicates", "shown"), [("kept", [A, A]), ("first", [A, None]), ("last", [None, A])]
)
def test_a_hashed_block_that_loses_its_rival_ends_without_any_hash(duplicates, shown):
    pool = pool_of(2, duplicates=duplicates)
    pool.allocate(2)
    pool.cache([0, 1], [A, B])
    pool.cache([1], [A])
    assert hashes(pool) == shown
    assert pool.lookup(B) == ()


def test_a_hash_moves_along_within_one_cache_call():
    pool = pool_of(2, duplicates="last")
    pool.allocate(2)
    pool.cache([0, 1], [A, A])
    assert hashes(pool) == [None, A]


def test_another_hash_replaces_and_the_same_is_a_no_op():
    pool = pool_of(2)
    pool.allocate(2)
    pool.cache([0, 1], [A, A])
    pool.cache([0], [A])
    assert list(pool.lookup(A)) == [0, 1]
    pool.cache([0], [B])
    assert hashes(pool) == [B, A]
    assert list(pool.lookup(A)) == [1]


def test_lookup_changes_nothing():
    pool = pool_of(2)
    pool.allocate(1)
    pool.cache([0], [A])
    pool.release([0])
    assert list(pool.lookup(A)) == [0]
    assert (counts(pool), order(pool), hashes(pool)) == ([0, 0], [1, 0], [A, None])
    assert pool.lookup(B) == ()


def test_the_longest_prefix_ends_at_the_first_miss():
    pool = pool_of(3)
    pool.allocate(2)
    pool.cache([0, 1], [A, C])
    assert [pool.longest_prefix(keys) for keys in ([], [B], [A, B, C], [A, C])] == [0, 0, 1, 2]


def test_evict_takes_hashes_and_leaves_references_and_places():
    pool = pool_of(3)
    pool.allocate(2)
    pool.cache([0, 1], [A, B])
    pool.release([0])
    pool.evict([0, 1, 2])
    assert hashes(pool) == [None, None, None]
    assert (counts(pool), order(pool)) == ([0, 1, 0], [2, 0])


def test_reset_is_refused_while_a_block_is_held():
    pool = pool_of(3, null_block=0)
    pool.allocate(1)
    pool.cache([1], [A])
    assert pool.reset() is False
    assert hashes(pool) == [None, A, None]
    pool.release([1])
    assert pool.reset() is True
    assert (hashes(pool), order(pool)) == ([None, None, None], [2, 1])


def test_without_caching_nothing_is_ever_cached():
    pool = pool_of(2, enable_caching=False)
    pool.allocate(1)
    pool.cache([0, 99], [A])
    pool.cache_full(0, A, 4)
    pool.cache_partial(0, A, 2)
    pool.evict([99])
    assert hashes(pool) == [None, None]
    assert pool.lookup(A) == ()


def test_usage_is_the_share_of_held_blocks():
    pool = pool_of(5, null_block=0)
    assert pool.usage() == 0.0
    pool.allocate(1)
    assert pool.usage() == 0.25
    assert pool_of(1, null_block=0).usage() == 0.0


def test_a_longer_partial_key_replaces_shorter_ones():
    pool = pool_of(2, keys="partial")
    pool.allocate(1)
    pool.cache_partial(0, A, 2)
    pool.cache_partial(0, B, 3)
    assert (pool.keys[0], pool.key_length) == ([B], {0: 3})


def test_a_shorter_partial_key_joins_and_the_first_stays_the_block_hash():
    pool = pool_of(2, keys="partial")
    pool.allocate(1)
    pool.cache_partial(0, A, 3)
    pool.cache_partial(0, B, 2)
    pool.cache_partial(0, B, 2)
    assert (pool.keys[0], pool.key_length) == ([A, B], {0: 3})
    assert list(pool.lookup(A)) == list(pool.lookup(B)) == [0]


def test_a_full_key_takes_the_place_of_partial_ones():
    pool = pool_of(2, keys="partial")
    pool.allocate(1)
    pool.cache_partial(0, A, 3)
    pool.cache_full(0, B, 4)
    assert (pool.keys[0], pool.key_length) == ([B], {0: 4})
    assert pool.lookup(A) == ()


def test_a_block_that_loses_its_keys_covers_no_tokens_any_more():
    pool = pool_of(2)
    pool.allocate(1)
    pool.cache_full(0, A, 4)
    pool.evict([0])
    assert pool.key_length == {}


def test_a_partial_key_joins_a_full_one():
    pool = pool_of(2, keys="partial")
    pool.allocate(1)
    pool.cache_full(0, A, 4)
    pool.cache_partial(0, B, 2)
    assert (pool.keys[0], pool.key_length) == ([A, B], {0: 4})


def test_the_same_full_key_again_changes_nothing():
    pool = pool_of(2)
    pool.allocate(2)
    for block_id in (0, 1, 0):
        pool.cache_full(block_id, A, 4)
    assert list(pool.lookup(A)) == [0, 1]


def test_a_partial_key_of_the_same_length_joins():
    pool = pool_of(2, keys="partial")
    pool.allocate(1)
    pool.cache_partial(0, A, 2)
    pool.cache_partial(0, B, 2)
    assert pool.keys[0] == [A, B]


def test_the_loser_of_a_full_key_has_no_length_either():
    pool = pool_of(2, duplicates="first")
    pool.allocate(2)
    pool.cache_full(0, A, 4)
    pool.cache_full(1, A, 4)
    assert (pool.keys[1], pool.key_length) == ([], {0: 4})


def test_the_ledger_is_the_pool_as_the_invariants_see_it():
    pool = pool_of(3, null_block=0)
    pool.command_number = 7
    pool.allocate(1)
    pool.cache([1], [A])
    ledger = pool.ledger()
    assert ledger.holders == {0: [], 1: [7], 2: []}
    assert ledger.keys == {0: [], 1: [A], 2: []}
    assert ledger.carriers == {A: [1]}
    assert (ledger.free_order, ledger.null_block, ledger.ordered) == ((2,), 0, True)


def test_a_key_that_a_target_was_seen_to_miss_goes_from_all_its_carriers():
    pool = pool_of(4, retention="may-drop")
    pool.allocate(3)
    pool.cache([0, 1, 2], [A, A, B])
    pool.release([0, 1])
    pool.forget_vanished(A)
    assert hashes(pool) == [None, None, B, None]


def test_a_key_that_somebody_holds_cannot_vanish():
    pool = pool_of(4, retention="may-drop")
    pool.allocate(2)
    pool.cache([0, 1], [A, A])
    pool.release([0])
    pool.forget_vanished(A)
    assert hashes(pool) == [A, A, None, None]


# What a target did unseen.


def test_a_block_that_may_have_got_its_key_is_doubtful_until_it_loses_it():
    pool = DictPool(3)
    pool.allocate(2)
    pool.cache([0], [b"k"])
    pool.cache_in_doubt(0, b"k")
    assert not pool.doubtful
    pool.cache_in_doubt(1, b"k")
    assert pool.doubtful == {1}
    assert list(pool.lookup(b"k")) == [0, 1]
    pool.forget_keys([1])
    assert not pool.doubtful
    assert list(pool.lookup(b"k")) == [0]


def test_a_null_block_and_a_pool_without_a_cache_have_no_doubts():
    pool = DictPool(3, Profile(null_block=0))
    pool.cache_in_doubt(0, b"k")
    off = DictPool(3, enable_caching=False)
    off.cache_in_doubt(1, b"k")
    assert not pool.doubtful
    assert not off.doubtful


@pytest.mark.parametrize(("duplicates", "is_settled"), [("kept", True), ("first", False)])
def test_a_doubtful_key_that_is_published_again_is_there_where_every_carrier_has_it(
    duplicates, is_settled
):
    pool = DictPool(2, Profile(duplicates=duplicates))
    pool.allocate(1)
    pool.cache_in_doubt(0, b"k")
    pool.cache([0], [b"k"])
    assert (0 not in pool.doubtful) == is_settled


@pytest.mark.parametrize(
    ("eviction", "is_known"),
    [("lru", True), ("lifo", True), ("unhashed-first", False), ("unhashed-lifo", False)],
)
def test_where_keys_decide_a_doubtful_block_in_the_queue_leaves_its_order_unknown(
    eviction, is_known
):
    pool = DictPool(3, Profile(eviction=eviction))
    pool.allocate(1)
    pool.cache_in_doubt(0, b"k")
    assert pool.ordered
    pool.release([0])
    assert pool.ordered == is_known
    assert pool.ledger().ordered == is_known


def test_where_keys_last_while_held_a_block_loses_its_own_as_it_becomes_free():
    pool = DictPool(3, Profile(retention="while-held"))
    pool.allocate(2)
    pool.touch([0])
    pool.cache([0, 1], [b"k", b"l"])
    pool.release([0, 1])
    assert [list(pool.keys[block]) for block in (0, 1)] == [[b"k"], []]
    pool.release([0])
    assert not pool.lookup(b"k")


@pytest.mark.parametrize(
    ("eviction", "order"),
    [
        ("lru", [3, 0, 1, 2]),
        ("lifo", [2, 1, 0, 3]),
        ("unhashed-first", [0, 2, 3, 1]),
        ("unhashed-lifo", [2, 0, 3, 1]),
    ],
)
def test_blocks_of_one_call_join_the_queue_as_the_profile_says(eviction, order):
    pool = DictPool(4, Profile(eviction=eviction))
    pool.cache(pool.allocate(3)[1:2], [b"k"])
    pool.release([0, 1, 2])
    assert list(pool.free) == order
