"""Each specimen of managers is caught under every profile under which it says that it is a bug."""

import pytest

from poolproof.bugs import clean_groups, clean_manager, clean_nano, manager_oddities
from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.bugs.specimen_profiles import DESIGNS, profiles_of
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign

MOST_RUNS = 300
"""What each of four layouts has at `quick`; a single one has 1,200."""
HAND_PICKED = [
    ("A26", "release_order=head-first"),
    ("B2", "watermark_blocks=1"),
    ("C15", "index=content"),
    ("D1-window", "duplicates=first"),
    ("D17-manager", "a doorkeeper"),
    ("G3-hybrid", "groups=sliding:8+full"),
    ("J10-manager", "null_block=0"),
    ("L29", "eviction=lifo"),
]


def first_violation(make, found, profile, num_runs):
    options = {"weak_hashes": found.weak_hashes} if found.weak_hashes else {}
    campaign = ManagerCampaign(found.id, make, profile, found.block_size, options=options)
    results = (campaign.run(number) for number in range(num_runs))
    traces = (result.trace or result.collision for result in results)
    return next((trace.violation for trace in traces if trace is not None), None)


def assert_caught(found, name, profile):
    violation = first_violation(found.make_under(profile), found, profile, MOST_RUNS)
    assert violation is not None, f"{found.id} survived {MOST_RUNS} runs under {name}"
    assert violation.invariant in found.invariants, (name, violation.sentence)


def clean_base(cls):
    """What the specimen is a small change of."""
    right = (clean_manager, clean_groups, clean_nano, manager_oddities)
    homes = {module.__name__ for module in right}
    return next(base for base in cls.__mro__ if base.__module__ in homes)


def bases_and_profiles():
    """Each base of a specimen with each profile under which a specimen of it is a bug, once."""
    pairs = {}
    for found in MANAGER_SPECIMENS.values():
        base = clean_base(found.cls)
        for name, profile in profiles_of(found).items():
            pairs.setdefault((base, profile), (found, f"{base.__name__}, {name}"))
    return [(found, base, profile, name) for (base, profile), (found, name) in pairs.items()]


PAIRS = bases_and_profiles()


@pytest.mark.parametrize(("specimen_id", "name"), HAND_PICKED)
def test_a_specimen_is_caught_under_another_profile_than_its_own(specimen_id, name):
    found = MANAGER_SPECIMENS[specimen_id]
    assert_caught(found, name, profiles_of(found)[name])


@pytest.mark.deep
@pytest.mark.parametrize("found", MANAGER_SPECIMENS.values(), ids=lambda found: found.id)
def test_a_specimen_is_caught_under_every_profile_under_which_it_is_a_bug(found):
    for name, profile in profiles_of(found).items():
        assert_caught(found, name, profile)


@pytest.mark.some(6)
@pytest.mark.parametrize(
    ("found", "base", "profile"), [pair[:3] for pair in PAIRS], ids=[pair[3] for pair in PAIRS]
)
def test_its_base_holds_there_so_that_the_bug_is_what_is_caught(found, base, profile):
    def make(num_blocks, enable_caching):
        return base(num_blocks, found.block_size, enable_caching=enable_caching, rules=profile)

    assert first_violation(make, found, profile, 10) is None


def test_every_specimen_is_tried_under_its_own_profile_and_many_others():
    for found in MANAGER_SPECIMENS.values():
        tried = profiles_of(found)
        assert tried["as stated"] == found.profile
        assert len(tried) >= 20, found.id


def test_every_design_and_every_value_of_a_row_of_managers_is_tried_somewhere():
    specimens = MANAGER_SPECIMENS.values()
    tried = [profile for found in specimens for profile in profiles_of(found).values()]
    assert set(DESIGNS.values()) <= set(tried)
    for row in ("publishes", "hits", "index", "reserves", "frees", "held_blocks", "retention"):
        assert {getattr(profile, row) for profile in tried} == set(ManagerProfile.choices()[row])


def test_a_base_that_publishes_otherwise_serves_no_other_profile():
    nano = MANAGER_SPECIMENS["B4"]
    assert not nano.is_bug_under(ManagerProfile(duplicates="last", publishes="never"))
    assert not nano.is_bug_under(ManagerProfile(duplicates="last", publishes="scheduled"))
