"""The answerers: deterministic, within bounds, and the enumeration complete."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolproof.harness.choices import EnumeratedChoices, SeededChoices, TapeChoices


def test_a_seed_gives_the_same_answers_everywhere():
    first, second, other = SeededChoices("a"), SeededChoices("a"), SeededChoices("b")
    answers = [first.below(100) for _ in range(50)]
    assert answers == [second.below(100) for _ in range(50)]
    assert answers != [other.below(100) for _ in range(50)]


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_seeded_answers_lie_below_the_bound(seed, bound):
    choices = SeededChoices(seed)
    assert all(0 <= choices.below(bound) < bound for _ in range(20))


def test_seeded_answers_reach_every_value():
    choices = SeededChoices(0)
    assert {choices.below(7) for _ in range(500)} == set(range(7))


@given(st.binary(max_size=9), st.lists(st.integers(1, 70000), max_size=8))
def test_a_tape_answers_below_the_bound_and_zero_after_its_end(tape, bounds):
    choices = TapeChoices(tape)
    for number, bound in enumerate(bounds):
        answer = choices.below(bound)
        assert 0 <= answer < bound
        assert answer == 0 or 2 * number < len(tape)
    assert choices.exhausted == (2 * len(bounds) >= len(tape))


def test_two_bytes_of_a_tape_answer_one_question():
    choices = TapeChoices(b"\x01\x02\x00\x05\x07")
    assert choices.below(1000) == 0x0102
    assert choices.below(4) == 1
    assert not choices.exhausted
    assert choices.below(2**16) == 0x0700
    assert choices.exhausted


def test_a_bound_is_at_least_one():
    with pytest.raises(AssertionError):
        TapeChoices(b"").below(0)
    with pytest.raises(AssertionError):
        EnumeratedChoices().below(0)


def test_the_enumeration_is_complete_where_later_bounds_depend_on_earlier_answers():
    choices = EnumeratedChoices()
    seen = []
    for _ in choices:
        first = choices.below(3)
        seen.append((first, *(choices.below(2) for _ in range(first))))
    assert seen == [(0,), (1, 0), (1, 1), (2, 0, 0), (2, 0, 1), (2, 1, 0), (2, 1, 1)]


def test_a_function_without_questions_is_run_once():
    assert len(list(EnumeratedChoices())) == 1


def test_a_function_that_is_not_deterministic_is_caught():
    choices = EnumeratedChoices()
    runs = iter(choices)
    next(runs)
    choices.below(2)
    next(runs)
    with pytest.raises(AssertionError, match="not deterministic"):
        choices.below(3)
