"""Every required fact is reached in a campaign, for each profile that asks for it."""

import pytest

from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.harness.facts import required_chain_facts, required_facts
from poolproof.harness.random_driver import PoolCampaign
from poolproof.reference.native_pool import NativeDictPool


def facts_missing(profile, required, num_runs, **chains):
    """The required facts that so many runs do not reach, and the runs stop when all are reached."""

    def make(num_blocks, caching):
        return NativeDictPool(
            num_blocks, enable_caching=caching, profile=profile,
            block_size=chains.get("chain_block_size", 1),
        )  # fmt: skip

    campaign = PoolCampaign("reference", make, profile, **chains)
    can = capabilities_of(make(1 if profile.null_block is None else 2, True))
    missing = set(required(profile, can))
    assert missing
    for number in range(num_runs):
        result = campaign.run(number)
        assert result.trace is None
        missing -= result.facts
        if not missing:
            break
    return missing


@pytest.mark.parametrize(
    "profile",
    [
        Profile(),
        Profile(null_block=0, null_in_lists="ignored", eviction="unhashed-first"),
        Profile(recache="forbidden", misuse="undefined", eviction="lifo"),
        Profile(duplicates="first", misuse="ignores", null_block=3),
        Profile(duplicates="last", retention="may-drop", eviction="unspecified"),
    ],
    ids=range(5),
)
def test_every_required_fact_is_reached(profile):
    assert facts_missing(profile, required_facts, 40) == set()


@pytest.mark.parametrize(
    "profile", [Profile(keys="partial", null_block=0, null_in_lists="ignored"), Profile()]
)
def test_every_required_fact_about_chains_is_reached(profile):
    sizes = {"chain_block_size": 4, "hash_block_size": 2}
    assert facts_missing(profile, required_chain_facts, 150, **sizes) == set()


def test_what_a_profile_rules_out_is_not_required():
    can = capabilities_of(NativeDictPool(1))
    everything = set(required_facts(Profile(null_block=0, null_in_lists="ignored"), can))
    assert "misuse was tried" not in required_facts(Profile(misuse="undefined"), can)
    assert "a block's hash was replaced" not in required_facts(Profile(recache="forbidden"), can)
    assert everything - set(required_facts(Profile(), can)) == {"the null block stood in a list"}


def test_what_a_target_cannot_do_is_not_required():
    class Small(NativeDictPool):
        touch = evict = reset = cache_partial = lookup = None

        def acquire(self, hashes):
            return []

    can = capabilities_of(Small(1))
    full = set(required_facts(Profile(), capabilities_of(NativeDictPool(1))))
    assert full - set(required_facts(Profile(), can)) == {
        "a block had two owners or more",
        "a block stood twice in one touch",
        "a block stood twice in one free",
        "a free block was evicted",
        "a held block was evicted",
        "a reset was done",
        "a reset was refused",
    }
    assert "a partial entry was made" not in required_chain_facts(Profile(keys="partial"), can)
