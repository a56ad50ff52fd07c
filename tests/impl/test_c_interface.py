"""Pool and manager as a C library: what each function answers, and a program over each."""

import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from poolproof.impl import c_interface
from poolproof.impl.block_hash import BlockHasher, LoRA, Salt
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.c_interface import (
    DECLARATIONS,
    BuildError,
    ManagerFunctions,
    PoolFunctions,
    bind,
    build,
)
from poolproof.impl.kv_cache_request import Request

cffi = pytest.importorskip("cffi")

ROOT = Path(__file__).resolve().parents[2]
NONE, FEWER_FREE, MISUSE, FAILED = -1, -2, -3, -4
ADAPTER, SALT, IMAGE = 1, 2, 3
DELAY_CACHE, WHOLE_MUST_FIT = 1, 2
SIZE = 8


class Binding(cffi.FFI):
    """Notes what becomes the functions of the library, and what a call that dies answers."""

    def __init__(self):
        super().__init__()
        self.bound, self.answers = {}, {}

    def def_extern(self, name, **answers):
        self.answers[name] = answers
        return lambda function: self.bound.update({name: function})


class Calls:
    """The functions by their names in the header, without `poolproof_`."""

    def __init__(self, ffi):
        bind(ffi)
        self._bound = ffi.bound

    def __getattr__(self, name):
        return self._bound[f"poolproof_{name}"]


class Caller:
    """Calls the functions with pointers, as C does, in this process."""

    def __init__(self):
        self.ffi = Binding()
        self.ffi.cdef(DECLARATIONS)
        self.calls = Calls(self.ffi)

    def new(self, num_blocks=4, hash_size=SIZE, options=b""):
        given = self.ffi.NULL if options is None else self.ffi.new("char[]", options)
        return self.calls.pool_new(num_blocks, hash_size, given)

    def ids(self, *blocks):
        return self.ffi.new("int64_t[]", list(blocks) or 1)

    def hashes(self, *names):
        return self.ffi.new("uint8_t[]", b"".join(name.ljust(SIZE, b".") for name in names))

    def allocate(self, pool, count):
        block_ids = self.ffi.new("int64_t[]", 16)
        status = self.calls.pool_allocate(pool, count, block_ids)
        return list(block_ids[0:count]) if status == 0 else status

    @property
    def error(self):
        return self.ffi.string(self.calls.error()).decode()


@pytest.fixture
def c():
    return Caller()


def test_each_function_of_the_header_is_one_of_the_calls():
    declared = re.findall(r"\bpoolproof_(\w+)\(", DECLARATIONS)
    methods = [
        name
        for functions, prefix in ((PoolFunctions, "pool_"), (ManagerFunctions, "manager_"))
        for name in vars(functions)
        if name.startswith(prefix)
    ]
    assert sorted(declared) == sorted([*methods, "error"])


def test_the_functions_are_bound_by_the_names_of_the_header(c):
    assert c.ffi.bound["poolproof_pool_allocate"].__name__ == "pool_allocate"
    assert c.ffi.bound["poolproof_manager_new"].__name__ == "manager_new"
    answers = {name: {"error": FAILED} for name in c.ffi.bound} | {"poolproof_error": {}}
    assert c.ffi.answers == answers


def test_the_numbers_of_what_goes_wrong_are_those_of_the_header(c):
    names = (
        "NONE", "FEWER_FREE", "MISUSE", "FAILED", "ADAPTER", "SALT", "IMAGE", "DELAY_CACHE",
        "WHOLE_MUST_FIT",
    )  # fmt: skip
    library = c.ffi.dlopen(None)
    assert [getattr(library, f"POOLPROOF_{name}") for name in names] == [
        getattr(c_interface, name) for name in names
    ]


def test_blocks_are_taken_held_and_given_back_in_order(c):
    pool = c.new()
    assert c.allocate(pool, 3) == [0, 1, 2]
    assert c.calls.pool_touch(pool, c.ids(1), 1) == 0
    assert c.calls.pool_ref_count(pool, 1) == 2
    assert c.calls.pool_free(pool, c.ids(2, 1, 0), 3) == 0
    order = c.ids(9, 9, 9, 9)
    assert c.calls.pool_free_order(pool, order) == c.calls.pool_num_free(pool) == 3
    assert list(order) == [3, 2, 0, 9]
    before, after = c.ids(9), c.ids(9)
    assert c.calls.pool_free_neighbours(pool, 3, before, after) == 1
    assert (before[0], after[0]) == (NONE, 2)
    assert c.calls.pool_free_neighbours(pool, 1, before, after) == 0


