"""Fixtures: profiles, a few in every run and all in deep runs, and campaigns over managers."""

import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from poolproof.bugs.specimen import ManagerSpecimen
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.harness.manager_driver import ManagerCampaign

ALL_PROFILES = [
    Profile(
        eviction=eviction, duplicates=duplicates, recache=recache, null_block=null_block,
        null_in_lists=null_in_lists, events=events, misuse=misuse,
    )
    for eviction, duplicates, recache, (null_block, null_in_lists), events, misuse in product(
        ("lru", "unhashed-first", "unhashed-lifo", "lifo", "unspecified"),
        ("kept", "first", "last"),
        ("replace", "forbidden"),
        ((None, "misuse"), (0, "ignored"), (0, "misuse")),
        ("none", "per-copy", "per-hash"),
        ("raises", "ignores", "undefined"),
    )
]  # fmt: skip


def name_of(profile: Profile) -> str:
    return ",".join(str(value) for value in list(profile.to_json().values())[:9])


# 810 profiles; 61 has no factor in common with them, so that every value of every row comes up.
@pytest.fixture(params=ALL_PROFILES[::61], ids=name_of)
def profile(request: pytest.FixtureRequest) -> Profile:
    """One of a few profiles that together have every value of every row."""
    found: Profile = request.param
    return found


@pytest.fixture(params=ALL_PROFILES, ids=name_of)
def any_profile(request: pytest.FixtureRequest) -> Profile:
    """One of all profiles."""
    found: Profile = request.param
    return found


def _campaign_of(found: ManagerSpecimen, seed: int = 0) -> ManagerCampaign:
    options = {"weak_hashes": found.weak_hashes} if found.weak_hashes else {}
    return ManagerCampaign(
        found.id, found.make, found.profile, found.block_size, seed=seed, options=options
    )


@pytest.fixture
def first_failure() -> Callable[..., Trace | None]:
    """What finds a manager specimen's first run that fails, or that a collision misleads."""

    def search(found: ManagerSpecimen, seed: int = 0, most_runs: int = 300) -> Trace | None:
        campaign = _campaign_of(found, seed)
        results = (campaign.run(number) for number in range(most_runs))
        failures = (result.trace or result.collision for result in results)
        return next((trace for trace in failures if trace is not None), None)

    return search


@pytest.fixture
def passing_facts() -> Callable[..., set[str]]:
    """What runs campaigns against a manager that must pass; the facts that they reached."""

    def run(cls: Any, seeds: range, num_runs: int, **options: Any) -> set[str]:
        profile = ManagerProfile.from_mapping(cls.profile)
        facts: set[str] = set()
        for seed in seeds:
            campaign = ManagerCampaign(
                cls.__name__, lambda n, on: cls(n, 4, enable_caching=on), profile, 4,
                seed=seed, options=options,
            )  # fmt: skip
            for number in range(num_runs):
                result = campaign.run(number)
                wrong = result.trace or result.collision
                assert wrong is None, (wrong.violation, wrong.commands[-5:])
                facts |= result.facts
        return facts

    return run


@pytest.fixture(scope="session")
def golden() -> ModuleType:
    """The module `make_golden.py`; tests are no package, so it is loaded by its path."""
    name = "poolproof_make_golden"
    if name not in sys.modules:
        spec = spec_from_file_location(name, Path(__file__).with_name("make_golden.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
