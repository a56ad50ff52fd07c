"""What a target answers is judged: blocks, refusals, misuse, hits, remapped blocks."""

import pytest

from poolproof.contract.commands import (
    Allocate,
    Cache,
    Evict,
    Free,
    Lookup,
    Reset,
    Touch,
)
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.contract.trace import Trace, read_trace, write_trace
from poolproof.contract.violation import Severity, ViolationError
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.facts import PoolFacts
from poolproof.harness.pool_judges import AnswerJudge, BlockJudge, Effect, PoolCalls, Revivals
from poolproof.harness.pool_session import PoolSession
from poolproof.impl.block_pool import BlockPool
from poolproof.reference.dict_pool import DictPool

A, B, C = b"\xaa" * 16, b"\xbb" * 16, b"\xcc" * 16
WRONG, CRASH = Severity.WRONG_DATA_OF_ANOTHER, Severity.CRASH


class Integer:
    """An integer of another library: equal to Python's, usable as one, and no subclass."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __eq__(self, other):
        return self.value == other

    __hash__ = None


def session_of(target, **rows):
    profile = Profile.from_mapping({**target.profile, **rows})
    return PoolSession(target, profile, target.num_blocks)


def answering(verb, answer, num_blocks=4, **rows):
    """A session whose pool does all things right, and answers something else to one verb."""

    class Other(BlockPool):
        pass

    def method(self, *arguments):
        right = getattr(BlockPool, verb)(self, *arguments)
        return answer(right) if callable(answer) else answer

    setattr(Other, verb, method)
    return session_of(Other(num_blocks, **rows))


def after(session, *commands):
    *before, last = commands
    for command in before:
        assert session.step_any(command) is None, command
    return session.step_any(last)


@pytest.mark.parametrize(
    ("answer", "invariant", "words"),
    [
        (None, "ADM", "allocate(2) must answer a list of 2 blocks, but answered None"),
        (7, "ADM", "but answered 7"),
        ([1], "ADM", "but answered [1]"),
        ([1, 2, 3], "ADM", "but answered [1, 2, 3]"),
        ({1: 1, 2: 2}, "ADM", "but answered {1: 1, 2: 2}"),
        ([1, "2"], "I2", "allocate handed out '2', which is no block"),
        ([1, 9], "I2", "allocate handed out 9, which is no block"),
        ([1, -1], "I2", "allocate handed out -1, which is no block"),
        ([1, 0], "I2", "allocate handed out block 0, which is still held by command #1"),
        ([1, 1], "I2", "allocate handed out block 1 twice in one answer"),
        ([2, 1], "ORD", "the head of the free queue under eviction=lru is [1, 2]"),
        ([1, 3], "ORD", "allocate handed out [1, 3]"),
        (([1], []), "ADM", "but answered [1]"),
    ],
)
def test_a_wrong_answer_of_allocate_is_named(answer, invariant, words):
    session = answering("allocate", lambda right: right if right == [0] else answer)
    found = after(session, Allocate(1), Allocate(2))
    assert found.invariant == invariant
    assert words in found.sentence


def test_the_null_block_is_not_handed_out():
    session = answering("allocate", [0], null_block=0)
    assert after(session, Allocate(1)).sentence.startswith("allocate handed out the null block 0")


@pytest.mark.parametrize(
    "answer",
    [
        tuple,
        lambda right: (right, []),
        lambda right: (tuple(right), None),
        lambda right: list(map(Integer, right)),
        lambda right: tuple(map(Integer, right)),
    ],
)
@pytest.mark.parametrize("eviction", ["lru", "unspecified"])
def test_right_blocks_may_come_in_another_wrapping(answer, eviction, tmp_path):
    session = answering("allocate", answer)
    session = session_of(session.target, eviction=eviction)
    assert after(session, Allocate(2)) is None
    assert [type(block) for block in session.last.taken] == [int, int]
    trace = Trace("t", "pool", Profile(), 4, True, (Free(tuple(session.last.taken)),))
    write_trace(trace, tmp_path / "trace")
    assert read_trace(tmp_path / "trace") == trace


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([b"a", b"b"], None),
        ([b"a", b"b", b"c"], "says that it evicted b'c', which none of its blocks had"),
        ([b"a"], "and does not say so among the 1 hashes"),
        ([], "and does not say so among the 0 hashes"),
    ],
)
def test_an_allocation_tells_the_hashes_that_it_evicts_or_none(told, words):
    class Tells(BlockPool):
        def allocate(self, n):
            had = [self.block_hash(block) for block in self.free_order()[:n]]
            return super().allocate(n), told if any(had) else []

    session = session_of(Tells(4))
    assert after(session, Allocate(2), Cache((0, 1), (b"a", b"b")), Free((0, 1))) is None
    violation = after(session, Allocate(4))
    assert (violation is None) == (words is None)
    if words is not None:
        assert (violation.invariant, words in violation.sentence) == ("EVT", True)


def test_a_hash_that_another_block_still_has_may_be_told_or_not():
    for told in ([], [b"a"]):

        class Tells(BlockPool):
            def allocate(self, n):
                hashed = self.block_hash(self.free_order()[0]) is not None
                return super().allocate(n), told if hashed else []  # noqa: B023 - called in this turn

        session = session_of(Tells(2))
        assert after(session, Allocate(2), Cache((0, 1), (b"a", b"a")), Free((0,))) is None
        assert after(session, Allocate(1)) is None


def test_an_unspecified_order_is_followed():
    class FromTheTail(BlockPool):
        def allocate(self, n):
            wanted = self.free_order()[::-1][:n]
            self._queue.link_head([self._queue.unlink(block) or block for block in wanted])
            return super().allocate(n)

    session = session_of(FromTheTail(4), eviction="unspecified")
    assert after(session, Allocate(2)) is None
    assert list(session.last.taken) == [3, 2]
    assert after(session, Free((2, 3)), Allocate(0), Allocate(4)) is None


def test_a_target_may_keep_and_change_the_list_that_it_answered():
    class Hoards(BlockPool):
        answered = ()

        def allocate(self, n):
            self.answered = super().allocate(n)
            return self.answered

        def num_free(self):
            self.answered = list(self.answered)
            return super().num_free()

    session = session_of(Hoards(4))
    session.step(Allocate(2))
    session.target.answered.append(99)
    session.target.answered[:] = []
    assert list(session.last.taken) == list(session.last.touched) == [0, 1]

    class Clears(BlockPool):
        def allocate(self, n):
            self.answer = super().allocate(n)
            return self.answer

        def ref_count(self, block):
            self.answer.clear()
            return super().ref_count(block)

    session = session_of(Clears(4))
    session.target.answer = []
    assert session.step(Allocate(2)) is None
    assert list(session.last.taken) == [0, 1]


def test_a_target_may_keep_and_change_the_lists_that_it_is_given():
    class Eats(BlockPool):
        def free(self, block_ids):
            super().free(block_ids)
            block_ids.clear()

        def cache(self, block_ids, hashes):
            super().cache(block_ids, hashes)
            block_ids.clear()
            hashes.clear()

    session = session_of(Eats(4))
    commands = (Allocate(2), Cache((0, 1), (A, B)), Free((0, 1)), Lookup(A))
    assert after(session, *commands) is None
    assert commands[1] == Cache((0, 1), (A, B))


@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_too_much_may_be_refused_in_two_ways(error):
    class Refuses(BlockPool):
        def allocate(self, n):
            if n > self.num_free():
                raise error
            return super().allocate(n)

    session = session_of(Refuses(2))
    assert after(session, Allocate(3)) is None
    assert session.last.refused
    assert "an allocation was refused" in session.facts


def test_too_much_must_not_be_refused_by_another_exception():
    class Asserts(BlockPool):
        def allocate(self, n):
            assert n <= self.num_free(), "no more"
            return super().allocate(n)

    found = after(session_of(Asserts(2)), Allocate(3))
    assert (found.invariant, found.sentence) == (
        "CRASH", "allocate(3) is legal here but raised AssertionError: no more"
    )  # fmt: skip
    assert found.frames[0].endswith("allocate")


@pytest.mark.parametrize("answer", [None, [], [0, 1, 0]])
def test_too_much_must_be_refused(answer):
    class Accepts(BlockPool):
        def allocate(self, n):
            return answer

    found = after(session_of(Accepts(2)), Allocate(3))
    assert (found.invariant, found.severity) == ("ADM", WRONG)
    assert "only 2 blocks are free, but it answered" in found.sentence


def test_what_fits_must_not_be_refused():
    class KeepsOne(BlockPool):
        def allocate(self, n):
            if n == self.num_free():
                raise MemoryError("watermark")
            return super().allocate(n)

    found = after(session_of(KeepsOne(2)), Allocate(2))
    assert found.sentence == (
        "allocate(2) was refused (MemoryError: watermark), although 2 blocks are free"
    )


@pytest.mark.parametrize(
    ("verb", "command"),
    [("touch", Touch((0,))), ("free", Free((0,))), ("cache", Cache((0,), (A,))),
     ("lookup", Lookup(A)), ("evict", Evict((0,))), ("reset", Reset())],
)  # fmt: skip
@pytest.mark.parametrize("error", [RuntimeError("torn"), SystemExit(1)])
def test_a_legal_call_that_raises_is_a_crash(verb, command, error):
    def fail(*arguments):
        raise error

    target = BlockPool(2)
    setattr(target, verb, fail)
    session = PoolSession(target, Profile(), 2)
    session._full.passes = lambda: True
    found = after(session, Allocate(1), command)
    assert found.invariant == "CRASH"
    verb_of_ours = "raised" if isinstance(error, RuntimeError) else "tried to exit"
    assert f"is legal here but {verb_of_ours}" in found.sentence


@pytest.mark.parametrize(
    ("answer", "invariant", "severity"),
    [
        (None, "IDX", Severity.LOST_HIT),
        (1, "IDX", WRONG),
        (99, "IDX", WRONG),
        ("0", "CRASH", CRASH),
    ],
)
def test_a_wrong_hit_is_named(answer, invariant, severity):
    session = answering("lookup", answer)
    session._full.passes = lambda: True
    found = after(session, Allocate(2), Cache((0,), (A,)), Lookup(A))
    assert (found.invariant, found.severity) == (invariant, severity)


def test_a_wrong_hit_that_only_the_command_sees_is_named():
    class Once(BlockPool):
        answers = 0

        def lookup(self, block_hash):
            self.answers += 1
            return 1 if self.answers == 1 else super().lookup(block_hash)

    found = after(session_of(Once(2)), Lookup(A))
    assert (found.invariant, found.severity) == ("IDX", WRONG)
    assert found.sentence.endswith("answered 1, but no block carries the key")


def test_any_copy_is_a_hit():
    session = answering("lookup", lambda right: None if right is None else 1)
    assert after(session, Allocate(2), Cache((0, 1), (A, A)), Lookup(A), Lookup(B)) is None
    assert {"a lookup hit", "a lookup missed"} <= session.facts


@pytest.mark.parametrize(
    ("held", "answer", "invariant", "severity", "words"),
    [
        (False, False, "IDX", Severity.FALSE_REFUSAL, "was refused (it answered False), although"),
        (True, True, "ATOM", WRONG, "answered True, although blocks are still held"),
        (False, None, "CRASH", CRASH, "answered None; it must answer True, since nobody holds"),
        (True, None, "CRASH", CRASH, "answered None; it must answer False, since blocks are"),
        (False, 1, "CRASH", CRASH, "answered 1; it must answer True, since nobody holds a block"),
    ],
)
def test_a_wrong_answer_of_reset_is_named(held, answer, invariant, severity, words):
    session = answering("reset", answer)
    found = after(session, Allocate(int(held)), Reset())
    assert (found.invariant, found.severity) == (invariant, severity)
    assert f"reset() {words}" in found.sentence


@pytest.mark.parametrize("answer", [None, True, 2, "01"])
def test_other_answers_of_cache_mean_nothing(answer):
    session = answering("cache", answer)
    assert after(session, Allocate(2), Cache((0, 1), (A, A)), Free((0, 1))) is None


def test_facts_tell_a_shared_block_from_the_null_block():
    session = session_of(BlockPool(3, null_block=0, null_in_lists="ignored"))
    assert after(session, Allocate(1), Free((0, 1)), Allocate(1), Touch((0, 2, 2))) is None
    fact = "a shared block was freed by one owner"
    assert fact not in session.facts
    assert {"the null block stood in a list", "a block stood twice in one touch"} <= session.facts
    assert after(session, Free((2,))) is None
    assert fact in session.facts


def test_a_judge_works_without_a_session():
    target, reference, effect, facts = BlockPool(2), DictPool(2), Effect(), PoolFacts()
    calls, revivals = PoolCalls(target, capabilities_of(target)), Revivals(reference, facts, None)
    judge = BlockJudge(calls, reference, effect, facts, AnswerJudge(), revivals, EveryInvariant())
    judge.allocate(Allocate(2))
    assert (list(effect.taken), list(reference.free), target.num_free()) == ([0, 1], [], 0)
    calls.allocate = lambda _: [0]
    with pytest.raises(ViolationError, match="allocate"):
        judge.allocate(Allocate(1))


@pytest.mark.parametrize("hidden", [(), ("block_hash",)])
def test_a_pool_that_may_drop_may_miss_at_the_moment_of_a_lookup(hidden):
    class DropsAtLookup(BlockPool):
        def lookup(self, block_hash):
            if not self._ref_counts[0]:
                self._cached.drop(0)
            return super().lookup(block_hash)

    target = DropsAtLookup(4)
    for name in hidden:
        setattr(target, name, None)
    session = session_of(target, retention="may-drop")
    session._checked = False
    assert after(session, Allocate(2), Cache((0,), (A,)), Free((0,)), Lookup(A)) is None
    assert session.reference.keys[0] == []


def test_a_target_that_keeps_the_list_it_was_given_is_found_out():
    class FreesLater(BlockPool):
        """Frees what it was given with the call before (sglang#34067)."""

        kept = ()

        def free(self, block_ids):
            super().free(self.kept)
            self.kept = block_ids

    session = PoolSession(FreesLater(4), Profile.from_mapping(BlockPool(4).profile), 4)
    assert session.step(Allocate(2)) is None
    found = session.step(Free((0,)))
    assert found.invariant in {"I1", "OWN"}


def test_lists_that_were_passed_are_emptied_afterwards():
    class Keeps(BlockPool):
        seen = ()

        def touch(self, block_ids):
            super().touch(block_ids)
            self.seen = block_ids

    session = PoolSession(Keeps(4), Profile.from_mapping(BlockPool(4).profile), 4)
    assert session.step(Allocate(1)) is None
    assert session.step(Touch((0,))) is None
    assert session.target.seen == []
