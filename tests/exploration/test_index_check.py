"""Every state of a small index, and every short sequence of commands."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import pytest

from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.index_bugs import INDEX_BUGS
from poolproof.contract.index_commands import KEY_KINDS
from poolproof.contract.profile import Profile
from poolproof.exploration.index_check import IndexCheck, IndexScope, index_states, plain_keys
from poolproof.exploration.shortest import shortest_index_failure
from poolproof.exploration.watch import Watch

UNHEARD = Watch(lambda _setup: None, lambda _command: None)


def scope(duplicates="kept", num_blocks=3, num_keys=1):
    return IndexScope(num_blocks, num_keys, ("bytes",), Profile(duplicates=duplicates))


def first_failure(make, explored):
    check = IndexCheck("x", make, explored, UNHEARD)
    found = (check.check(state) for state in index_states(explored))
    return next((trace for trace in found if trace is not None), None)


@pytest.mark.parametrize(
    ("duplicates", "num_blocks", "num_keys", "expected"),
    [("kept", 3, 1, 16), ("kept", 2, 2, 25), ("kept", 4, 1, 65), ("first", 3, 2, 16)],
)
def test_the_states_are_all_orders_of_some_blocks_for_each_key(
    duplicates, num_blocks, num_keys, expected
):
    states = list(index_states(scope(duplicates, num_blocks, num_keys)))
    assert len(states) == len(set(states)) == expected
    assert states[0] == bytes([255] * num_keys)


@pytest.mark.parametrize("duplicates", ["kept", "first", "last"])
def test_the_clean_index_passes_in_every_state(duplicates):
    explored = scope(duplicates, num_keys=2, num_blocks=2)
    assert first_failure(lambda _n, _c: CleanIndex(explored.profile), explored) is None


# These need keys that are alike, which plain keys are not.
ALIKE = {"K7", "K15"}


@pytest.mark.parametrize("name", [name for name in INDEX_BUGS if name not in ALIKE])
def test_each_bug_fails_in_some_state(name):
    assert first_failure(INDEX_BUGS[name].make, scope()) is not None


@pytest.mark.parametrize("name", [name for name in INDEX_BUGS if name not in ALIKE])
def test_the_shortest_sequence_that_fails_is_short(name):
    keys = plain_keys(("bytes",), 2)
    found = shortest_index_failure(INDEX_BUGS[name].make, Profile(), 3, keys, max_commands=4)
    assert found.violation is not None
    assert len(found.commands) <= 4


def test_the_clean_index_has_no_failing_sequence():
    keys = plain_keys(("bytes",), 2)
    found = shortest_index_failure(lambda _n, _c: CleanIndex(), Profile(), 2, keys, max_commands=5)
    assert found.violation is None
    assert found.num_states > 25


@pytest.mark.parametrize("kind", KEY_KINDS)
def test_plain_keys_are_of_the_kind(kind):
    assert all(KEY_KINDS[kind](key) for key in plain_keys((kind,), 3))
