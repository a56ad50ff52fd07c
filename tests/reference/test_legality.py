"""Each kind of misuse is told in words; what no profile defines is told apart from it."""

import pytest

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    AppendN,
    Cache,
    CacheChain,
    CachePartial,
    Evict,
    Free,
    Lookup,
    LookupChain,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
    Reset,
    Touch,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.index_commands import Contains, Get, Insert, Pop
from poolproof.contract.misuse import MisuseKind
from poolproof.contract.profile import Profile
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.legality import (
    hash_of_other_length,
    misuse_of,
    queue_misuse_of,
    undefined_in,
)

A, B = b"a", b"b"
CHAIN = TokenChain((1, 2, 3, 4, 5, 6, 7, 8))


def pool_with(*, enable_caching=True, **rows):
    """Blocks 0 to 5, 0 is null; 1 (twice) and 2 are held, 3 is free under A, 4 and 5 free."""
    pool = DictPool(6, Profile(null_block=0, **rows), enable_caching=enable_caching)
    pool.block_size = 4
    pool.allocate(3)
    pool.touch([1])
    pool.cache([3], [A])
    pool.release([3])
    return pool


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (Allocate(-1), "the count -1 is negative"),
        (Touch((1, 6)), "block 6 does not exist (there are 6)"),
        (Touch((-1,)), "block -1 does not exist (there are 6)"),
        (Touch((0,)), "block 0 is the null block"),
        (Free((9,)), "block 9 does not exist (there are 6)"),
        (Free((0,)), "block 0 is the null block"),
        (Free((4,)), "block 4 is freed more often (1) than it is held (0)"),
        (Free((1, 2, 1, 1)), "block 1 is freed more often (3) than it is held (2)"),
        (Cache((1,), ()), "1 blocks come with 0 hashes"),
        (Cache((), (A,)), "0 blocks come with 1 hashes"),
        (Cache((6,), (A,)), "block 6 does not exist (there are 6)"),
        (Cache((0,), (A,)), "block 0 is the null block"),
        (Cache((1, 1), (A, B)), "block 1 stands 2 times in one call"),
        (Cache((1, 3), (A, B)), "block 3 is cached although nobody holds it"),
        (CacheChain(CHAIN, (1, 1), 0, 0), "block 1 stands 2 times in one call"),
        (CacheChain(CHAIN, (6,), 0, 0), "block 6 does not exist (there are 6)"),
        (CacheChain(CHAIN, (4,), 0, 0), "block 4 is cached although nobody holds it"),
        (CachePartial(CHAIN, 6, 2, 0), "block 6 does not exist (there are 6)"),
        (CachePartial(CHAIN, 4, 2, 0), "block 4 is cached although nobody holds it"),
        (Evict((6,)), "block 6 does not exist (there are 6)"),
        (Evict((0,)), "block 0 is the null block"),
    ],
)
def test_misuse_is_told_in_words(command, reason):
    assert str(misuse_of(pool_with(), command)) == reason


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (Allocate(-1), MisuseKind.NEGATIVE_COUNT),
        (Touch((6,)), MisuseKind.BLOCK_BEYOND_THE_POOL),
        (Touch((-1,)), MisuseKind.NEGATIVE_BLOCK),
        (Evict((0,)), MisuseKind.NULL_BLOCK),
        (Free((4,)), MisuseKind.BLOCK_NOT_HELD),
        (Free((1, 2, 1, 1)), MisuseKind.FREED_TOO_OFTEN),
        (Cache((1,), ()), MisuseKind.UNEQUAL_LISTS),
        (Cache((1, 1), (A, B)), MisuseKind.REPEATED_BLOCK),
        (Cache((3,), (A,)), MisuseKind.BLOCK_NOT_HELD),
        (Cache((9,), (A,)), MisuseKind.BLOCK_BEYOND_THE_POOL),
        (CachePartial(CHAIN, 4, 2, 0), MisuseKind.BLOCK_NOT_HELD),
    ],
)
def test_misuse_has_a_kind(command, kind):
    assert misuse_of(pool_with(), command).kind is kind


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (PopLeftN(4), MisuseKind.TOO_FEW_QUEUED),
        (Append(-1), MisuseKind.NEGATIVE_BLOCK),
        (PopLeftN(-1), MisuseKind.NEGATIVE_COUNT),
        (Remove(0), MisuseKind.BLOCK_NOT_QUEUED),
        (Append(1), MisuseKind.BLOCK_QUEUED_ALREADY),
        (Append(4), MisuseKind.BLOCK_BEYOND_THE_POOL),
        (AppendN((0, 0)), MisuseKind.REPEATED_BLOCK),
        (Allocate(1), MisuseKind.NO_COMMAND_OF_A_QUEUE),
    ],
)
def test_misuse_of_a_queue_has_a_kind(command, kind):
    queue = DictQueue(4)
    queue.remove(0)
    assert queue_misuse_of(queue, command).kind is kind


