"""A row of the profile excuses the design that it is for, and nothing else."""

import pytest

from poolproof.bugs.profile_rows import MANAGER_ROWS, POOL_ROWS
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.harness.facts import required_facts
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.random_driver import PoolCampaign

NUM_SEEDS, NUM_RUNS = 3, 30
BLOCK_SIZE = 4
ROWS = [*POOL_ROWS, *MANAGER_ROWS]


def name_of(example):
    return f"{'manager' if example in MANAGER_ROWS else 'pool'}-{example.name}"


def campaign_of(example, cls, rows, seed):
    if example in POOL_ROWS:
        profile = Profile.from_mapping(rows)
        return PoolCampaign(
            cls.__name__, lambda n, on: cls(n, enable_caching=on), profile, seed=seed
        )
    profile = ManagerProfile.from_mapping(rows)
    return ManagerCampaign(
        cls.__name__, lambda n, on: cls(n, BLOCK_SIZE, enable_caching=on), profile, BLOCK_SIZE,
        seed=seed,
    )  # fmt: skip


def driven(example, cls, rows, seed=0):
    """What a campaign finds in the class under these rows, run by run, and the facts it reaches."""
    campaign = campaign_of(example, cls, rows, seed)
    results = [campaign.run(number) for number in range(NUM_RUNS)]
    facts = set().union(*(result.facts for result in results))
    return [result.trace.violation for result in results if result.trace is not None], facts


def required_of(example):
    if example in POOL_ROWS:
        can = capabilities_of(example.right(8))
        return required_facts(Profile.from_mapping(example.right.profile), can)
    can = manager_capabilities_of(example.right(8, BLOCK_SIZE))
    return required_manager_facts(ManagerProfile.from_mapping(example.right.profile), can)


@pytest.mark.some(1)
@pytest.mark.parametrize("example", ROWS, ids=name_of)
def test_the_oddity_declares_the_value_and_holds_under_it_with_every_fact_reached(example):
    assert example.right.profile[example.row] == example.value
    reached = set()
    for seed in range(NUM_SEEDS):
        found, facts = driven(example, example.right, example.right.profile, seed)
        assert not found
        reached |= facts
    assert set(required_of(example)) <= reached


@pytest.mark.some(7)
@pytest.mark.parametrize("example", ROWS, ids=name_of)
def test_the_same_class_is_accused_under_a_value_that_contradicts_it(example):
    found, _ = driven(example, example.right, {**example.right.profile, **example.without})
    assert found


@pytest.mark.some(6)
@pytest.mark.parametrize("example", ROWS, ids=name_of)
def test_the_specimen_is_refused_under_the_value(example):
    found, _ = driven(example, example.wrong, example.right.profile)
    assert found
    assert found[0].invariant in example.invariants, found[0]
