"""The state machine of token chains: real hashes hold against contents, collisions are found."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import replace

import hypothesis
import pytest

from poolproof.harness.facts import required_facts
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.chain_machine import ChainMachine
from poolproof.stateful_tests.profile_pairs import all_pairs, overrides_text
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

PROFILES = [
    overrides_text({"keys": "partial", **combination})
    for combination in all_pairs(
        {
            "eviction": ("lru", "unhashed-first"),
            "recache": ("replace", "forbidden"),
            "null_in_lists": ("misuse", "ignored"),
            "null_block": (None, 0),
            "events": ("per-copy", "per-hash"),
        }
    )
]


@pytest.mark.parametrize("profile", ["", *PROFILES])
@pytest.mark.parametrize("target", ["impl", "reference"])
def test_chains_hold(target, profile, campaign_of, holds):
    holds(ChainMachine, campaign_of(f"{target}{profile}", chained=True))


def test_a_part_of_the_quick_level_reaches_every_fact_of_token_chains(campaign_of):
    campaign = campaign_of("reference[keys=partial]", chained=True)
    settings = hypothesis.settings(machine_settings("quick"), max_examples=60)
    result = run_machine(lambda log: ChainMachine(campaign, log), settings, seed=0)
    can = PoolSession(campaign.make(4, True), campaign.profile, 4).can
    without = replace(can, verbs=can.verbs - {"cache_chain", "cache_partial"})
    of_chains = set(required_facts(campaign.profile, can))
    of_chains -= set(required_facts(campaign.profile, without))
    assert of_chains - result.facts == set()


def test_campaign_without_chains_is_refused(campaign_of):
    with pytest.raises(AssertionError, match="takes no token chains"):
        run_machine(
            lambda log: ChainMachine(campaign_of("impl"), log), machine_settings("quick"), seed=0
        )


def test_salt_left_out_of_the_key_is_found(campaign_of, find):
    clean = campaign_of("reference", chained=True)

    def without_salts(num_blocks, enable_caching):
        pool = clean.make(num_blocks, enable_caching)
        cache_chain, lookup_chain = pool.cache_chain, pool.lookup_chain
        pool.cache_chain = lambda chain, *rest: cache_chain(replace(chain, salt=None), *rest)
        pool.lookup_chain = lambda chain, *rest: lookup_chain(replace(chain, salt=None), *rest)
        return pool

    campaign = PoolCampaign(
        "without salts",
        without_salts,
        clean.profile,
        chain_block_size=clean.chain_block_size,
        hash_block_size=clean.hash_block_size,
    )
    trace = find(ChainMachine, campaign)
    assert trace is not None
    assert trace.violation.invariant == "IDX"
    assert len(trace.commands) <= 3
