"""What is right is not accused: clean managers of every kind, and the odd ones."""

import pytest

from poolproof.bugs.clean_groups import CleanHybridManager, CleanRingManager, CleanWindowManager
from poolproof.bugs.clean_manager import CleanManager, CleanSwappingManager
from poolproof.bugs.clean_nano import CleanNanoManager
from poolproof.bugs.manager_oddities import MANAGER_ODDITIES, ContentCheckedManager
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.harness.manager_facts import required_manager_facts

SLIDING = {"kind": "sliding", "window": 8}
WINDOWS = {"null_block": 0, "groups": [SLIDING]}
RING = {"publishes": "never", "window_blocks": "reused", "groups": [SLIDING]}
SWAPS = {"host_blocks": 5}
EARLY = {"publishes": "scheduled", "same_step_hit": "allowed"}
TWO_GROUPS = {"null_block": 0, "groups": [{"kind": "full"}, SLIDING]}

CLEAN = {
    "full": (CleanManager, {}),
    "full, early": (CleanManager, EARLY),
    "full, whole prompts, early": (CleanManager, {**EARLY, "full_hit": "allowed"}),
    "full, last": (CleanManager, {"duplicates": "last", "eviction": "unhashed-first"}),
    "full, head first": (CleanManager, {"release_order": "head-first", "eviction": "lifo"}),
    "window": (CleanWindowManager, WINDOWS),
    "window, first": (CleanWindowManager, {**WINDOWS, "duplicates": "first", "eviction": "lifo"}),
    "window, late": (CleanWindowManager, {**WINDOWS, "frees": "after-step"}),
    "ring": (CleanRingManager, RING),
    "ring, whole": (CleanRingManager, {**RING, "reserves": "sequence", "never": "untold"}),
    "swap": (CleanSwappingManager, SWAPS),
    "swap, early": (CleanSwappingManager, {**SWAPS, **EARLY}),
    "swap, late": (CleanSwappingManager, {**SWAPS, "frees": "after-step"}),
    "two groups": (CleanHybridManager, TWO_GROUPS),
    "two groups, early": (CleanHybridManager, {**TWO_GROUPS, **EARLY, "lookahead_tokens": 2}),
    "two groups, untold": (CleanHybridManager, {**TWO_GROUPS, "never": "untold"}),
    "nano": (CleanNanoManager, {"duplicates": "last"}),
    "nano, early": (CleanNanoManager, {"duplicates": "last", "full_hit": "allowed", **EARLY}),
}


def under(cls, rows):
    """The class with another profile."""
    return type(cls.__name__, (cls,), {"profile": rows})


@pytest.mark.some(3)
@pytest.mark.parametrize(("cls", "rows"), CLEAN.values(), ids=CLEAN)
def test_a_clean_manager_serves_its_profile_and_passes(cls, rows, passing_facts):
    assert cls.serves(ManagerProfile.from_mapping(rows))
    passing_facts(under(cls, rows), range(1), 40)


@pytest.mark.deep
@pytest.mark.parametrize(("cls", "rows"), CLEAN.values(), ids=CLEAN)
def test_a_clean_manager_passes_long_campaigns(cls, rows, passing_facts):
    passing_facts(under(cls, rows), range(20), 60)


@pytest.mark.some(4)
@pytest.mark.parametrize("cls", MANAGER_ODDITIES, ids=lambda cls: cls.__name__)
def test_an_oddity_passes_under_several_seeds_and_reaches_every_fact(cls, passing_facts):
    profile = ManagerProfile.from_mapping(cls.profile)
    required = set(required_manager_facts(profile, manager_capabilities_of(cls(8, 4))))
    facts = passing_facts(cls, range(6), 3)
    if not required <= facts:  # some are rare
        facts |= passing_facts(cls, range(6, 20), 3)
    assert required <= facts


@pytest.mark.deep
@pytest.mark.parametrize("cls", MANAGER_ODDITIES, ids=lambda cls: cls.__name__)
def test_an_oddity_passes_long_campaigns(cls, passing_facts):
    passing_facts(cls, range(20), 60)


@pytest.mark.some(2)
@pytest.mark.parametrize("num_bits", [1, 4, 8])
def test_a_manager_that_compares_what_it_finds_passes_with_weak_hashes(num_bits, passing_facts):
    passing_facts(ContentCheckedManager, range(5), 8, weak_hashes=num_bits)
