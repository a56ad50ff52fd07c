"""Planted bugs of indexes are caught under every profile that they break; odd indexes hold."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import pytest

from poolproof.bugs.catalogue import index_canaries
from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.index_bugs import INDEX_BUGS
from poolproof.bugs.odd_indexes import INDEX_ODDITIES
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.production import ProductionSizes
from poolproof.targets.native_target import native_target

PROFILES = [Profile(duplicates=rule) for rule in ("kept", "first", "last")]
RUNS = 200
SIZES = ProductionSizes(12, 2, 3_000, 2_048, 300)


def violations(campaign, runs=RUNS):
    found = (campaign.run(number).trace for number in range(runs))
    return [trace.violation for trace in found if trace is not None]


@pytest.mark.some(3)
@pytest.mark.parametrize("found", INDEX_BUGS.values(), ids=list(INDEX_BUGS))
def test_each_bug_is_named_by_its_invariant_with_its_severity(found):
    seen = violations(IndexCampaign(found.id, found.make, found.profile))
    assert {violation.invariant for violation in seen} & set(found.invariants)
    assert {violation.invariant for violation in seen} <= set(found.invariants)
    assert min((violation.severity for violation in seen), key=lambda s: s.rank) is found.severity


@pytest.mark.some(1)
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.duplicates)
def test_the_canaries_of_every_profile_are_caught(profile):
    canaries = index_canaries(profile)
    assert len(canaries) >= 3
    for found in canaries:
        assert violations(IndexCampaign(found.id, found.make_under(profile), profile))


@pytest.mark.some(2)
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.duplicates)
@pytest.mark.parametrize("production", [None, SIZES])
def test_the_clean_index_holds_under_every_profile(profile, production):
    make = lambda _n, _c: CleanIndex(profile)  # noqa: E731 -- one expression
    campaign = IndexCampaign("clean", make, profile, production=production)
    assert not violations(campaign, SIZES.num_runs if production else RUNS)


@pytest.mark.some(1)
@pytest.mark.parametrize("cls", INDEX_ODDITIES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("production", [None, SIZES])
def test_odd_indexes_hold(cls, production):
    target = native_target(cls.__name__, cls, Level.INDEX, {}, None)
    campaign = IndexCampaign(target.name, target.make, target.profile, production=production)
    assert not violations(campaign, SIZES.num_runs if production else RUNS)


def test_severities_of_the_bugs_are_not_all_alike():
    assert {found.severity for found in INDEX_BUGS.values()} >= {
        Severity.WRONG_DATA_OF_ANOTHER, Severity.LOST_HIT, Severity.LEAK, Severity.CRASH,
    }  # fmt: skip
