"""Under `retention: may-drop` free cached blocks may vanish, and nothing else may."""

from __future__ import annotations

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Finish, LookupPrefix, Preempt, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_session import ManagerSession

CHAIN = TokenChain((1, 2, 3))
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
