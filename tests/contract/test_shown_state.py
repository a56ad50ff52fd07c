"""What a manager showed of itself, as it stands in a trace file."""

import json

import pytest

from poolproof.contract import shown_state
from poolproof.contract.shown_state import Held, ShownState, shown_from_json, shown_to_json

STATES = (
    ShownState(free=(3, 1), held=(Held(0, "device", ((2,), (4, 5))),), answer=2),
    ShownState(free=None, held=(Held(1, "host", ((0,),)),), answer=((2, 3), (4, 5))),
    ShownState(free=(), held=(), answer="later"),
    ShownState(free=(), held=(), answer=None),
)


def test_states_come_back_as_they_were():
    assert shown_from_json(json.loads(json.dumps(shown_to_json(STATES)))) == STATES


def test_too_many_ids_are_not_kept(monkeypatch):
    ids = 2 + 3 + 1
    monkeypatch.setattr(shown_state, "MOST_SHOWN_IDS", ids)
    assert len(shown_to_json(STATES)) == 4
    monkeypatch.setattr(shown_state, "MOST_SHOWN_IDS", ids - 1)
    assert shown_to_json(STATES) == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "is no list"),
        ([{"free": [True], "held": [], "answer": None}], "True is no id"),
        ([{"free": None, "held": [["a", "device", []]], "answer": None}], "'a' is no id"),
        ([{"free": None, "held": [], "answer": 0.5}], "0.5 is no answer"),
        ([{"free": None, "held": [], "answer": [[1, "b"]]}], "'b' is no id"),
    ],
)
def test_what_is_no_state_is_named(value, says):
    with pytest.raises(TypeError, match=says):
        shown_from_json(value)
