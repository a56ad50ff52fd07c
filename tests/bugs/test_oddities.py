"""Pools that look unlike any engine and are right are not accused, by no seed and at no depth."""

import inspect

import pytest

from poolproof.bugs.oddities import ODDITIES
from poolproof.certification.certificate import Verdict
from poolproof.certification.certify import certify
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.harness.facts import required_facts
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets.load import load_target

NUM_SEEDS, NUM_SEEDS_OF_LONG_CAMPAIGNS = 6, 20


def by_name(cls):
    return cls.__name__


def facts_of(cls, num_seeds, num_runs):
    """Run a campaign under each seed, all of which must pass; the facts that they reached."""
    profile = Profile.from_mapping(cls.profile)
    facts = set()
    for seed in range(num_seeds):
        campaign = PoolCampaign(
            cls.__name__, lambda n, on: cls(n, enable_caching=on), profile, seed=seed
        )
        for number in range(num_runs):
            result = campaign.run(number)
            assert result.trace is None, (result.trace.violation, result.trace.commands[-5:])
            facts |= result.facts
    return facts


def certified(cls, depth):
    name = f"{cls.__module__}:{cls.__name__}"
    options = CertifyOptions(depth=depth, workers=2)
    return judge(certify(lambda: load_target(name), options, SilentProgress()), Rules())


@pytest.mark.some(4)
@pytest.mark.parametrize("cls", ODDITIES, ids=by_name)
def test_an_oddity_passes_under_several_seeds(cls):
    assert facts_of(cls, NUM_SEEDS, num_runs=2)


@pytest.mark.deep
@pytest.mark.parametrize("cls", ODDITIES, ids=by_name)
def test_an_oddity_passes_long_campaigns_and_reaches_every_fact(cls):
    facts = facts_of(cls, NUM_SEEDS_OF_LONG_CAMPAIGNS, num_runs=40)
    profile = Profile.from_mapping(cls.profile)
    assert set(required_facts(profile, capabilities_of(cls(4)))) <= facts


@pytest.mark.deep
@pytest.mark.parametrize("depth", ["quick", "standard"])
@pytest.mark.parametrize("cls", ODDITIES, ids=by_name)
def test_an_oddity_is_certified(cls, depth):
    certificate = certified(cls, depth)
    assert certificate.verdict is Verdict.HOLDS, certificate.findings


def test_the_oddities_differ_in_everything_that_the_profile_lets_differ():
    profiles = [Profile.from_mapping(cls.profile) for cls in ODDITIES]
    assert len(ODDITIES) >= 12
    assert {p.eviction for p in profiles} == {"lru", "unhashed-first", "lifo", "unspecified"}
    assert {p.null_block for p in profiles} == {None, 0}
    assert {p.duplicates for p in profiles} == {"kept", "first", "last"}
    assert {p.events for p in profiles} == {"none", "per-copy", "per-hash"}
    assert {p.retention for p in profiles} == {"exact", "may-drop"}
    assert {p.misuse for p in profiles} == {"raises", "ignores", "undefined"}


def test_every_oddity_says_what_is_odd_about_it():
    said = [inspect.getdoc(cls) for cls in ODDITIES]
    assert all(said)
    assert len(set(said)) == len(ODDITIES)