def test_what_is_cached_is_found_until_it_is_evicted_or_forgotten(c):
    pool = c.new()
    held = c.allocate(pool, 2)
    assert c.calls.pool_cache(pool, c.ids(*held), c.hashes(b"a", b"b"), 2) == 0
    found = c.ids(9, 9, 9)
    assert c.calls.pool_lookup_prefix(pool, c.hashes(b"a", b"b", b"c"), 3, found) == 2
    assert list(found) == [0, 1, 9]
    carried = c.ffi.new("uint8_t[]", SIZE)
    assert c.calls.pool_block_hash(pool, 1, carried) == 1
    assert bytes(carried) == b"b......."
    assert c.calls.pool_evict(pool, c.ids(0), 1) == 0
    assert c.calls.pool_block_hash(pool, 0, carried) == 0
    assert c.calls.pool_lookup(pool, c.hashes(b"a")) == NONE
    assert c.calls.pool_lookup(pool, c.hashes(b"b")) == 1
    assert c.calls.pool_reset(pool) == 0
    c.calls.pool_free(pool, c.ids(*held), 2)
    assert c.calls.pool_reset(pool) == 1
    assert c.calls.pool_lookup(pool, c.hashes(b"b")) == NONE


def test_options_are_those_of_the_pool(c):
    pool = c.new(options=b"eviction=lifo,null_block=0,enable_caching=false")
    assert c.allocate(pool, 2) == [1, 2]
    c.calls.pool_free(pool, c.ids(1, 2), 2)
    assert c.allocate(pool, 2) == [2, 1]
    c.calls.pool_cache(pool, c.ids(1), c.hashes(b"a"), 1)
    assert c.calls.pool_lookup(pool, c.hashes(b"a")) == NONE
    assert c.new(options=None) == 2


def test_empty_lists_need_no_memory(c):
    pool = c.new()
    assert c.calls.pool_touch(pool, c.ffi.NULL, 0) == 0
    assert c.calls.pool_cache(pool, c.ffi.NULL, c.ffi.NULL, 0) == 0
    assert c.calls.pool_lookup_prefix(pool, c.ffi.NULL, 0, c.ffi.NULL) == 0
    assert c.allocate(pool, 0) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (b"size=1", "'size=1' is no option of a pool; known are enable_caching, null_block"),
        (b"eviction", "'eviction' is no option"),
        (b"null_block=first", "null_block cannot be 'first'"),
        (b"enable_caching=yes", "enable_caching cannot be 'yes'"),
        (b"eviction=random", "random"),
    ],
)
def test_a_pool_that_cannot_be_made_is_a_negative_number(c, options, words):
    assert c.new(options=options) == MISUSE
    assert words in c.error


def test_sizes_that_cannot_be_are_said(c):
    assert c.new(num_blocks=0) == MISUSE
    assert "num_blocks" in c.error
    assert c.new(hash_size=0) == MISUSE
    assert "hash_size must be at least 1, not 0" in c.error


@pytest.mark.parametrize(
    ("call", "status", "words"),
    [
        (lambda c, pool: c.allocate(pool, 5), FEWER_FREE, "5 blocks asked for, 4 of 4 free"),
        (lambda c, pool: c.allocate(pool, -1), MISUSE, "-1"),
        (lambda c, pool: c.calls.pool_allocate(pool, 2, c.ffi.NULL), MISUSE, "of 2 elements is"),
        (lambda c, pool: c.calls.pool_free(pool, c.ids(0), 1), MISUSE, "0"),
        (lambda c, pool: c.calls.pool_touch(pool, c.ids(0), -1), MISUSE, "cannot have -1 elements"),
        (lambda c, pool: c.calls.pool_touch(pool, c.ffi.NULL, 2), MISUSE, "of 2 elements is NULL"),
        (lambda c, pool: c.calls.pool_ref_count(pool, 4), MISUSE, "there is no block 4 among 4"),
        (lambda c, pool: c.calls.pool_ref_count(pool, -1), MISUSE, "there is no block -1 among 4"),
    ],
)
def test_what_is_refused_changes_nothing_and_says_why(c, call, status, words):
    pool = c.new()
    assert c.error == ""
    assert call(c, pool) == status
    assert words in c.error
    assert c.calls.pool_num_free(pool) == 4


