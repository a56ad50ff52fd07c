"""The systems whose mutants are certified: under which profiles ours is judged."""

import importlib.util
import sys
from pathlib import Path

import pytest

from poolproof.impl.pool_checks import CHOICES
from poolproof.targets.load import load_target

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def power(monkeypatch):
    """benchmarks/power.py, which is in no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("_power", BENCHMARKS / "power.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "_power", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def profiles(power):
    """Those under which our own pool judges its mutants."""
    impl = next(system for system in power.SYSTEMS if system.name == "impl")
    return [load_target(name).profile for name in (impl.target, *impl.also)]


@pytest.mark.parametrize("row", CHOICES)
def test_mutants_of_our_pool_are_judged_under_each_value_of_each_row(profiles, row):
    assert {getattr(profile, row) for profile in profiles} == set(CHOICES[row])


@pytest.mark.parametrize("duplicates", CHOICES["duplicates"])
def test_blocks_are_cached_at_once_under_each_rule_for_duplicates(profiles, duplicates):
    # A pool that looks for the null block in each list caches one by one.
    assert any(
        p.duplicates == duplicates and p.events == "none" and p.null_block is None for p in profiles
    )


def test_the_null_block_stands_in_lists_under_each_answer_to_misuse(profiles):
    with_null = [profile for profile in profiles if profile.null_block is not None]
    assert {(p.null_in_lists == "ignored", p.misuse == "undefined") for p in with_null} >= {
        (True, True),
        (True, False),
        (False, False),
    }


def test_parts_of_blocks_are_misused_under_each_answer_to_misuse(profiles):
    # What merging duplicates means for parts of blocks is undefined.
    with_parts = [p for p in profiles if p.keys == "partial" and p.duplicates == "kept"]
    assert {p.misuse for p in with_parts} == set(CHOICES["misuse"])