@pytest.mark.parametrize(
    "command",
    [
        Allocate(0),
        Allocate(99),
        Touch((1, 1, 3)),
        Free((1, 2, 1)),
        Cache((1, 2), (A, A)),
        Cache((), ()),
        CacheChain(CHAIN, (1, 2), 0, 0),
        CacheChain(CHAIN, (1, 2), 2, 0),
        CachePartial(CHAIN, 1, 1, 0),
        CachePartial(CHAIN, 1, 2, 0),
        CachePartial(CHAIN, 1, 8, 0),
        Evict((1, 3, 4)),
        Lookup(B),
        Acquire((A, B)),
        LookupChain(CHAIN, 1, (0,)),
        LookupChain(CHAIN, 8, (0, 1)),
        Reset(),
    ],
)
def test_legal_commands_are_no_misuse_and_defined(command):
    assert misuse_of(pool_with(), command) is None
    assert undefined_in(pool_with(), command) is None


@pytest.mark.parametrize(
    "command", [Touch((0, 1)), Free((0, 0, 1)), Cache((0, 1, 0), (A, B, A)), Evict((0,))]
)
def test_an_ignored_null_block_may_stand_in_lists(command):
    pool = pool_with(null_in_lists="ignored")
    assert misuse_of(pool, command) is None
    assert undefined_in(pool, command) is None


@pytest.mark.parametrize(
    "command",
    [
        Cache((9,), (A,)),
        Cache((1,), ()),
        CacheChain(CHAIN, (9,), 0, 0),
        CachePartial(CHAIN, 9, 2, 0),
        Evict((9,)),
    ],
)
def test_without_caching_what_would_be_misuse_is_undefined(command):
    pool = pool_with(enable_caching=False)
    assert misuse_of(pool, command) is None
    assert undefined_in(pool, command) == str(misuse_of(pool_with(), command))


def test_without_caching_a_legal_cache_is_a_defined_no_op():
    assert undefined_in(pool_with(enable_caching=False), Cache((1,), (A,))) is None


def test_touching_a_free_block_without_hash_is_undefined():
    assert undefined_in(pool_with(), Touch((1, 4))) == "block 4 is free and carries no hash"


def test_touching_outside_the_pool_is_misuse_and_nothing_else():
    assert undefined_in(pool_with(), Touch((4, 99))) is None


def test_another_hash_is_undefined_where_the_profile_forbids_it():
    pool = pool_with(recache="forbidden")
    pool.touch([3])
    reason = "block 3 has a hash and the profile forbids another"
    assert undefined_in(pool, Cache((1, 3), (B, B))) == reason
    assert undefined_in(pool, Cache((3,), (A,))) == reason
    assert undefined_in(pool, Cache((1, 2), (B, B))) is None
    assert undefined_in(pool, Cache((99,), (B,))) is None


def test_unequal_lists_are_misuse_and_nothing_else():
    pool = pool_with(recache="forbidden")
    assert undefined_in(pool, Cache((1, 2), (B,))) is None


def test_a_chain_of_hashes_has_no_repeats():
    assert undefined_in(pool_with(), Acquire((A, B, A))) == "a hash stands twice in one chain"


@pytest.mark.parametrize(("num_tokens", "groups"), [(0, (0,)), (9, (0,)), (4, ())])
def test_a_chain_is_looked_up_at_one_of_its_tokens(num_tokens, groups):
    assert undefined_in(pool_with(), LookupChain(CHAIN, num_tokens, groups)) == (
        "the chain is shorter than the key, or no group is asked for"
    )


@pytest.mark.parametrize(
    "command",
    [
        CacheChain(CHAIN, (1, 2), -1, 0),
        CacheChain(CHAIN, (1, 2), 3, 0),
        CacheChain(TokenChain((1, 2, 3, 4, 5)), (1, 2), 0, 0),
    ],
)
@pytest.mark.parametrize("enable_caching", [True, False])
def test_a_chain_fills_its_blocks(command, enable_caching):
    pool = pool_with(enable_caching=enable_caching)
    assert undefined_in(pool, command) == "the chain does not fill the blocks"


