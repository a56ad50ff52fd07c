"""A block is named by its role, and the name means the block of that role in another state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolproof.contract.commands import (
    Allocate,
    Append,
    AppendN,
    Cache,
    CachePartial,
    Free,
    Lookup,
    PopLeft,
    Remove,
    Reset,
    Touch,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.harness.choices import SeededChoices
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload, alphabet
from poolproof.harness.relative import RelativeCommand, made_concrete, made_relative
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.native_pool import NativeDictPool

A, B = b"a", b"b"


def pool_after(*, first=3, num_blocks=6):
    """`first` blocks held; block 1 is then freed under a hash; the rest is free without one."""
    pool = DictPool(num_blocks, Profile(null_block=0, null_in_lists="ignored"))
    pool.command_number = 1
    pool.allocate(first)
    pool.cache([1], [A])
    pool.release([1])
    return pool


@pytest.mark.parametrize(
    ("command", "roles"),
    [
        (Free((2, 3)), (("held", 0), ("held", 1))),
        (Touch((1,)), (("cached", 0),)),
        (Touch((0, 3)), (("null", 0), ("held", 1))),
        (Cache((5,), (B,)), (("free", 1),)),
        (Free((9, -1)), (("raw", 9), ("raw", -1))),
        (Allocate(2), ()),
        (Allocate(3), (("all", 0),)),
        (Allocate(5), (("beyond", 2),)),
        (Reset(), ()),
        (Lookup(A), ()),
        (CachePartial(TokenChain((1,)), 2, 1, 0), (("held", 0),)),
    ],
)
def test_blocks_are_named_by_their_roles(command, roles):
    pool = pool_after()
    relative = made_relative(command, pool)
    assert relative == RelativeCommand(command, roles)
    assert made_concrete(relative, pool) == command


@pytest.mark.parametrize(
    ("roles", "block"),
    [((("held", 0),), 2), ((("held", 1),), 2), ((("cached", 5),), 1), ((("free", 0),), 3),
     ((("null", 3),), 0), ((("raw", 7),), 7)],
)  # fmt: skip
def test_a_role_means_the_block_that_has_it_now(roles, block):
    relative = RelativeCommand(Free((99,)), roles)
    assert made_concrete(relative, pool_after(first=2)) == Free((block,))


def test_a_role_that_nobody_has_means_nothing():
    assert made_concrete(RelativeCommand(Free((1,)), (("held", 0),)), DictPool(3)) is None
    assert made_concrete(RelativeCommand(Free((1,)), (("null", 0),)), DictPool(3)) is None


@pytest.mark.parametrize(("kind", "count"), [(("all", 0), 4), (("beyond", 1), 5)])
def test_an_allocation_follows_what_is_free(kind, count):
    assert made_concrete(RelativeCommand(Allocate(9), (kind,)), pool_after(first=2)) == (
        Allocate(count)
    )


def test_one_free_block_is_not_all_of_them():
    pool = pool_after(first=5)
    assert len(pool.free) == 1
    assert made_relative(Allocate(1), pool) == RelativeCommand(Allocate(1))


def test_a_queue_has_two_roles():
    queue = DictQueue(4)
    queue.remove(1)
    queue.remove(3)
    assert made_relative(Remove(2), queue).roles == (("queued", 1),)
    assert made_relative(AppendN((3, 1)), queue).roles == (("outside", 1), ("outside", 0))
    assert made_relative(PopLeft(), queue).roles == ()
    assert made_concrete(RelativeCommand(Append(0), (("outside", 1),)), queue) == Append(3)


@given(st.integers(0, 10**6))
def test_every_legal_command_comes_back_in_its_own_state(seed):
    profile = Profile(null_block=0, null_in_lists="ignored")
    session = PoolSession(NativeDictPool(6, profile=profile), profile, 6)
    workload = PoolWorkload(SeededChoices(seed), session.reference, session.can, alphabet(3, seed))
    for _ in range(20):
        command = workload.next()
        relative = made_relative(command, session.reference)
        assert made_concrete(relative, session.reference) == command
        assert session.step(command) is None
        workload.references.extend(session.last.taken)