def test_a_pool_that_was_deleted_is_an_error_and_others_stay(c):
    first, second = c.new(), c.new()
    assert c.calls.pool_delete(first) == 0
    for call in (c.calls.pool_num_free, c.calls.pool_delete):
        assert call(first) == MISUSE
        assert c.error == "pool 1 is none, or was deleted"
    assert c.calls.pool_num_free(0) == MISUSE
    assert c.calls.pool_num_free(second) == 4


def test_calls_of_several_threads_take_turns(c):
    pool = c.new(num_blocks=64)

    def takes_and_gives_back():
        block_ids = c.ids(*[0] * 4)
        return [
            (c.calls.pool_allocate(pool, 4, block_ids), c.calls.pool_free(pool, block_ids, 4))
            for _ in range(400)
        ]

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            runs = [threads.submit(takes_and_gives_back) for _ in range(8)]
        assert {answer for run in runs for answer in run.result()} == {(0, 0)}
    finally:
        sys.setswitchinterval(usual)
    order = c.ids(*[0] * 64)
    assert c.calls.pool_free_order(pool, order) == 64
    assert sorted(order) == list(range(64))


def test_what_nobody_foresaw_does_not_cross_into_c(c, monkeypatch):
    def fails(pool):
        raise RuntimeError("out of order")

    monkeypatch.setattr(BlockPool, "num_free", fails)
    assert c.calls.pool_num_free(c.new()) == FAILED
    assert c.error == "out of order"


@dataclass
class Managed:
    """Calls of one manager, with lists in the place of pointers."""

    c: Caller
    number: int

    def __getattr__(self, name):
        return partial(getattr(self.c.calls, f"manager_{name}"), self.number)

    def request(self, number, tokens, *keys):
        ffi = self.c.ffi
        texts = [[ffi.new("char[]", text) for text in key[1:3]] for key in keys]
        made = [
            (key[0], *words, *key[3:]) for key, words in zip(keys, texts, strict=True)
        ]  # alive until the call is over
        given = ffi.new("poolproof_extra_key[]", made or 1)
        return self.request_new(number, self.c.ids(*tokens), len(tokens), given, len(keys))

    def more(self, number, *tokens):
        return self.request_append(number, self.c.ids(*tokens), len(tokens))

    def starts(self, number, tokens, *keys):
        """Admitted and computed whole; how many of its tokens were cached."""
        assert self.request(number, tokens, *keys) == 0
        cached = self.computed_blocks(number)
        assert self.allocate_slots(number, len(tokens) - cached, cached, 0, 0) >= 0
        assert self.set_computed(number, len(tokens), 0) == 0
        return cached

    def table(self, number, group=0):
        ids = self.c.ids(*[9] * 16)
        return list(ids[0 : self.block_table(number, group, ids)])

    @property
    def num_free(self):
        return self.c.calls.pool_num_free(self.pool())


def manager(c, num_blocks=8, block_size=4, max_model_len=64, options=b""):
    given = c.ffi.NULL if options is None else c.ffi.new("char[]", options)
    number = c.calls.manager_new(num_blocks, block_size, max_model_len, given)
    return Managed(c, number) if number > 0 else number


def test_a_prefix_that_was_computed_is_shared(c):
    kept = manager(c)
    assert kept.starts(7, range(9)) == 0
    assert kept.table(7) == [1, 2, 3]
    assert kept.starts(8, [*range(8), 50]) == 8
    assert kept.table(8) == [1, 2, 4]
    assert c.calls.pool_ref_count(kept.pool(), 1) == 2
    assert kept.num_free == 3
    assert kept.request_delete(7) == kept.request_delete(8) == 0
    assert kept.num_free == 7
    assert kept.reset_prefix_cache() == 1
    assert kept.starts(9, range(9)) == 0


def test_the_pool_of_a_manager_answers_for_its_hashes(c):
    for options, size in ((b"", 32), (b"hash=xxh128", 16), (b"hash=xxh64", 8)):
        kept = manager(c, options=options)
        kept.starts(1, range(5))
        room = c.ffi.new("uint8_t[]", 40)
        assert c.calls.pool_block_hash(kept.pool(), 1, room) == 1
        assert bytes(room[size:40]) == bytes(40 - size)
        assert any(room[0:size])
        assert c.calls.pool_lookup(kept.pool(), room) == 1


