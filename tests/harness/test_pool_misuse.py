"""What the profile promises about misuse is held against what a target does."""

import pytest

from poolproof.contract.commands import (
    Allocate,
    Cache,
    Free,
)
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.harness.pool_session import PoolSession
from poolproof.impl.block_pool import BlockPool

A, B, C = b"\xaa" * 16, b"\xbb" * 16, b"\xcc" * 16
WRONG, CRASH = Severity.WRONG_DATA_OF_ANOTHER, Severity.CRASH


def session_of(target, **rows):
    profile = Profile.from_mapping({**target.profile, **rows})
    return PoolSession(target, profile, target.num_blocks)


def after(session, *commands):
    *before, last = commands
    for command in before:
        assert session.step_any(command) is None, command
    return session.step_any(last)


@pytest.mark.parametrize(
    ("misuse", "behaviour", "words"),
    [
        ("raises", None, "and must raise a ValueError, but it went through"),
        ("raises", KeyError("x"), "and must raise a ValueError, but it raised KeyError: 'x'"),
        ("raises", SystemExit(1), "and must raise a ValueError, but it raised SystemExit: 1"),
        ("ignores", ValueError("x"), "that the profile ignores, but it raised ValueError: x"),
    ],
)
def test_a_broken_promise_about_misuse_is_named(misuse, behaviour, words):
    class Promises(BlockPool):
        def free(self, block_ids):
            if behaviour is not None:
                raise behaviour

    found = after(session_of(Promises(2, misuse=misuse)), Free((9,)))
    assert found.invariant == "MISUSE"
    assert found.sentence == f"free([9]) is misuse (block 9 does not exist (there are 2)) {words}"


@pytest.mark.parametrize("misuse", ["raises", "ignores"])
def test_a_kept_promise_about_misuse_passes(misuse):
    session = session_of(BlockPool(2, misuse=misuse))
    assert after(session, Allocate(1), Free((0, 0)), Cache((1,), (A,)), Allocate(-1)) is None
    assert session.last.taken == ()
    assert "misuse was tried" in session.facts


def test_a_hash_that_misuse_gave_is_looked_up_from_then_on():
    class CachesAllTheSame(BlockPool):
        sneaked = None

        def cache(self, block_ids, hashes):
            self.sneaked = hashes[0]
            super().cache(block_ids, hashes)

        def lookup(self, block_hash):
            return 0 if block_hash == self.sneaked else super().lookup(block_hash)

    for full_every in (1, 50):
        target = CachesAllTheSame(3)
        session = PoolSession(target, Profile(), 3, full_every=full_every)
        found = after(session, Allocate(1), Cache((1,), (A,)))
        assert found.invariant == "MISUSE"
        assert "answers with block 0, which carries no hash" in found.sentence


def test_misuse_after_a_refusal_is_told_as_misuse():
    class Moves(BlockPool):
        def free(self, block_ids):
            self._queue.link_tail([self._queue.unlink(1) or 1])
            super().free(block_ids)

    found = after(session_of(Moves(3)), Allocate(9), Free((7,)))
    assert found.invariant == "MISUSE"
    assert "was refused" not in found.sentence


@pytest.mark.parametrize(
    ("readable", "severity", "words"),
    [
        (True, Severity.LEAK, "and left this: block 0 shows a reference count of 2, but has 1"),
        (False, CRASH, "and must raise a ValueError, but it went through"),
    ],
)
def test_misuse_that_went_through_tells_what_it_left_behind(readable, severity, words):
    class Misused(BlockPool):
        torn = False

        def free(self, block_ids):
            self._ref_counts[0] = 2
            self.torn = not readable

        def num_free(self):
            if self.torn:
                raise RuntimeError
            return super().num_free()

    found = after(session_of(Misused(2)), Allocate(1), Free((9,)))
    assert (found.invariant, found.severity) == ("MISUSE", severity)
    assert words in found.sentence