def test_a_full_block_is_not_cached_in_full_again():
    pool = pool_with()
    pool.cache_full(1, CHAIN.prefix(4, 0), 4)
    reason = "block 1 has a hash that is no part of its full one"
    assert undefined_in(pool, CacheChain(CHAIN, (1, 2), 0, 0)) == reason
    assert undefined_in(pool, CacheChain(CHAIN, (1, 2), 1, 0)) is None


def test_a_block_that_is_full_of_the_positions_before_is_not_promoted():
    pool = pool_with()
    pool.cache_full(2, CHAIN.prefix(4, 0), 4)
    reason = "block 2 has a hash that is no part of its full one"
    assert undefined_in(pool, CacheChain(CHAIN, (1, 2), 0, 0)) == reason


@pytest.mark.parametrize("block_ids", [(0,), (1, 0)])
def test_a_block_with_an_opaque_hash_is_not_promoted(block_ids):
    pool = DictPool(2)
    pool.block_size = 4
    pool.allocate(2)
    pool.cache([0], [B])
    reason = "block 0 has a hash that is no part of its full one"
    assert undefined_in(pool, CacheChain(CHAIN, block_ids, 0, 0)) == reason


def test_a_partial_entry_is_promoted():
    pool = pool_with(keys="partial")
    pool.cache_partial(1, CHAIN.prefix(2, 0), 2)
    pool.cache_partial(2, CHAIN.prefix(6, 0), 6)
    assert undefined_in(pool, CacheChain(CHAIN, (1, 2), 0, 0)) is None


@pytest.mark.parametrize("block_id", [-1, 6, 99])
def test_a_chain_over_a_missing_block_is_misuse_and_nothing_else(block_id):
    assert undefined_in(pool_with(), CacheChain(CHAIN, (block_id,), 0, 0)) is None


def test_a_partial_key_ends_inside_its_chain():
    assert undefined_in(pool_with(), CachePartial(CHAIN, 1, 0, 0)) == (
        "the chain is shorter than the key"
    )
    assert undefined_in(pool_with(), CachePartial(CHAIN, 1, 9, 0)) == (
        "the chain is shorter than the key"
    )


def test_a_further_key_ends_inside_the_same_block_of_a_sequence():
    pool = pool_with(keys="partial")
    pool.cache_partial(1, CHAIN.prefix(2, 0), 2)
    assert undefined_in(pool, CachePartial(CHAIN, 1, 3, 0)) is None
    assert undefined_in(pool, CachePartial(CHAIN, 1, 6, 0)) == (
        "block 1 holds other positions of a sequence"
    )


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [(4, 3, True), (3, 4, True), (5, 6, True), (6, 5, True), (4, 5, False), (5, 4, False)],
)
def test_the_last_token_of_a_block_belongs_to_it(first, second, is_same):
    pool = pool_with(keys="partial")
    pool.cache_partial(1, CHAIN.prefix(first, 0), first)
    assert (undefined_in(pool, CachePartial(CHAIN, 1, second, 0)) is None) == is_same


def test_a_block_with_an_opaque_hash_takes_no_partial_key():
    pool = pool_with(keys="partial")
    pool.cache([1], [B])
    assert undefined_in(pool, CachePartial(CHAIN, 1, 2, 0)) == (
        "block 1 carries a hash of unknown length"
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (PopLeft(), None),
        (PopLeftN(0), None),
        (PopLeftN(2), None),
        (PopLeftN(3), "3 blocks are not queued"),
        (PopLeftN(-1), "-1 blocks are not queued"),
        (Remove(1), None),
        (Remove(0), "block 0 is not queued"),
        (Append(0), None),
        (Append(1), "block 1 is queued already"),
        (Append(4), "block 4 does not exist"),
        (AppendN((3, 0)), None),
        (AppendN((0, 0)), "a block stands twice in [0, 0]"),
        (PrependN((0, 1)), "block 1 is queued already"),
        (PrependN((-1,)), "block -1 does not exist"),
        (Allocate(1), "allocate is not a command of a queue"),
    ],
)
def test_a_queue_has_preconditions(command, reason):
    queue = DictQueue(4)
    queue.remove(0)
    queue.remove(3)
    found = queue_misuse_of(queue, command)
    assert (found and str(found)) == reason