@pytest.mark.parametrize(
    ("one", "other", "num_shared"),
    [
        ([], [(SALT, b"mine", b"", 0, 0)], 0),
        ([(SALT, b"mine", b"", 0, 0)], [(SALT, b"yours", b"", 0, 0)], 0),
        ([(ADAPTER, b"a", b"/here", 0, 0)], [(ADAPTER, b"a", b"/there", 0, 0)], 0),
        ([(ADAPTER, b"a", b"/here", 0, 0)], [(ADAPTER, b"a", b"/here", 0, 0)], 8),
        ([(IMAGE, b"cat", b"", 5, 2)], [(IMAGE, b"dog", b"", 5, 2)], 4),
        ([(IMAGE, b"cat", b"", 0, 1)], [(IMAGE, b"cat", b"", 0, 1)], 8),
    ],
)
def test_what_else_the_kv_depends_on_keeps_requests_apart(c, one, other, num_shared):
    kept = manager(c)
    kept.starts(1, range(9), *one)
    assert kept.starts(2, range(9), *other) == num_shared


def test_a_seed_makes_the_hashes_of_two_managers_equal(c):
    def first_hash(options):
        kept = manager(c, options=options)
        kept.starts(1, range(5))
        room = c.ffi.new("uint8_t[]", 32)
        c.calls.pool_block_hash(kept.pool(), 1, room)
        return bytes(room)

    assert first_hash(b"seed=00ff") == first_hash(b"seed=00ff") != first_hash(b"seed=01")
    assert first_hash(b"") != first_hash(b"")


def test_a_delayed_key_is_found_once_its_tokens_are_computed(c):
    kept = manager(c)
    kept.request(1, range(9))
    assert kept.allocate_slots(1, 9, 0, 0, DELAY_CACHE) == 3
    kept.request(2, range(9))
    assert kept.computed_blocks(2) == 0
    kept.set_computed(1, 9, 0)
    assert kept.cache_blocks(1, 9) == 0
    assert kept.computed_blocks(2) == 8


def test_what_does_not_fit_changes_nothing(c):
    kept = manager(c, num_blocks=4)
    kept.starts(1, range(8))
    kept.request(2, range(40, 52))
    assert kept.allocate_slots(2, 12, 0, 0, 0) == FEWER_FREE
    assert c.error == "request 2 needs more blocks than the 1 that are free"
    assert kept.allocate_slots(2, 4, 0, 0, WHOLE_MUST_FIT) == FEWER_FREE
    assert kept.num_free == 1
    assert kept.allocate_slots(2, 4, 0, 0, 0) == 1


def test_tokens_that_are_appended_need_slots_and_lookahead_takes_more(c):
    kept = manager(c)
    kept.starts(1, range(4))
    assert kept.more(1, 4) == 0
    assert kept.allocate_slots(1, 1, 0, 0, 0) == 1
    assert kept.set_computed(1, 5, 1) == 0
    assert kept.more(1, 5) == 0
    assert kept.allocate_slots(1, 1, 0, 4, 0) == 1
    assert kept.table(1) == [1, 2, 3]


def test_a_preempted_request_begins_again_with_what_is_still_cached(c):
    kept = manager(c)
    kept.starts(1, range(9))
    assert kept.preempt(1) == 0
    assert (kept.table(1), kept.num_free) == ([], 7)
    assert kept.computed_blocks(1) == 8
    assert kept.allocate_slots(1, 1, 8, 0, 0) == 1
    assert len(kept.table(1)) == 3


def test_a_request_that_is_cut_computes_a_shared_block_again(c):
    kept = manager(c)
    kept.starts(1, range(9))
    assert kept.request_truncate(1, 6) == 4
    assert kept.table(1) == [1]
    kept.more(1, 60, 61)
    assert kept.allocate_slots(1, 4, 0, 0, 0) == 1
    assert kept.set_computed(1, 8, 0) == 0
    kept.request(2, [*range(6), 60, 61, 0])
    assert kept.computed_blocks(2) == 8


