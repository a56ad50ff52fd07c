"""One index beside its reference: answers are judged, and everything that can be read is read."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import pytest

from poolproof.contract.index_commands import Clear, Contains, Get, Insert, Pop
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.harness.index_session import IndexSession
from poolproof.reference.native_index import NativeDictIndex

A, B = b"\1" * 16, b"\2" * 16


def outcome(index, *commands, num_blocks=4, profile=None):
    """The first violation, that of the end included."""
    session = IndexSession(index, num_blocks, profile)
    violation = session.first_look()
    for command in commands:
        violation = violation or session.step(command)
    return violation or session.end()


EVERYTHING = (
    Insert(A, 0), Insert(A, 1), Insert(A, 1), Insert(B, 1), Get(A), Get(B), Contains(A, 3),
    Pop(A, 2), Pop(A, 0), Pop(A, 0), Get(A), Pop(A, 1), Get(A), Clear(), Get(B), Insert(A, 3),
)  # fmt: skip


@pytest.mark.parametrize("duplicates", ["kept", "first", "last"])
def test_the_specification_holds_under_every_rule_for_duplicates(duplicates):
    profile = Profile(duplicates=duplicates)
    assert outcome(NativeDictIndex(profile=profile), *EVERYTHING, profile=profile) is None


@pytest.mark.parametrize(
    ("built", "driven"), [("kept", "first"), ("kept", "last"), ("first", "kept"), ("last", "first")]
)
def test_another_rule_for_duplicates_is_seen(built, driven):
    index = NativeDictIndex(profile=Profile(duplicates=built))
    violation = outcome(index, Insert(A, 0), Insert(A, 1), profile=Profile(duplicates=driven))
    assert violation.invariant == "IDX"


def test_any_of_several_carriers_is_a_right_answer():
    class Newest(NativeDictIndex):
        def get(self, key):
            carriers = self.carriers(key)
            return carriers[-1] if carriers else None

    assert outcome(Newest(), *EVERYTHING) is None


@pytest.mark.parametrize(
    ("answer", "severity"),
    [(None, Severity.LOST_HIT), (1, Severity.WRONG_DATA_OF_ANOTHER)],
)
def test_a_wrong_answer_to_a_pop_is_named(answer, severity):
    class Pops(NativeDictIndex):
        def pop(self, key, block_id):
            super().pop(key, block_id)
            return answer

    violation = outcome(Pops(), Insert(A, 0), Pop(A, 0))
    assert (violation.invariant, violation.severity) == ("IDX", severity)
    assert violation.command_index == 1
    assert str(Pop(A, 0)) in violation.sentence


def test_a_pop_of_what_is_not_there_answers_none():
    class Answers(NativeDictIndex):
        def pop(self, key, block_id):
            super().pop(key, block_id)
            return block_id

    violation = outcome(Answers(), Insert(A, 0), Pop(A, 1))
    assert violation.severity is Severity.WRONG_DATA_OF_ANOTHER


@pytest.mark.parametrize("answer", ["0", 1.5, [0], object()])
@pytest.mark.parametrize("verb", ["pop", "get", "contains", "num_keys", "carriers"])
def test_what_is_no_answer_is_a_finding_that_names_the_call(verb, answer):
    index = NativeDictIndex()
    setattr(index, verb, lambda *_: answer)
    violation = outcome(index, Insert(A, 0), Pop(A, 0))
    if verb == "carriers" and answer == [0]:
        assert violation.invariant == "IDX"
    else:
        assert violation.invariant == "CRASH"
        assert verb in violation.sentence


@pytest.mark.parametrize("verb", ["insert", "pop", "get", "contains", "clear", "num_keys"])
def test_what_raises_is_a_crash(verb):
    def fails(*_):
        raise RuntimeError("no")

    index = NativeDictIndex()
    setattr(index, verb, fails)
    violation = outcome(index, Insert(A, 0), Pop(A, 0), Clear())
    assert violation.invariant == "CRASH"
    assert "RuntimeError: no" in violation.sentence


def test_an_entry_that_a_lookup_makes_is_a_leak():
    class Defaults(NativeDictIndex):
        def get(self, key):
            self._model.carriers.setdefault(key, {})
            return super().get(key)

    violation = outcome(Defaults(), Get(A))
    assert violation.severity is Severity.LEAK


def test_an_answer_that_is_right_only_when_asked_again_is_seen():
    class Forgets(NativeDictIndex):
        asked = 0

        def get(self, key):
            self.asked += 1
            return super().get(key) if self.asked != 2 else None

    # The session looks once after the insertion; the second question is the command itself.
    violation = outcome(Forgets(), Insert(A, 0), Get(A))
    assert violation.severity is Severity.LOST_HIT


def test_what_breaks_a_key_that_no_command_names_any_more_is_found_at_the_end():
    class LosesOldKeys(NativeDictIndex):
        def insert(self, key, block_id):
            super().insert(key, block_id)
            if len(self._model.carriers) == 50:
                del self._model.carriers[next(iter(self._model.carriers))]

        num_keys = None

    keys = [bytes([number]) * 16 for number in range(60)]
    violation = outcome(LosesOldKeys(), *(Insert(key, 0) for key in keys), num_blocks=100)
    assert violation.severity is Severity.LOST_HIT
