"""The grammar of exhaustive search names what is legal once, and nothing that is not."""

import pytest

from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.commands import Allocate, Cache, Evict, Free, Lookup, Touch
from poolproof.contract.profile import Profile
from poolproof.exploration.grammars import PoolGrammar
from poolproof.exploration.recorded_session import RecordedPool

H1, H2 = b"1" * 16, b"2" * 16


def commands_after(*commands, num_blocks=4, **rows):
    profile = Profile(**{"misuse": "undefined", **rows})
    session = RecordedPool(CleanPool(num_blocks, rules=profile), profile, num_blocks)
    for command in commands:
        assert session.step_any(command) is None
    return list(PoolGrammar([H1, H2], max_count=3, max_list=2).commands(session))


def test_a_fresh_pool_can_only_allocate_look_up_and_reset():
    shown = [str(command) for command in commands_after()]
    assert shown == [
        "allocate(0)", "allocate(1)", "allocate(2)", "allocate(3)", "allocate(5)",
        f"{Lookup(H1)}", "reset()",
    ]  # fmt: skip


def test_blocks_that_cannot_be_told_apart_are_tried_once():
    commands = commands_after(Allocate(2))
    assert [c.block_ids for c in commands if isinstance(c, Free)] == [(0,), (0, 1)]


def test_blocks_with_different_hashes_are_tried_both():
    commands = commands_after(Allocate(2), Cache((0,), (H1,)))
    frees = [c.block_ids for c in commands if isinstance(c, Free)]
    assert frees == [(0,), (1,), (0, 1), (1, 0)]


def test_a_block_held_twice_may_be_freed_twice_in_one_call():
    assert Free((0, 0)) in commands_after(Allocate(1), Touch((0,)))
    assert Free((0, 0)) not in commands_after(Allocate(1))


def test_fresh_hashes_come_in_their_order():
    commands = commands_after(Allocate(2))
    hashes = {c.hashes for c in commands if isinstance(c, Cache)}
    assert hashes == {(H1,), (H1, H1), (H1, H2)}


def test_a_free_block_without_a_hash_is_never_touched():
    commands = commands_after(Allocate(1), Free((0,)))
    assert not any(isinstance(c, Touch | Evict) for c in commands)


def test_misuse_is_tried_where_the_profile_defines_it():
    shown = [str(command) for command in commands_after(misuse="raises")]
    assert "allocate(-1)" in shown
    assert "free([4])" in shown


@pytest.mark.parametrize(("null_in_lists", "is_named"), [("ignored", True), ("misuse", False)])
def test_the_null_block_stands_in_lists_where_it_is_ignored(null_in_lists, is_named):
    commands = commands_after(Allocate(1), null_block=0, null_in_lists=null_in_lists)
    assert any(isinstance(c, Free) and 0 in c.block_ids for c in commands) == is_named