def test_groups_have_tables_of_their_own(c):
    kept = manager(c, num_blocks=32, options=b"groups=full+window:4+chunk:8")
    kept.starts(1, range(12))
    kept.more(1, 12)
    assert kept.allocate_slots(1, 1, 0, 0, 0) > 0
    full, window, chunk = (kept.table(1, group) for group in range(3))
    assert len(full) == len(window) == len(chunk) == 4
    assert 0 not in full
    assert window[:2] == chunk[:2] == [0, 0]
    assert 0 not in window[2:] + chunk[2:]
    assert kept.block_table(1, 0, c.ffi.NULL) == 4
    assert kept.block_table(1, 3, c.ffi.NULL) == MISUSE
    assert c.error == "there is no group 3 among 3"


def test_without_caching_and_with_an_eagle_head_less_is_found(c):
    off = manager(c, options=b"enable_caching=false")
    off.starts(1, range(9))
    assert off.starts(2, range(9)) == 0
    eagle = manager(c, options=b"use_eagle=true")
    eagle.starts(1, range(9))
    assert eagle.starts(2, range(9)) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (b"eviction=lru", "'eviction=lru' is no option of a manager; known are groups, hash, seed"),
        (b"groups=full+mamba", "groups cannot be 'full+mamba'"),
        (b"groups=window:none", "groups cannot be 'window:none'"),
        (b"groups=window:0", "groups cannot be 'window:0'"),
        (b"hash=md5", "hash cannot be 'md5'"),
        (b"seed=xyz", "seed cannot be 'xyz'"),
        (b"seed=", "seed must be bytes and not empty"),
        (b"use_eagle=1", "use_eagle cannot be '1'"),
    ],
)
def test_a_manager_that_cannot_be_made_is_a_negative_number(c, options, words):
    assert manager(c, options=options) == MISUSE
    assert words in c.error


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda kept: kept.request(1, range(3)), "there is a request 1 already"),
        (lambda kept: kept.request(2, [1, -1]), "a token is a number of at least 0, not -1"),
        (lambda kept: kept.more(1, -5), "a token is a number of at least 0, not -5"),
        (lambda kept: kept.more(2, 5), "there is no request 2"),
        (lambda kept: kept.request_delete(2), "there is no request 2, or it was deleted"),
        (lambda kept: kept.request(2, [1], (4, b"", b"", 0, 0)), "no extra key of kind 4"),
        (lambda kept: kept.request(2, [1], *[(SALT, b"a", b"", 0, 0)] * 2), "has one salt"),
        (lambda kept: kept.request(2, [1], *[(ADAPTER, b"", b"", 0, 0)] * 2), "has one lora"),
        (lambda kept: kept.request(2, [1], (IMAGE, b"a", b"", 0, 0)), "have 0 tokens from 0 on"),
        (lambda kept: kept.request(2, [1], (IMAGE, b"a", b"", -1, 1)), "have 1 tokens from -1 on"),
        (lambda kept: kept.allocate_slots(1, 1, 0, 0, 4), "there are no flags 4"),
        (lambda kept: kept.allocate_slots(1, -1, 0, 0, 0), "must be ints of at least 0"),
        (lambda kept: kept.allocate_slots(1, 1, 4, 0, 0), "found 8 since its last slots"),
        (lambda kept: kept.set_computed(1, 10, 0), "of 9 tokens of request 1 10 cannot be"),
        (lambda kept: kept.set_computed(1, 2, 3), "3 of them in flight"),
        (lambda kept: kept.request_truncate(1, 10), "cannot be cut to 10"),
        (lambda kept: kept.cache_blocks(1, 99), "99"),
    ],
)
def test_what_a_manager_refuses_changes_nothing_and_says_why(c, call, words):
    kept = manager(c)
    kept.starts(1, range(9))
    before = (kept.table(1), kept.num_free, kept.computed_blocks(1))
    assert call(kept) == MISUSE
    assert words in c.error
    assert (kept.table(1), kept.num_free, kept.computed_blocks(1)) == before


def test_computed_tokens_need_blocks(c):
    kept = manager(c)
    kept.request(1, range(9))
    assert kept.set_computed(1, 4, 0) == MISUSE
    assert c.error == "set_computed: request 1 has no blocks"
    assert kept.set_computed(1, 0, 0) == 0


def test_hits_that_were_looked_up_serve_one_allocation(c):
    kept = manager(c)
    kept.starts(1, range(9))
    kept.request(2, range(9))
    assert kept.computed_blocks(2) == 8
    assert kept.allocate_slots(2, 1, 8, 0, 0) == 1
    assert kept.allocate_slots(2, 1, 8, 0, 0) == MISUSE


