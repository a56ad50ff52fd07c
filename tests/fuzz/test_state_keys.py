"""Keys of states: every state within the bounds has one, and gives it back."""

from itertools import combinations_with_replacement, product

import pytest

from poolproof.fuzz.state_keys import StateKeys

CODES = bytes([3, 4, 5, 6])
LABELS = 3
EVERYTHING = [
    (bytes(queue), bytes(held))
    for free in range(5)
    for queue in product(range(LABELS), repeat=free)
    for held in combinations_with_replacement(CODES, 4 - free)
]


def test_few_states_are_numbered_without_a_gap():
    keys = StateKeys(4, LABELS, CODES, most=len(EVERYTHING))
    assert keys.num_keys == len(EVERYTHING)
    assert {keys.of(*state) for state in EVERYTHING} == set(range(len(EVERYTHING)))


@pytest.mark.parametrize("most", [len(EVERYTHING), len(EVERYTHING) - 1])
def test_a_key_gives_its_state_back(most):
    keys = StateKeys(4, LABELS, CODES, most)
    given = {keys.of(*state): state for state in EVERYTHING}
    assert len(given) == len(EVERYTHING)
    assert all(keys.state(key) == state for key, state in given.items())


def test_many_states_are_numbered_when_they_are_asked_for():
    keys = StateKeys(4, LABELS, CODES, most=len(EVERYTHING) - 1)
    assert keys.num_keys is None
    assert keys.of(b"\1", CODES[:3]) == 0
    keys.clear()
    assert keys.of(b"\2", CODES[1:]) == 0
    assert keys.state(0) == (b"\2", CODES[1:])


def test_numbers_of_few_states_outlive_a_clearing():
    keys = StateKeys(4, LABELS, CODES, most=len(EVERYTHING))
    before = [keys.of(*state) for state in EVERYTHING]
    keys.clear()
    assert [keys.of(*state) for state in EVERYTHING] == before


def test_a_state_outside_of_the_bounds_is_a_mistake_of_ours():
    keys = StateKeys(4, LABELS, CODES, most=len(EVERYTHING))
    with pytest.raises(AssertionError, match="outside of the bounds"):
        keys.queue(bytes(5))
    with pytest.raises(AssertionError, match="outside of the bounds"):
        keys.held(bytes([9]))
