"""Under `retention: may-drop` free cached blocks may vanish, and nothing else may."""

from __future__ import annotations

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Admit,
    Finish,
    LookupPrefix,
    Preempt,
    Schedule,
    Step,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_session import ManagerSession

CHAIN = TokenChain((1, 2, 3))
OTHER = TokenChain((7, 8, 9))
FOUND = LookupPrefix(CHAIN)


class Dropping(CleanManager):
    """Forgets blocks when it is told to."""

    def drop(self, *blocks):
        self.pool.evict(list(blocks))


class Blind(Dropping):
    """Does not show what is cached."""

    is_cached = None


class Careless(Dropping):
    """Finds nothing any more, although everything is still there."""

    blind = False

    def _hits(self, sequence):
        return [] if self.blind else super()._hits(sequence)


def session_of(cls, **rows):
    profile = ManagerProfile.from_mapping({"index": "exact", **rows})
    session = ManagerSession(cls(6, 2, rules=profile), profile, 6, 2)
    for command in (Admit(0, CHAIN, 0), Step()):
        assert session.step(command) is None
    return session


def block_of(session):
    return session.target.block_table(0)[0]


@pytest.mark.parametrize(("retention", "caught"), [("may-drop", None), ("exact", "I4")])
@pytest.mark.parametrize("cls", [Dropping, Blind])
def test_a_free_cached_block_may_vanish(cls, retention, caught):
    session = session_of(cls, retention=retention)
    block = block_of(session)
    assert session.step(Finish(0)) is None
    session.target.drop(block)
    violation = session.step(FOUND)
    assert (violation and violation.invariant) == caught


@pytest.mark.parametrize("cls", [Dropping, Blind])
def test_a_held_block_may_not(cls):
    session = session_of(cls, retention="may-drop")
    session.target.drop(block_of(session))
    assert session.step(FOUND).invariant == "I4"


def test_what_is_shown_as_cached_has_to_be_found():
    session = session_of(Careless, retention="may-drop")
    assert session.step(Preempt(0)) is None
    session.target.blind = True
    violation = session.step(Admit(1, CHAIN, 0))
    assert (violation.invariant, "2 are in the index" in violation.sentence) == ("I4", True)


def test_what_has_vanished_may_be_published_again():
    session = session_of(Dropping, retention="may-drop")
    block = block_of(session)
    session.step(Finish(0))
    session.target.drop(block)
    assert [session.step(c) for c in (FOUND, Admit(1, CHAIN, 0), Step(), FOUND)] == [None] * 4
    assert session.calls.answer == 2


def filed_late(cls, *, drops):
    """What a free block carries, or has just lost, is computed by a second sequence."""
    profile = ManagerProfile.from_mapping(
        {"index": "exact", "retention": "may-drop", "duplicates": "first"}
    )
    session = ManagerSession(cls(6, 2, rules=profile), profile, 6, 2)
    for command in (Admit(0, CHAIN, 0), Admit(1, CHAIN, 1), Step()):
        assert session.step(command) is None
    block = block_of(session)
    for command in (Finish(0), Schedule(1, 1)):
        assert session.step(command) is None
    if drops:
        session.target.drop(block)
    assert session.step(Step()) is None
    return session, block


@pytest.mark.parametrize("drops", [False, True])
def test_who_shows_what_is_cached_leaves_no_doubt_who_carries_a_key(drops):
    session, block = filed_late(Dropping, drops=drops)
    carrier = session.target.block_table(1)[0] if drops else block
    assert not session.model.pool.doubtful
    assert list(session.model.pool.lookup(session.model.key(session.model.sequences[1], 0, 0))) == [
        carrier
    ]


@pytest.mark.parametrize("drops", [False, True])
def test_of_who_does_not_either_block_may_carry_it_and_be_missed(drops):
    session, block = filed_late(Blind, drops=drops)
    assert session.model.pool.doubtful == {session.target.block_table(1)[0]}
    assert session.step(FOUND) is None
    session.target.drop(block, session.target.block_table(1)[0])
    assert session.step(FOUND) is None
    assert session.calls.answer == 0


def test_what_no_doubt_excuses_has_to_be_found():
    session, _ = filed_late(Blind, drops=False)
    for command in (Admit(2, OTHER, 0), Step()):
        assert session.step(command) is None
    session.target.drop(session.target.block_table(2)[0])
    assert session.step(LookupPrefix(OTHER)).invariant == "I4"