def test_what_was_found_before_a_cut_is_forgotten(c):
    kept = manager(c)
    kept.starts(1, range(9))
    kept.request(2, range(9))
    assert kept.computed_blocks(2) == 8
    assert kept.request_truncate(2, 5) == 0
    assert kept.allocate_slots(2, 1, 8, 0, 0) == MISUSE
    assert kept.computed_blocks(2) == 4


def test_a_manager_that_was_deleted_takes_its_pool_with_it(c):
    first, second = manager(c), manager(c)
    first_pool = first.pool()
    assert c.calls.manager_delete(first.number) == 0
    assert first.computed_blocks(1) == MISUSE
    assert c.error == "manager 1 is none, or was deleted"
    assert c.calls.pool_num_free(first_pool) == MISUSE
    assert second.num_free == 7
    assert second.new_step() == 0
    assert first.new_step() == MISUSE


def test_a_manager_is_deleted_after_the_pool_that_it_had(c):
    first = manager(c)
    assert c.calls.pool_delete(first.pool()) == 0
    assert c.calls.manager_delete(first.number) == 0


def test_hashes_are_read_from_behind_a_pointer_that_knows_no_length(c):
    pool = c.new(8)
    blocks, hashes = c.allocate(pool, 2), c.hashes(b"a", b"b")
    bare = c.ffi.cast("uint8_t *", hashes)
    assert c.calls.pool_cache(pool, c.ids(*blocks), bare, 2) == 0
    assert c.calls.pool_lookup(pool, c.hashes(b"b")) == blocks[1]


def test_words_that_are_no_text_are_kept_as_far_as_they_go(c, monkeypatch):
    def refused(*_):
        raise ValueError("not \ud800 text")

    pool = c.new()
    monkeypatch.setattr(BlockPool, "num_free", refused)
    assert c.calls.pool_num_free(pool) == MISUSE
    assert c.error == "not ? text"


def test_an_option_is_named_up_to_the_first_equals_sign(c):
    assert c.new(options=b"null_block=0=1") == MISUSE
    assert c.error == "null_block cannot be '0=1'"


def test_a_key_behind_an_image_counts_as_well(c):
    kept = manager(c)
    image = (IMAGE, b"cat", b"", 0, 1)
    kept.starts(1, range(9), image, (SALT, b"mine", b"", 0, 0))
    assert kept.starts(2, range(9), image, (SALT, b"yours", b"", 0, 0)) == 0
    assert kept.starts(3, range(9), image, (SALT, b"mine", b"", 0, 0)) == 8


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ((SALT, b"mine", b"", 0, 0), {"salt": Salt("mine")}),
        ((ADAPTER, b"a", b"/here", 0, 0), {"lora": LoRA("a", "/here")}),
    ],
)
def test_the_hash_of_a_request_with_a_key_is_that_of_python(c, key, keys):
    kept = manager(c, options=b"hash=xxh64,seed=00ff")
    kept.starts(1, range(5), key)
    room = c.ffi.new("uint8_t[]", 8)
    assert c.calls.pool_block_hash(kept.pool(), 1, room) == 1
    hasher = BlockHasher("xxh64", seed=b"\x00\xff", block_size=4)
    assert bytes(room) == Request("r", list(range(5)), hasher=hasher, **keys).block_hashes[0]


def with_shared_library(monkeypatch, is_there=1):
    known = {"Py_ENABLE_SHARED": is_there}
    monkeypatch.setattr(sysconfig, "get_config_var", known.get)


def test_what_keeps_a_library_from_being_built_is_one_line(tmp_path, monkeypatch, capsys):
    with_shared_library(monkeypatch, 0)
    with pytest.raises(BuildError) as refused:
        build(tmp_path)
    assert str(refused.value) == (
        f"{sys.executable} has no shared library to link with; use a Python that was built with "
        "--enable-shared, such as a distribution's own"
    )
    monkeypatch.setitem(sys.modules, "cffi", None)
    assert c_interface.main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith("poolproof: cffi is not installed; pip install")


@pytest.mark.parametrize("arguments", [[], ["-x"], ["a", "b"]])
def test_the_command_takes_one_folder(arguments, monkeypatch, capsys):
    monkeypatch.setattr(c_interface, "build", None)
    assert c_interface.main(arguments) == 2
    usage = "usage: python -m poolproof.impl.c_interface FOLDER\n"
    assert capsys.readouterr().err == usage


