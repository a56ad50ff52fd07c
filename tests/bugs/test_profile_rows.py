"""A row of the profile excuses the design that it is for, and nothing else."""

import pytest

from poolproof.bugs.plain_manager_rows import (
    NAMED_OF_MANAGERS,
    PLAIN_MANAGER_ROWS,
    STRICTEST_OF_MANAGERS,
)
from poolproof.bugs.plain_pool_rows import NAMED_OF_POOLS, PLAIN_POOL_ROWS, STRICTEST_OF_POOLS
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
OF_POOLS = [*POOL_ROWS, *PLAIN_POOL_ROWS]
OF_MANAGERS = [*MANAGER_ROWS, *PLAIN_MANAGER_ROWS]
ROWS = [*OF_POOLS, *OF_MANAGERS]
OTHER_NUMBERS = {"hash_bytes": (4, 32)}
"""For rows that have numbers beside their words."""
CONTRADICTED = [example for example in ROWS if example.without]


def name_of(example):
    level = "pool" if example in OF_POOLS else "manager"
    return f"{level}-{example.name}-{example.right.__name__}"


def campaign_of(example, cls, rows, seed):
    if example in OF_POOLS:
        profile = Profile.from_mapping(rows)
        return PoolCampaign(
            cls.__name__, lambda n, on: cls(n, enable_caching=on), profile, seed=seed
        )
    profile = ManagerProfile.from_mapping(rows)
    options = {"weak_hashes": example.weak_hashes} if example.weak_hashes else {}
    return ManagerCampaign(
        cls.__name__, lambda n, on: cls(n, BLOCK_SIZE, enable_caching=on), profile, BLOCK_SIZE,
        seed=seed, options=options,
    )  # fmt: skip


def driven(example, cls, rows, seed=0):
    """What a campaign finds in the class under these rows, run by run, and the facts it reaches."""
    campaign = campaign_of(example, cls, rows, seed)
    results = [campaign.run(number) for number in range(NUM_RUNS)]
    facts = set().union(*(result.facts for result in results))
    return [result.trace.violation for result in results if result.trace is not None], facts


def required_of(example):
    if example in OF_POOLS:
        can = capabilities_of(example.right(8))
        return required_facts(Profile.from_mapping(example.right.profile), can)
    can = manager_capabilities_of(example.right(8, BLOCK_SIZE))
    return required_manager_facts(ManagerProfile.from_mapping(example.right.profile), can)


@pytest.mark.some(2)
@pytest.mark.parametrize("example", ROWS, ids=name_of)
def test_the_oddity_declares_the_value_and_holds_under_it_with_every_fact_reached(example):
    assert example.right.profile[example.row] == example.value
    reached = set()
    for seed in range(NUM_SEEDS):
        found, facts = driven(example, example.right, example.right.profile, seed)
        assert not found
        reached |= facts
    assert set(required_of(example)) <= reached


@pytest.mark.some(6)
@pytest.mark.parametrize("example", CONTRADICTED, ids=name_of)
def test_the_same_class_is_accused_under_a_value_that_contradicts_it(example):
    found, _ = driven(example, example.right, {**example.right.profile, **example.without})
    assert found


@pytest.mark.some(8)
@pytest.mark.parametrize("example", ROWS, ids=name_of)
def test_the_specimen_is_refused_under_the_value(example):
    found, _ = driven(example, example.wrong, example.right.profile)
    assert found
    assert found[0].invariant in example.invariants, found[0]


@pytest.mark.parametrize(
    ("profile", "examples", "named"),
    [(Profile, OF_POOLS, NAMED_OF_POOLS), (ManagerProfile, OF_MANAGERS, NAMED_OF_MANAGERS)],
    ids=["pools", "managers"],
)
def test_every_value_of_every_row_has_an_example_or_is_named_with_its_reason(
    profile, examples, named
):
    shown = {example.name for example in examples}
    missing = set()
    for row in set(profile.rows()) - set(named):
        values = profile.choices().get(row, ())
        missing |= {f"{row}={value}" for value in values} - shown - set(named)
        if not values and not any(example.row == row for example in examples):
            missing.add(row)
    assert not missing
    assert not shown & set(named)
    assert all(named.values())


@pytest.mark.parametrize(
    ("examples", "strictest"),
    [(OF_POOLS, STRICTEST_OF_POOLS), (OF_MANAGERS, STRICTEST_OF_MANAGERS)],
    ids=["pools", "managers"],
)
def test_only_the_value_that_promises_most_is_not_contradicted(examples, strictest):
    alone = {example.name for example in examples if not example.without}
    assert alone == set(strictest)
    assert all(strictest.values())


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "example", [example for example in ROWS if not example.without], ids=name_of
)
def test_what_promises_most_holds_under_every_other_value_of_its_row(example):
    profile = Profile if example in OF_POOLS else ManagerProfile
    others = (*profile.choices()[example.row], *OTHER_NUMBERS.get(example.row, ()))
    for value in set(others) - {example.value}:
        found, _ = driven(example, example.right, {**example.right.profile, example.row: value})
        assert not found, (value, found)
