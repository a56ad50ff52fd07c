"""What the table of releases keeps of a certificate."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def kinds_of(monkeypatch):
    """The function of the script, which is in no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("vllm_releases").kinds_of


def form(invariant, severity, sentence, **more):
    return {
        "invariant": invariant, "severity": severity, "num_commands": 2, "sentence": sentence,
        "fingerprint": "f-00000001", **more,
    }  # fmt: skip


def test_each_kind_of_each_form_is_kept_once(kinds_of):
    longer = form("IDX", "wrong-data-of-another", "another lookup")
    order = form("ORD", "order", "place 0")
    lesser = form("IDX", "bookkeeping", "nobody reads it")
    first = form("IDX", "wrong-data-of-another", "a lookup", forms=[longer, order, lesser])
    second = form("ORD", "order", "place 1", forms=[])
    assert [
        (kept["invariant"], kept["severity"], kept["sentence"])
        for kept in kinds_of([first, second])
    ] == [
        ("IDX", "wrong-data-of-another", "a lookup"),
        ("ORD", "order", "place 0"),
        ("IDX", "bookkeeping", "nobody reads it"),
    ]