def test_an_empty_queue_cannot_be_popped():
    found = queue_misuse_of(DictQueue(0), PopLeft())
    assert (found.kind, str(found)) == (MisuseKind.TOO_FEW_QUEUED, "the queue is empty")


def test_the_first_block_of_an_empty_pool_lies_beyond_it():
    assert queue_misuse_of(DictQueue(0), Append(0)).kind is MisuseKind.BLOCK_BEYOND_THE_POOL


SHORT, LONG = b"ab", b"abc"


@pytest.mark.parametrize(
    "command",
    [
        Cache((1, 2), (SHORT, LONG)),
        Acquire((SHORT, LONG)),
        Lookup(LONG),
        Insert(LONG, 1),
        Insert((LONG, 2), 1),
        Pop(LONG, 1),
        Get((LONG, 0)),
        Contains(LONG, 1),
    ],
    ids=str,
)
def test_hashes_have_the_length_that_the_profile_says(command):
    reason = "a hash has 3 bytes, and the profile says hash_bytes=2"
    assert hash_of_other_length(Profile(hash_bytes=2), command) == reason
    assert hash_of_other_length(Profile(), command) is None


@pytest.mark.parametrize(
    "command",
    [
        Cache((1, 2), (SHORT, SHORT)),
        Lookup(SHORT),
        Insert((SHORT, 12345), 1),
        Get(12345),
        Allocate(1),
        Reset(),
    ],
    ids=str,
)
def test_a_number_and_a_hash_of_the_right_length_are_taken(command):
    assert hash_of_other_length(Profile(hash_bytes=2), command) is None


def test_a_hash_of_another_length_is_undefined_in_a_pool():
    pool = pool_with(hash_bytes=2)
    assert undefined_in(pool, Lookup(SHORT)) is None
    assert undefined_in(pool, Lookup(LONG)) == (
        "a hash has 3 bytes, and the profile says hash_bytes=2"
    )


@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_partial_keys_are_undefined_where_duplicates_are_merged(duplicates):
    pool = pool_with(keys="partial", duplicates=duplicates)
    assert undefined_in(pool, CachePartial(CHAIN, 1, 2, 0)).startswith("the profile merges")


@pytest.mark.parametrize("command", [Allocate(1), Free([1]), Lookup(A)], ids=str)
def test_without_caching_the_other_commands_are_as_defined_as_ever(command):
    assert undefined_in(pool_with(enable_caching=False), command) is None


@pytest.mark.parametrize(
    ("rows", "ids", "is_defined"),
    [
        ({}, (1, 1), True),
        ({"repeats_in_free": "forbidden"}, (1, 1), False),
        ({"repeats_in_free": "forbidden"}, (1, 2), True),
        ({"repeats_in_free": "forbidden", "null_in_lists": "ignored"}, (0, 1, 0), True),
    ],
)
def test_a_block_twice_in_one_call_is_undefined_where_the_profile_forbids_it(rows, ids, is_defined):
    why = undefined_in(pool_with(**rows), Free(ids))
    assert (why is None) == is_defined
    if why:
        assert why == (
            "block 1 stands 2 times in one call, and the profile says repeats_in_free=forbidden"
        )


def test_a_repeat_that_the_profile_forbids_is_not_judged_as_misuse():
    ids = (1,) * 9
    assert misuse_of(pool_with(repeats_in_free="forbidden"), Free(ids)) is None
    assert misuse_of(pool_with(), Free(ids)).kind is MisuseKind.FREED_TOO_OFTEN


@pytest.mark.parametrize(
    ("command", "is_defined"),
    [
        (Cache((0,), (B,)), False),
        (Cache((1,), (B,)), True),
        (CacheChain(CHAIN, (1, 0), 0, 0), False),
        (CacheChain(CHAIN, (0, 1), 0, 0), False),
        (CacheChain(CHAIN, (0, 1), 1, 0), True),
        (CachePartial(CHAIN, 0, 2, 0), False),
        (CachePartial(CHAIN, 1, 2, 0), True),
        (Touch((0, 1)), True),
    ],
)
def test_a_null_block_that_may_stand_in_lists_uncached_is_never_given_a_hash(command, is_defined):
    why = undefined_in(pool_with(null_in_lists="uncached"), command)
    assert why == (None if is_defined else "block 0 is the null block, which is never cached")
