"""Every family of mistakes that begins at some size is refused; pools that look alike hold."""

from __future__ import annotations

from itertools import chain

import pytest

from poolproof.bugs.production_families import FAMILIES, LOOKALIKES
from poolproof.certification.depths import BUDGETS
from poolproof.certification.levels.certified_level import Veiled
from poolproof.contract.profile import Profile
from poolproof.contract.target import POOL_OBSERVERS
from poolproof.harness.production import ProductionSizes
from poolproof.harness.random_driver import PoolCampaign

QUICK = BUDGETS["quick"].production
assert QUICK is not None
FEWER = ProductionSizes(24, 1, 3_000, 700, 600)
SHOWN_ONLY = ("event", "free_order")
"""Families of what a pool shows: without the method there is nothing to be wrong."""

CASES = [(family, constant) for family in FAMILIES for constant in family.constants]
# The smallest constants show in the smallest runs; in CI those in the middle follow.
SMALLEST = [(family, family.constants[0]) for family in FAMILIES]
MIDDLE = [(family, family.constants[len(family.constants) // 2]) for family in FAMILIES]
LARGER = [case for case in MIDDLE if case not in SMALLEST]


def first_violation(cls, *, hidden=(), careful_runs=6, seed=0, sizes=QUICK):
    """What `certify --depth quick` sees first in its careful runs and at production sizes."""

    def make(num_blocks, enable_caching):
        pool = cls(num_blocks, enable_caching=enable_caching)
        return Veiled(pool, frozenset(hidden)) if hidden else pool

    profile = Profile.from_mapping(cls.profile)
    careful = PoolCampaign("it", make, profile, seed)
    production = PoolCampaign("it", make, profile, seed, production=sizes)
    runs = [(careful.run, number) for number in range(1, 16 * careful_runs, 16)]
    # As `certify` does them: brief runs come before long ones.
    in_order = chain.from_iterable(sizes.groups(sizes.num_runs))
    runs += [(production.run, number) for number in in_order]
    for run, number in runs:
        trace = run(number).trace
        if trace is not None:
            return trace.violation
    return None


def name_of(case):
    family, constant = case
    return f"{family.title}, {constant}"


@pytest.mark.some(6)
@pytest.mark.parametrize("case", SMALLEST, ids=name_of)
def test_a_mistake_at_some_size_is_refused_at_quick(case):
    family, constant = case
    assert first_violation(family.make(constant)) is not None


@pytest.mark.deep
@pytest.mark.parametrize("case", LARGER, ids=name_of)
def test_a_mistake_at_a_larger_size_is_refused_at_quick(case):
    family, constant = case
    assert first_violation(family.make(constant)) is not None


@pytest.mark.deep
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_with_any_of_its_constants_and_any_seed(case, seed):
    family, constant = case
    assert first_violation(family.make(constant), seed=seed) is not None


@pytest.mark.deep
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_where_only_the_required_methods_can_be_seen(case):
    family, constant = case
    if any(word in family.title for word in SHOWN_ONLY):
        pytest.skip("a mistake in a method that is hidden here")
    assert first_violation(family.make(constant), hidden=POOL_OBSERVERS) is not None


RIGHT = dict(LOOKALIKES)


@pytest.mark.some(1)
@pytest.mark.parametrize("cls", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_pool_that_looks_alike_holds(cls):
    assert first_violation(cls, sizes=FEWER) is None


@pytest.mark.deep
@pytest.mark.parametrize("hidden", [(), POOL_OBSERVERS], ids=["shown", "hidden"])
@pytest.mark.parametrize("cls", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_pool_holds_in_all_runs_of_quick(cls, hidden):
    assert first_violation(cls, hidden=hidden) is None
