"""Each value of each row says what it costs; what checks less is tried last."""

from dataclasses import fields

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.profile_costs import (
    COSTS,
    NUMBER,
    alternatives,
    cost_of,
    ladder,
    with_changes,
)

ROWS = [field.name for field in fields(ManagerProfile) if field.name != "assumed"]


@pytest.mark.parametrize("row", ROWS)
def test_each_value_of_a_row_says_what_it_costs(row):
    wanted = set(ManagerProfile.choices().get(row, ())) or {NUMBER}
    stated = {value for value in COSTS.get(row, {}) if isinstance(value, str)} or {NUMBER}
    assert stated == wanted, (
        f"add the missing values of the row {row!r} to COSTS in contract/profile_costs.py, each "
        "with one sentence that says what an engine's users give up when it is stated; _less "
        "where something is not judged any more"
    )


def test_no_row_has_costs_that_no_profile_has():
    assert set(COSTS) == set(ROWS)


def test_a_cost_is_one_sentence_that_nothing_else_says():
    sentences = [cost.sentence for values in COSTS.values() for cost in values.values()]
    assert len(set(sentences)) == len(sentences)
    assert not [text for text in sentences if text.endswith(".") or len(text) > 100]


def test_what_checks_less_is_tried_last():
    flags = [change.checks_less for change in alternatives(ManagerProfile())]
    assert any(flags), "no row checks less, so the order shows nothing"
    assert flags == sorted(flags)


def test_the_value_that_stands_is_no_alternative():
    rows = {change.row: change.value for change in alternatives(Profile(), ("recache",))}
    assert rows == {"recache": "forbidden"}


def test_a_number_is_tried_where_it_was_seen():
    values = [
        change.value for change in alternatives(Profile(), ("null_block",), {"null_block": (5,)})
    ]
    assert values == [0, 5]


def test_managers_are_not_asked_about_rows_of_pools():
    rows = {change.row for change in alternatives(ManagerProfile())}
    assert "publishes" in rows
    assert not rows & {"hash_bytes", "keys", "groups"}
    assert "hash_bytes" in {change.row for change in alternatives(Profile())}


def test_stricter_values_of_a_row_are_on_its_ladder():
    (last,) = [c for c in alternatives(Profile()) if str(c) == "eviction=unspecified"]
    assert [str(change) for change in ladder(Profile(), last)] == [
        "eviction=unhashed-first",
        "eviction=unhashed-lifo",
        "eviction=lifo",
    ]


def test_a_changed_row_counts_as_declared():
    profile = Profile.from_mapping({})
    changed = with_changes(profile, alternatives(profile, ("recache",)))
    assert changed.recache == "forbidden"
    assert "recache" in profile.assumed
    assert "recache" not in changed.assumed


def test_all_numbers_of_a_row_cost_the_same():
    assert cost_of("null_block", 7) == cost_of("null_block", 0) == COSTS["null_block"][NUMBER]
    assert cost_of("null_block", None) != cost_of("null_block", 0)


def test_rows_of_windows_and_states_are_tried_where_there_are_such_groups():
    profile = ManagerProfile.from_mapping({"groups": "full+sliding:8"})
    assert "window_blocks" not in {change.row for change in alternatives(ManagerProfile())}
    assert "window_blocks" in {change.row for change in alternatives(profile)}
    assert "states" not in {change.row for change in alternatives(profile)}
