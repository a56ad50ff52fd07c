"""Which entry of the table of systems explains a finding."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SYSTEM = {
    "finding": [
        {"name": "there", "invariants": ["DATA"], "contains": "adapter", "layouts": ["a", "b"]},
        {"name": "anywhere", "invariants": ["DATA"], "contains": ["salt", "image"]},
    ]
}


@pytest.fixture
def name_of(monkeypatch):
    """The name of the entry for a sentence under an invariant in a layout."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    explained = importlib.import_module("verdicts").explained

    def name(sentence, layout="a", invariant="DATA"):
        header = {"options": {"layout": layout} if layout else {}}
        found = explained(SYSTEM, {"invariant": invariant, "sentence": sentence, "trace": [header]})
        return found and found["name"]

    return name


@pytest.mark.parametrize(
    ("sentence", "layout", "name"),
    [
        ("only the adapter differs", "b", "there"),
        ("only the adapter differs", "c", None),
        ("only the adapter differs", None, None),
        ("only the salt differs", "c", "anywhere"),
        ("only an image differs", None, "anywhere"),
        ("the tokens differ", "a", None),
    ],
)
def test_an_entry_explains_its_sentences_where_it_may_be_met(name_of, sentence, layout, name):
    assert name_of(sentence, layout) == name


def test_another_invariant_is_not_explained(name_of):
    assert name_of("only the salt differs", invariant="IDX") is None