class NotesTheBuild(cffi.FFI):
    """Compiles nothing."""

    source, error = {}, None

    def set_source(self, module, source, **named):
        type(self).source = {"module": module, "source": source, **named}

    def compile(self, tmpdir, target):
        if self.error:
            raise self.error
        return f"{tmpdir}/{target.replace('*', 'so')}"


def test_the_command_says_what_it_has_written(tmp_path, monkeypatch, capsys):
    with_shared_library(monkeypatch)
    monkeypatch.setattr(cffi, "FFI", NotesTheBuild)
    folder = tmp_path / "new" / "folder"
    assert c_interface.main([str(folder)]) == 0
    header, made = folder / "poolproof.h", folder / "libpoolproof.so"
    assert capsys.readouterr().out == f"wrote {header} and {made}\n"
    assert header.read_bytes() == c_interface.HEADER.read_bytes()
    assert NotesTheBuild.source["include_dirs"] == [str(folder.resolve())]


def test_a_library_that_does_not_compile_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    with_shared_library(monkeypatch)
    monkeypatch.setattr(cffi, "FFI", NotesTheBuild)
    monkeypatch.setattr(NotesTheBuild, "error", OSError("cc is not here"))
    assert c_interface.main([str(tmp_path)]) == 2
    said = "poolproof: the library was not compiled: cc is not here; is there a C compiler?\n"
    assert capsys.readouterr().err == said


def test_the_path_of_an_environment_is_one_string_of_c():
    assert c_interface._wide("/Opt/Z/bin") == "/Opt/Z/bin"
    assert c_interface._wide("/usr/v1.0/bin/python3") == "/usr/v1.0/bin/python3"
    assert c_interface._wide('/a "b"\\/\u00e9') == r"/a\040\042b\042\134/\U000000e9"


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Header and library, in a folder of their own."""
    if shutil.which("cc") is None or not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        pytest.skip("there is no C compiler (cc) here, or no shared library of Python")
    return build(tmp_path_factory.mktemp("embedded"))


def built(library, name, compiler, *sources):
    """A program over the library, beside it."""
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no {compiler[0]} here")
    folder = library.parent
    command = [*compiler, "-Wall", "-Wextra", "-Werror", f"-I{folder}", *sources]
    command += [library, f"-Wl,-rpath,{folder}", "-o", folder / name]
    subprocess.run(command, check=True)
    return folder / name


@pytest.fixture(scope="module")
def pool_program(library):
    """The example: the pool behind the protocol of programs, all of it in C."""
    sources = [ROOT / "examples/embedded/main.c", *(ROOT / "examples/c").glob("poolproof_*.c")]
    return built(library, "embedded_pool", ["cc", "-std=c11"], *sources)


@pytest.fixture(scope="module")
def manager_program(library):
    """The same with the manager, in C++."""
    served = [ROOT / "examples/cpp" / f"poolproof_{part}.cpp" for part in ("manager", "messages")]
    main = ROOT / "examples/embedded/manager.cpp"
    return built(library, "embedded_manager", ["c++", "-std=c++17"], main, *served)


def poolproof(*arguments):
    command = [sys.executable, "-m", "poolproof", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_program_in_c_embeds_the_pool(pool_program):
    done = poolproof("protocol", "smoke", f"cmd:{pool_program}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.some(0)
def test_a_program_in_cpp_embeds_the_manager(manager_program):
    done = poolproof("protocol", "smoke", f"cmd:{manager_program}")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep
@pytest.mark.parametrize(
    ("program", "bug", "invariant"),
    [
        ("pool_program", "frees-backwards", "ORD"),
        ("manager_program", "no-extra-keys", "DATA"),
    ],
)
def test_what_is_embedded_holds_and_a_wrong_use_of_it_does_not(
    program, bug, invariant, tmp_path, request
):
    path = request.getfixturevalue(program)
    report = ["--depth", "quick", "--report", str(tmp_path)]
    done = poolproof("certify", f"cmd:{path}", *report)
    assert done.returncode == 0, done.stdout + done.stderr
    done = poolproof("certify", f"cmd:{path} --bug {bug}", *report)
    assert done.returncode == 1
    assert invariant in done.stdout
