"""Bounds are checked, and both counts are those of a count by hand."""

import resource
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from poolproof.contract.profile import Profile
from poolproof.exploration.scope import Scope, ScopeError, peak_mib, usable_mib


@pytest.mark.parametrize(
    ("scope", "states", "orbits"),
    [
        (Scope(1, 0, 1), 2, 2),
        # One block: free or held once or twice, without a hash or with one of two alike.
        (Scope(1, 2, 2), 9, 6),
        (Scope(8), 1_954_233_216, 36_803),
        (Scope(12), 1_880_965_779_471_360, 3_024_436),
    ],
)
def test_both_counts_are_known_before_anything_is_explored(scope, states, orbits):
    assert (scope.num_states, scope.num_orbits) == (states, orbits)


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ((0, 2, 2), "at least 1 blocks, not 0"),
        ((1, -1, 2), "at least 0 hashes, not -1"),
        ((1, 2, 0), "at least 1 references, not 0"),
        ((4, 6, 2), "at most 5 hashes"),
        ((4, 5, 60), "too many combinations"),
        ((255, 1, 1), "more blocks than a byte"),
    ],
)
def test_bounds_that_cannot_be_explored_are_named(bounds, says):
    with pytest.raises(ScopeError, match=says):
        Scope(*bounds)


def test_a_profile_without_an_order_has_no_relation():
    with pytest.raises(ScopeError, match="no one transition relation"):
        Scope(3).under(Profile(eviction="unspecified"))


def test_a_scope_takes_the_rules_of_a_profile():
    scope = Scope(3).under(Profile(eviction="lifo", duplicates="last", recache="forbidden"))
    assert scope.rules == "eviction=lifo, duplicates=last, recache=forbidden"
    assert not scope.is_closed
    assert Scope(3).is_closed
    assert not replace(Scope(3), verbs=("allocate", "free")).is_closed


@pytest.mark.parametrize(("system", "counted"), [("linux", 300 << 10), ("darwin", 300 << 20)])
def test_the_peak_is_in_mib_on_every_system(monkeypatch, system, counted):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_maxrss=counted))
    assert peak_mib() == 300


def test_a_system_that_does_not_say_what_is_free_has_a_bound_all_the_same(tmp_path):
    assert usable_mib(tmp_path / "meminfo") == 2048
