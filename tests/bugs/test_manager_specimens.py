"""Every manager specimen is caught by an ordinary campaign, named rightly, and minimised well."""

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS, manager_specimen
from poolproof.bugs.rows import SHARED, UNSTATED
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.violation import Severity
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.replay import replay

FOUND = list(MANAGER_SPECIMENS.values())
LONGEST = 12
"""Commands in a minimal trace; most have three to seven."""


def by_id(found):
    return found.id


def is_named_rightly(found, violation):
    """By an invariant of its row, and not as worse than its row says."""
    is_known = violation.invariant in found.invariants
    return is_known and violation.severity.rank >= found.severity.rank


@pytest.mark.some(25)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("found", FOUND, ids=by_id)
def test_a_campaign_catches_the_specimen_by_its_invariant(found, seed, first_failure):
    trace = first_failure(found, seed)
    assert trace is not None, f"{found.id} survived"
    assert is_named_rightly(found, trace.violation), trace.violation.sentence


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("found", FOUND, ids=by_id)
def test_it_is_caught_under_any_seed(found, seed, first_failure):
    trace = first_failure(found, seed)
    assert trace is not None, f"{found.id} survived"
    assert is_named_rightly(found, trace.violation), trace.violation.sentence


@pytest.mark.deep
@pytest.mark.parametrize("found", FOUND, ids=by_id)
def test_its_minimal_trace_is_short_and_fails_alike(found, first_failure):
    trace = first_failure(found)
    small = minimise(trace, execute_in_process(found.make))
    again = replay(small, found.make)
    assert len(small.commands) <= LONGEST
    assert again.applied == small.commands
    assert again.violation is not None
    assert again.violation.invariant == trace.violation.invariant
    assert is_named_rightly(found, again.violation)


@pytest.mark.parametrize(
    ("name", "length"), [("A7", 3), ("B16", 4), ("D13", 1), ("H1", 3), ("B6", 2), ("A8-manager", 3)]
)
def test_the_minimal_trace_of_a_plain_bug_has_a_handful_of_commands(name, length, first_failure):
    found = manager_specimen(name)
    small = minimise(first_failure(found), execute_in_process(found.make))
    assert len(small.commands) <= length
    assert replay(small, found.make).violation is not None


def test_a_bug_that_raises_is_found_by_nothing_else():
    loud = [found for found in FOUND if not found.silent]
    assert loud
    assert all("CRASH" in found.invariants for found in loud)
    assert all(found.severity is Severity.CRASH for found in loud)


def test_no_two_specimens_of_any_level_have_one_id():
    assert not set(MANAGER_SPECIMENS) & set(SPECIMENS)
    assert {found.level for found in FOUND} == {"manager"}


def test_an_unknown_id_is_answered_with_the_known_ones():
    with pytest.raises(ValueError) as refused:
        manager_specimen("A999")
    assert "'A999'" in str(refused.value)
    assert "D1-nano" in str(refused.value)


def test_a_specimen_is_not_built_under_a_profile_where_it_is_no_bug():
    with pytest.raises(ValueError) as refused:
        manager_specimen("B27").make_under(ManagerProfile(full_hit="allowed"))
    assert "is no bug under" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("A7", ManagerProfile(groups=(CacheGroup("sliding", window=8),))),
        ("A7", ManagerProfile(keyed="reachable")),
        ("D13", ManagerProfile(publishes="scheduled")),
        ("G3", ManagerProfile(groups=(CacheGroup("sliding", window=8),))),
        ("A8-manager", ManagerProfile(groups=(CacheGroup("sliding", window=8),), null_block=0)),
        ("B21", ManagerProfile(null_block=0)),
        ("H5", ManagerProfile()),
        ("D1-nano", ManagerProfile()),
    ],
)
def test_a_specimen_says_which_profiles_its_base_cannot_serve(name, profile):
    assert not manager_specimen(name).is_bug_under(profile)


def test_threads_without_a_specimen_of_their_own_share_one_or_have_a_reason():
    everywhere = {**SPECIMENS, **MANAGER_SPECIMENS}
    assert set(SHARED.values()) <= set(everywhere)
    told = {found.thread for found in everywhere.values()}
    assert not told & set(UNSTATED)
    assert not set(SHARED) & set(UNSTATED)
    assert all(len(reason) > 40 for reason in UNSTATED.values())
