"""How sequences of the specification of managers move: to the host and back, and from elsewhere.

The other verbs are in test_native_manager_verbs.py.
"""

from __future__ import annotations

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.native_manager import NativeSequenceManager

TOKENS = [1, 2, 3, 4, 5]


def manager(num_blocks=8, **rows):
    """Blocks of two tokens."""
    return NativeSequenceManager(num_blocks, 2, profile=ManagerProfile.from_mapping(rows))


def computed(spec, seq_id, tokens):
    assert spec.admit(seq_id, list(tokens)) == 0
    spec.step([(seq_id, len(tokens))])
    return spec


def state(spec, seq_id=0):
    return spec._model.sequences[seq_id]


def swapping(host_blocks=3):
    spec = computed(manager(4, host_blocks=host_blocks), 0, [1, 2, 3])
    spec.fork(0, 1)
    return spec


def test_a_family_moves_to_the_host_and_back_with_its_sharing():
    spec = swapping()
    assert spec.swap_out(1) == [(0, 0), (1, 1)]
    assert (spec.num_free(), spec.num_free_host()) == (4, 1)
    assert state(spec, 0).place == state(spec, 1).place == "host"
    assert spec.swap_in(0) == [(0, 2), (1, 3)]
    assert spec.block_table(0) == spec.block_table(1) == [2, 3]
    assert [spec.ref_count(block) for block in (2, 3)] == [2, 2]
    assert (spec.num_free(), spec.num_free_host()) == (2, 3)
    assert state(spec, 0).place == state(spec, 1).place == "device"


def test_what_comes_back_from_the_host_can_be_found():
    spec = swapping()
    spec.swap_out(0)
    computed(spec, 2, [7] * 8)
    spec.finish(2)
    assert spec.lookup_prefix(TOKENS) == 0
    spec.swap_in(0)
    assert spec.lookup_prefix(TOKENS) == 2


def test_a_family_that_does_not_fit_stays_where_it_is():
    spec = swapping(1)
    assert spec.swap_out(0) == "later"
    assert spec.block_table(0) == [0, 1]
    spec = swapping(2)
    spec.swap_out(0)
    computed(spec, 2, [7] * 8)
    assert spec.swap_in(0) == "later"
    assert spec.lookup_prefix(TOKENS) == 0
    assert state(spec, 0).place == "host"
    assert spec.num_free_host() == 0


def test_swapping_leaves_the_null_block_alone():
    spec = computed(manager(4, host_blocks=2, null_block=0), 0, [1, 2, 3])
    assert spec.swap_out(0) == [(1, 0), (2, 1)]


def test_what_a_transfer_writes_is_found_when_it_is_over():
    spec = manager(publishes="scheduled")
    assert spec.load(0, TOKENS, num_tokens=4) == 0
    assert (state(spec).loading, state(spec).num_scheduled) == (4, 0)
    assert spec.block_table(0) == [0, 1]
    assert spec.lookup_prefix([*TOKENS, 6]) == 0
    spec.loaded(0)
    assert (state(spec).loading, state(spec).num_computed) == (0, 4)
    assert spec.lookup_prefix([*TOKENS, 6]) == 4


def test_a_transfer_writes_what_is_not_cached():
    spec = computed(manager(), 0, [1, 2])
    assert spec.load(1, TOKENS, num_tokens=2) == 2
    assert state(spec, 1).loading == 2
    assert spec.block_table(1) == [0, 1]


def test_a_transfer_without_a_number_writes_everything():
    spec = manager(publishes="scheduled")
    spec.load(0, TOKENS)
    assert (state(spec).loading, spec.block_table(0)) == (5, [0, 1, 2])
    assert spec.lookup_prefix(TOKENS) == 0
    spec.loaded(0)
    assert spec.lookup_prefix(TOKENS) == 4


def test_a_transfer_is_found_by_its_extra_keys_alone():
    spec = manager()
    salt = [("salt", "s", 0, None)]
    spec.load(0, TOKENS, extra_keys=salt, num_tokens=4)
    spec.loaded(0)
    assert spec.lookup_prefix(TOKENS, extra_keys=salt) == 4
    assert spec.lookup_prefix(TOKENS) == 0


def test_a_transfer_that_does_not_fit_leaves_nothing_behind():
    spec = manager(1)
    assert spec.load(0, TOKENS, num_tokens=4) == "never"
    assert spec._model.sequences == {}
    assert spec.num_free() == 1


def test_who_ends_during_a_transfer_keeps_the_blocks_until_it_is_over():
    spec = manager()
    spec.load(0, TOKENS, num_tokens=4)
    spec.abort(0)
    assert spec.num_free() == 6
    spec.loaded(0)
    assert spec.num_free() == 8
    assert spec._model.sequences == {}
