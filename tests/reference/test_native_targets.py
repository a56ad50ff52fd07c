"""The specification behind the native contract: refusals, misuse, events, and what it shows."""

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue

A, B = b"a", b"b"
CHAIN = TokenChain((1, 2, 3, 4))


def native(num_blocks=3, *, enable_caching=True, block_size=1, **rows):
    return NativeDictPool(
        num_blocks, enable_caching=enable_caching, profile=Profile(**rows), block_size=block_size
    )


def test_it_has_every_verb_and_shows_everything():
    can = capabilities_of(native())
    assert len(can.observers) == 5
    assert {"evict", "reset", "cache_chain", "cache_partial", "usage"} <= can.verbs


def test_a_default_pool_has_the_default_profile():
    assert NativeDictPool(1).profile == Profile().to_json()
    assert NativeDictQueue(1).profile == Profile().to_json()


def test_a_pool_of_which_nothing_is_said_caches_blocks_of_one_token():
    pool = NativeDictPool(2)
    pool.allocate(2)
    pool.cache_chain(CHAIN, [0, 1], 0, 0)
    assert pool.lookup(CHAIN.prefix(2, 0)) == 1


def test_it_behaves_as_its_profile_says():
    pool = native(eviction="lifo")
    pool.allocate(2)
    pool.free([0, 1])
    assert pool.free_order() == [1, 0, 2]


def test_without_caching_nothing_is_found():
    pool = native(enable_caching=False)
    pool.allocate(1)
    pool.cache([0], [A])
    assert pool.lookup(A) is None


def test_it_counts_its_commands():
    pool = native(misuse="undefined")
    pool.allocate(1)
    pool.allocate(1)
    pool.touch([0])
    assert pool._model.holders == {0: [1, 3], 1: [2], 2: []}


def test_it_shows_what_was_done():
    pool = native(4)
    assert pool.allocate(2) == [0, 1]
    pool.touch([1])
    pool.cache([1], [A])
    assert (pool.lookup(A), pool.lookup(B)) == (1, None)
    assert [pool.ref_count(b) for b in range(4)] == [1, 2, 0, 0]
    assert [pool.block_hash(b) for b in range(4)] == [None, A, None, None]
    assert pool.usage() == 0.5
    pool.free([0, 1, 1])
    assert (pool.num_free(), pool.free_order()) == (4, [2, 3, 0, 1])
    pool.evict([1])
    assert pool.lookup(A) is None
    assert pool.reset() is True


def test_neighbours_are_those_in_the_queue():
    pool = native()
    pool.allocate(1)
    assert [pool.free_neighbours(b) for b in range(3)] == [None, (None, 2), (1, None)]


def test_too_much_is_refused_by_a_memory_error():
    with pytest.raises(MemoryError, match="allocate: 4 blocks asked for, 3 free"):
        native().allocate(4)


def calls(pool):
    return [
        lambda: pool.allocate(-1),
        lambda: pool.touch([9]),
        lambda: pool.free([0]),
        lambda: pool.cache([0], [A]),
        lambda: pool.evict([9]),
        lambda: pool.cache_chain(CHAIN, [0], 0, 0),
        lambda: pool.cache_partial(CHAIN, 0, 1, 0),
    ]


@pytest.mark.parametrize("number", range(7))
def test_misuse_raises_and_changes_nothing(number):
    pool = native()
    with pytest.raises(ValueError, match=r"^(allocate|touch|free|cache|evict)\w*: "):
        calls(pool)[number]()
    assert pool.free_order() == [0, 1, 2]


@pytest.mark.parametrize("number", range(7))
def test_misuse_is_ignored_where_the_profile_says_so(number):
    pool = native(misuse="ignores")
    assert calls(pool)[number]() in (None, [])
    assert pool.free_order() == [0, 1, 2]


def test_undefined_misuse_is_not_looked_at():
    with pytest.raises(KeyError):
        native(misuse="undefined").touch([9])


