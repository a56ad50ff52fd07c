"""What counts as lost between two releases."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def compare(monkeypatch):
    """benchmarks/before_and_after.py, which is in no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    found = sorted(name for name in ("record", "structure") if name in sys.modules)
    spec = importlib.util.spec_from_file_location("_changes", BENCHMARKS / "before_and_after.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in {"record", "structure"} - set(found):
        monkeypatch.delitem(sys.modules, name)
    return module


def row(bug, *, is_oddity=False, **caught):
    cells = {detector: {"caught": number, "of": 1} for detector, number in caught.items()}
    return {"id": bug, "is_oddity": is_oddity, "cells": cells}


def test_a_bug_that_a_detector_no_longer_catches_is_lost(compare):
    before = {"rows": [row("A", plain=1, proof=1), row("B", plain=1)]}
    after = {"rows": [row("A", plain=1, proof=0)]}
    assert compare.lost(before, after) == ["A: proof", "B: plain"]


def test_an_oddity_that_is_accused_no_longer_is_no_loss(compare):
    before = {"rows": [row("Odd", is_oddity=True, plain=1)]}
    after = {"rows": [row("Odd", is_oddity=True, plain=0)]}
    assert compare.lost(before, after) == []


def test_a_system_with_another_verdict_or_none_has_changed(compare):
    before = {"systems": {name: {"verdict": "HOLDS"} for name in ("same", "other", "gone")}}
    after = {"systems": {"same": {"verdict": "HOLDS"}, "other": {"verdict": "REFUSED"}}}
    assert compare.changed_verdicts(before, after) == ["other", "gone"]
