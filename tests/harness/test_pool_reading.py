"""What cannot be read is the target's violation; our own bugs are not; `may-drop` is followed."""

import sys

import pytest

from poolproof.contract.commands import (
    Allocate,
    Cache,
    Free,
    Lookup,
    Reset,
)
from poolproof.contract.misuse import Misuse, MisuseKind
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.harness.pool_session import PoolSession
from poolproof.impl.block_pool import BlockPool

A, B = b"\xaa" * 16, b"\xbb" * 16


def session_of(cls=BlockPool, num_blocks=4, *, full_every=None, **rows):
    target = cls(num_blocks, **rows)
    return PoolSession(
        target, Profile.from_mapping(target.profile), num_blocks, full_every=full_every
    )


def first_violation(session, *commands):
    """What the last command shows; all before it pass."""
    assert session.first_look() is None
    *before, last = commands
    for command in before:
        assert session.step_any(command) is None, command
    return session.step_any(last)


def raises(error):
    def method(*arguments):
        raise error

    return method


OBSERVERS = ["num_free", "free_order", "ref_count", "block_hash", "free_neighbours", "take_events"]


@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize("error", [RuntimeError("torn"), SystemExit(3)])
@pytest.mark.parametrize("command", [Allocate(1), Allocate(9), Allocate(-1)])
def test_an_observer_that_raises_is_the_targets_violation(observer, error, command):
    class Raises(BlockPool):
        pass

    setattr(Raises, observer, raises(error))
    target = Raises(4, events="per-copy")
    profile = Profile.from_mapping(target.profile)
    found = PoolSession(target, profile, 4).step_any(command)
    assert found.severity is Severity.CRASH
    assert type(error).__name__ in found.sentence
    if observer != "take_events":
        fresh = PoolSession(target, profile, 4).first_look()
        assert (fresh.invariant, fresh.severity) == ("CRASH", Severity.CRASH)


@pytest.mark.parametrize(
    ("observer", "answer"),
    [
        ("num_free", None),
        ("num_free", "4"),
        ("free_order", None),
        ("free_order", [[0], [1], [2], [3]]),
        ("free_order", 7),
        ("ref_count", None),
        ("ref_count", "0"),
        ("free_neighbours", 3),
        ("free_neighbours", (1, 2, 3)),
        ("free_neighbours", ("a", None)),
        ("lookup", [3]),
        ("lookup", "3"),
    ],
)
def test_an_answer_of_a_wrong_type_is_the_targets_violation(observer, answer):
    target = BlockPool(4)
    setattr(target, observer, lambda *arguments: answer)
    session = PoolSession(target, Profile.from_mapping(target.profile), 4)
    session.keys.know((A,))
    for found in (session.first_look(), session.step(Allocate(1)), session.step(Lookup(B))):
        assert found.invariant == "CRASH"
        assert f"answered {answer!r}; it must answer" in found.sentence


class Array:
    """As numpy's: a comparison gives no truth value."""

    def __ne__(self, other):
        raise ValueError("the truth value of an array is ambiguous")


@pytest.mark.parametrize("answer", [None, 7, Array()])
def test_events_that_are_no_list_are_the_targets_violation(answer):
    target = BlockPool(4, events="per-copy")
    target.take_events = lambda: answer
    found = PoolSession(target, Profile.from_mapping(target.profile), 4).step(Allocate(1))
    assert found.invariant == "EVT"
    assert "it must answer a list of events" in found.sentence


@pytest.mark.parametrize("full_every", [1, 50])
def test_compiled_code_that_raises_is_the_targets_violation(full_every):
    target = BlockPool(4)
    target.num_free = {}.popitem  # compiled: the innermost frame of the exception is ours
    session = PoolSession(target, Profile(), 4, full_every=full_every)
    found = session.step(Allocate(1))
    assert found.invariant == "CRASH"
    assert "KeyError" in found.sentence


def test_the_end_of_a_pool_that_cannot_be_read_is_a_violation():
    session = session_of()
    session.target.num_free = raises(RuntimeError("torn"))
    assert session.end().sentence == "method() is legal here but raised RuntimeError: torn"


def test_a_bug_of_ours_is_not_the_targets(monkeypatch):
    session = session_of()
    monkeypatch.setattr(session.reference, "allocate", lambda count, chosen: {}["ours"])

    def ours():
        sys.modules["poolproof.contract.content"].TokenChain(()).prefix(0, 0)

    session._full.passes = ours
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        session.step(Allocate(1))
    with pytest.raises(AssertionError):
        session.step_misuse(Allocate(-1), Misuse(MisuseKind.NEGATIVE_COUNT, "negative"))


def test_two_reads_that_differ_are_named():
    class Flickers(BlockPool):
        reads = 0

        def free_order(self):
            self.reads += 1
            return super().free_order()[:: 1 if self.reads != 2 else -1]

    session = session_of(Flickers)
    assert session.first_look() is None
    found = session.step(Allocate(1))
    assert found.sentence == (
        "after allocate(1), two reads of the unchanged pool show different states"
    )


class Forgets(BlockPool):
    """Loses the hash of free block 0 on its own, at a moment that nobody chose."""

    def num_free(self):
        if self._cached.primary[0] and not self._ref_counts[0]:
            self._cached.drop(0)
        return super().num_free()


def forgetful(hidden=()):
    target = Forgets(4)
    for name in hidden:
        setattr(target, name, None)
    rows = {**target.profile, "retention": "may-drop"}
    return PoolSession(target, Profile.from_mapping(rows), 4)


CACHED = (Allocate(3), Cache((0, 1, 2), (A, B, B)), Free((0, 1)))


@pytest.mark.parametrize("hidden", [(), ("block_hash",)])
def test_a_pool_that_may_drop_may_drop(hidden):
    session = forgetful(hidden)
    for command in (*CACHED, Lookup(A), Lookup(B), Free((2,)), Reset()):
        assert session.step(command) is None, command


def test_a_pool_that_may_not_drop_is_accused():
    found = first_violation(session_of(Forgets), *CACHED)
    assert found.invariant == "I4"


def test_a_held_hash_may_not_be_dropped():
    class DropsHeld(BlockPool):
        def num_free(self):
            self._cached.drop(2)
            return super().num_free()

    target = DropsHeld(4)
    session = PoolSession(target, Profile(retention="may-drop"), 4)
    assert first_violation(session, Allocate(3), Cache((2,), (A,))).invariant == "IDX"


def test_a_free_order_that_raises_while_it_is_walked_is_the_targets_violation():
    class Walks(BlockPool):
        def free_order(self):
            yield 0
            raise RuntimeError("torn")

    found = session_of(Walks).first_look()
    assert found.sentence == "free_order() is legal here but raised RuntimeError: torn"


def test_a_block_may_vanish_while_everything_is_read():
    class DropsLate(BlockPool):
        """Loses a hash just after it was shown: block 0 in the fast check, 1 in the diagnosis."""

        def __init__(self, num_blocks):
            super().__init__(num_blocks)
            self.reads = [0, 0]

        def block_hash(self, block):
            shown = super().block_hash(block)
            if block < 2 and shown and not self._ref_counts[block]:
                self.reads[block] += 1
                if self.reads[block] == (2, 4)[block]:
                    self._cached.drop(block)
            return shown

    target = DropsLate(4)
    rows = {**target.profile, "retention": "may-drop"}
    session = PoolSession(target, Profile.from_mapping(rows), 4)
    for command in (Allocate(2), Cache((0, 1), (A, B)), Free((0, 1)), Lookup(A), Lookup(B)):
        assert session.step(command) is None
    assert session.reference.keys[0] == session.reference.keys[1] == []
