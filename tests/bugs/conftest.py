"""Fixtures over profiles: a few of them in every run, all of them in deep runs."""

from itertools import product

import pytest

from poolproof.contract.profile import Profile

ALL_PROFILES = [
    Profile(
        eviction=eviction, duplicates=duplicates, recache=recache, null_block=null_block,
        null_in_lists=null_in_lists, events=events, misuse=misuse,
    )
    for eviction, duplicates, recache, (null_block, null_in_lists), events, misuse in product(
        ("lru", "unhashed-first", "lifo", "unspecified"),
        ("kept", "first", "last"),
        ("replace", "forbidden"),
        ((None, "misuse"), (0, "ignored"), (0, "misuse")),
        ("none", "per-copy", "per-hash"),
        ("raises", "ignores", "undefined"),
    )
]  # fmt: skip


def name_of(profile: Profile) -> str:
    return ",".join(str(value) for value in list(profile.to_json().values())[:9])


# 648 profiles; 61 has no factor in common with them, so that every value of every row comes up.
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
