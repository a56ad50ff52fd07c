"""The explanations of surviving mutants: each belongs to one, and impl's still fit its source."""

import json
import sys
from pathlib import Path

import pytest

from poolproof.power.modules import prepare
from poolproof.power.planting import candidates, compiled, functions_of
from poolproof.targets.load import load_target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
KEYS = ("file", "function", "operator", "before", "after")
KINDS = {"equivalent", "not driven", "not judged", "not read"}


@pytest.fixture
def entries():
    return tomllib.loads((BENCHMARKS / "power_survivors.toml").read_text())["survivor"]


def test_each_explanation_has_a_kind_a_reason_and_one_place(entries):
    for entry in entries:
        assert set(entry) - {"since_changed"} == {"system", "kind", "reason", *KEYS}
        assert entry["kind"] in KINDS
        assert entry["reason"].endswith(".")
    keys = [tuple(entry[key] for key in KEYS) for entry in entries]
    assert len(set(keys)) == len(keys)


def test_each_explanation_belongs_to_a_recorded_survivor(entries):
    recorded = json.loads((BENCHMARKS / "results" / "power.json").read_text())
    for entry in entries:
        passed = recorded[entry["system"]]["passed"]
        keys = {tuple(mutant[key] for key in KEYS) for mutant in passed if not mutant["refused"]}
        assert tuple(entry[key] for key in KEYS) in keys


@pytest.mark.parametrize(
    "system", ["impl", "impl-engine", "impl-sizes", "nano-vllm", "vllm", "vllm-manager"]
)
def test_every_recorded_survivor_is_explained(entries, system):
    recorded = json.loads((BENCHMARKS / "results" / "power.json").read_text())[system]["passed"]
    known = {tuple(entry[key] for key in KEYS) for entry in entries if entry["system"] == system}
    passed = {tuple(m[key] for key in KEYS) for m in recorded if not m["refused"]}
    assert passed <= known


def test_explanations_of_impl_fit_its_source(entries):
    fits = set()
    for source in prepare(lambda: load_target("impl"), ()).sources:
        functions = functions_of(compiled(source.text, source.path))
        places = {(code.co_name, code.co_firstlineno) for _, code in functions}
        fits |= {mutation.key()[1:] for mutation in candidates(source, places)}
    for entry in entries:
        if entry["system"] == "impl":
            # Not the file: it is that of the recorded run, and a function may have moved since.
            is_there = tuple(entry[key] for key in KEYS[1:]) in fits
            assert is_there is not entry.get("since_changed", False), entry