@pytest.mark.parametrize(
    ("events", "stored", "first_removed"),
    [("none", 0, 0), ("per-copy", 2, 1), ("per-hash", 1, 0)],
)
def test_events_are_announced_as_the_profile_says(events, stored, first_removed):
    pool = native(events=events)
    pool.allocate(2)
    pool.cache([0, 1], [A, A])
    event = {"type": "stored", "hashes": [A], "group": 0}
    assert pool.take_events() == [event] * stored
    pool.evict([0])
    assert pool.take_events() == [{**event, "type": "removed"}] * first_removed
    pool.evict([1])
    assert len(pool.take_events()) == (events != "none")
    assert pool.take_events() == []


def test_the_event_of_a_chain_names_its_group():
    pool = native(events="per-copy", block_size=2)
    pool.allocate(1)
    pool.cache_chain(CHAIN, [0], 0, 1)
    assert pool.take_events() == [{"type": "stored", "hashes": [CHAIN.prefix(2, 1)], "group": 1}]


def test_chains_are_found_in_all_groups_or_not_at_all():
    pool = native(block_size=2)
    pool.allocate(3)
    pool.cache_chain(CHAIN, [0, 1], 1, 0)
    assert pool.lookup_chain(CHAIN, 2, [0]) is None
    assert pool.lookup_chain(CHAIN, 4, [0]) == [1]
    assert pool.lookup_chain(CHAIN, 4, [0, 1]) is None
    pool.cache_chain(CHAIN, [0, 2], 0, 1)
    assert pool.lookup_chain(CHAIN, 4, [0, 1]) == [1, 2]


def test_a_partial_key_is_found():
    pool = native(block_size=4, keys="partial")
    pool.allocate(1)
    pool.cache_partial(CHAIN, 0, 2, 0)
    assert pool.lookup_chain(CHAIN, 2, [0]) == [0]


def test_a_longer_partial_key_replaces_a_shorter_one():
    pool = native(block_size=4, keys="partial")
    pool.allocate(1)
    pool.cache_partial(CHAIN, 0, 2, 0)
    pool.cache_partial(CHAIN, 0, 3, 0)
    assert pool.lookup_chain(CHAIN, 2, [0]) is None
    assert pool.lookup_chain(CHAIN, 3, [0]) == [0]


def test_a_shorter_partial_key_joins_a_longer_one():
    pool = native(block_size=4, keys="partial")
    pool.allocate(1)
    pool.cache_partial(CHAIN, 0, 3, 0)
    pool.cache_partial(CHAIN, 0, 2, 0)
    assert pool.lookup_chain(CHAIN, 3, [0]) == pool.lookup_chain(CHAIN, 2, [0]) == [0]
    assert pool.block_hash(0) == CHAIN.prefix(3, 0)


def test_a_queue_does_what_its_model_does():
    queue = NativeDictQueue(4)
    assert queue.popleft() == 0
    assert queue.popleft_n(2) == [1, 2]
    queue.append(1)
    queue.append_n([2])
    queue.prepend_n([0])
    queue.remove(1)
    assert (queue.num_free(), queue.free_order()) == (3, [0, 3, 2])
    assert [queue.free_neighbours(b) for b in range(4)] == [(None, 3), None, (3, None), (0, 2)]


QUEUE_MISUSE = [
    lambda queue: queue.popleft_n(9),
    lambda queue: queue.remove(9),
    lambda queue: queue.append(0),
    lambda queue: queue.append_n([0]),
    lambda queue: queue.prepend_n([0]),
    lambda queue: [queue.popleft() for _ in range(3)][2],
]


@pytest.mark.parametrize("call", QUEUE_MISUSE)
def test_misuse_of_a_queue_raises(call):
    with pytest.raises(ValueError, match=r"^(popleft|remove|append|prepend)\w*: "):
        call(NativeDictQueue(2))


@pytest.mark.parametrize("call", QUEUE_MISUSE)
def test_misuse_of_a_queue_is_ignored_where_the_profile_says_so(call):
    queue = NativeDictQueue(2, profile=Profile(misuse="ignores"))
    assert call(queue) in (None, [])


def test_undefined_misuse_of_a_queue_is_not_looked_at():
    with pytest.raises(KeyError):
        NativeDictQueue(2, profile=Profile(misuse="undefined")).remove(9)
