"""What a target raises because of the length of a hash is told from whatever else it raises."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.commands import Allocate, Cache, Lookup
from poolproof.contract.index_commands import Get, Insert
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.harness.careful_session import CAREFUL
from poolproof.harness.hash_lengths import length_of_hashes, lengths_that_pass
from poolproof.harness.replay import replay


def pool_that_raises_on(is_wrong):
    class Raises(CleanPool):
        def lookup(self, block_hash):
            if is_wrong(block_hash):
                raise ValueError("no")
            return super().lookup(block_hash)

    return lambda n, on: Raises(n, enable_caching=on)


def failing(make, *commands, level="pool", **setup):
    trace = Trace("x", level, Profile(), 4, True, commands, **setup)
    done = replay(trace, make)
    assert done.violation is not None
    return replace(trace, commands=done.applied, violation=done.violation)


def passing(trace, make):
    return lengths_that_pass(trace, make, lambda: None)


@pytest.mark.parametrize("own", [4, 16, 33])
@pytest.mark.parametrize("width", [8, 20, 32, 256])
def test_the_width_of_a_pool_is_found(own, width):
    make = pool_that_raises_on(lambda key: len(key) != width)
    assert passing(failing(make, Lookup(b"a" * own)), make) == (width,)


def test_a_pool_that_takes_short_hashes_alone_passes_with_all_of_these():
    make = pool_that_raises_on(lambda key: len(key) > 20)
    assert passing(failing(make, Lookup(b"a" * 33)), make) == (1, 2, 4, 8, 12, 16, 20)


def test_a_hash_that_is_special_by_its_bytes_says_nothing_of_lengths():
    make = pool_that_raises_on(lambda key: not any(key))
    assert passing(failing(make, Lookup(bytes(16))), make) == ()


def test_what_is_raised_whatever_the_hash_says_nothing_of_lengths():
    make = pool_that_raises_on(lambda _key: True)
    trace = failing(make, Allocate(1), Cache((0,), (b"a" * 16,)))
    assert passing(trace, make) == ()


def test_equal_hashes_stay_equal_and_different_ones_different():
    seen = []

    class Listens(CleanPool):
        def cache(self, block_ids, hashes):
            seen.append(list(hashes))
            if len(hashes[0]) == 16:
                raise ValueError
            super().cache(block_ids, hashes)

    def make(num_blocks, enable_caching):
        return Listens(num_blocks, enable_caching=enable_caching)

    a, b = b"a" * 16, b"b" * 16
    trace = failing(make, Allocate(3), Cache((0, 1, 2), (a, b, a)))
    seen.clear()
    assert passing(trace, make)
    for first, second, third in seen:
        assert first == third != second


def test_the_second_instance_of_a_careful_run_is_given_hashes_as_well():
    make = pool_that_raises_on(lambda key: len(key) != 32)
    trace = failing(make, options={CAREFUL: True})
    assert trace.commands == ()
    assert not trace.violation.sentence.startswith("two instances share state")
    assert passing(trace, make) == (32,)


@pytest.mark.parametrize("key", [b"a" * 16, (b"a" * 16, 3)])
def test_the_keys_of_an_index_have_lengths_too(key):
    class OneWidth(CleanIndex):
        def insert(self, key, block_id):
            if len(key[0] if isinstance(key, tuple) else key) != 20:
                raise ValueError
            super().insert(key, block_id)

    def make(_num_blocks, _enable_caching):
        return OneWidth()

    trace = failing(make, Insert(key, 1), Get(key), level="index")
    assert passing(trace, make) == (20,)


def test_a_trace_without_hashes_of_one_length_is_left_alone():
    def length(*commands, **changes):
        return length_of_hashes(
            replace(Trace("x", "pool", Profile(), 2, True, commands), **changes)
        )

    assert length(Allocate(1)) is None
    assert length(Lookup(b"a" * 8)) == 8
    assert length(Lookup(b"a" * 8), Lookup(b"a" * 9)) is None
    assert length(Lookup(b"a" * 8), profile=Profile(hash_bytes=8)) is None
    assert length(Lookup(b"a" * 8), options={"block_size": 4}) is None
    assert length(Insert(5, 0), level="index") is None
