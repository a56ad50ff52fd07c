"""The pool's state machine: what is right holds in every profile, planted bugs are found."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import settings

from poolproof.contract.profile import Profile
from poolproof.harness.facts import required_facts
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.random_driver import PoolCampaign
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.pool_checks import CHOICES
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.stateful_tests.profile_pairs import all_pairs, overrides_text
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

IMPL_PROFILES = [
    overrides_text(combination)
    for combination in all_pairs({"null_block": (None, 0, 1), **CHOICES})
]
PRODUCT = [
    overrides_text({"null_block": 0, "null_in_lists": "ignored", "keys": "partial"} | rows)
    for rows in (
        dict(zip(names, values, strict=True))
        for names in [("eviction", "duplicates", "recache", "events", "misuse")]
        for values in product(*(CHOICES[name] for name in names))
    )
]
# The rows that only the specification has.
REFERENCE_PROFILES = [
    *IMPL_PROFILES,
    "[eviction=unspecified]",
    "[eviction=unhashed-lifo,repeats_in_free=forbidden]",
    "[eviction=unhashed-lifo,null_block=0,null_in_lists=uncached,events=per-hash]",
    "[eviction=unspecified,retention=may-drop,events=per-copy]",
    "[retention=may-drop]",
    "[keys=3]",
]


@pytest.mark.parametrize("profile", IMPL_PROFILES)
def test_impl_holds_in_every_pair_of_profile_rows(profile, campaign_of, holds):
    holds(PoolMachine, campaign_of(f"impl{profile}"))


@pytest.mark.parametrize("profile", REFERENCE_PROFILES)
def test_reference_holds_against_itself(profile, campaign_of, holds):
    holds(PoolMachine, campaign_of(f"reference{profile}"))


@pytest.mark.deep
@pytest.mark.parametrize("holds", ["all"], indirect=True)
@pytest.mark.parametrize("profile", PRODUCT)
def test_impl_holds_in_every_combination_of_the_rows_that_act_together(profile, campaign_of, holds):
    holds(PoolMachine, campaign_of(f"impl{profile}"))


def test_a_machine_reaches_every_required_fact(campaign_of):
    campaign = campaign_of("impl")
    can = PoolSession(campaign.make(4, True), campaign.profile, 4).can
    missing = set(required_facts(campaign.profile, can))
    # The oldest Hypothesis draws the rarest of them after 300 examples, newer ones before.
    for num_examples in (150, 800):
        few = settings(machine_settings("quick"), max_examples=num_examples)
        missing -= run_machine(lambda log: PoolMachine(campaign, log), few, seed=0).facts
        if not missing:
            break
    assert missing == set()


class KeepsHashOfRecycledBlock(BlockPool):
    def __init__(self, num_blocks, *, enable_caching=True):
        super().__init__(num_blocks, enable_caching=enable_caching)
        self.stale = {}

    def allocate(self, n):
        hashes = list(map(self.block_hash, range(self.num_blocks)))
        taken = super().allocate(n)
        self.stale |= {hashes[block]: block for block in taken}
        return taken

    def lookup(self, block_hash, *, group=0):
        found = super().lookup(block_hash, group=group)
        return self.stale.get(block_hash) if found is None else found


class FreesAtMostThree(BlockPool):
    def free(self, block_ids):
        super().free(list(block_ids)[:3])


class RefusesTheLastBlocks(BlockPool):
    def allocate(self, n):
        if n > 1 and n == self.num_free():
            raise MemoryError("none left")
        return super().allocate(n)


class SortsWhatItFrees(BlockPool):
    def free(self, block_ids):
        super().free(sorted(block_ids))


class ForgetsHashesAtRefusedReset(BlockPool):
    def reset(self):
        done = super().reset()
        if not done and self.num_free() > 2:
            self.evict(list(range(self.num_blocks)))
        return done


class AcceptsDoubleFree(BlockPool):
    def free(self, block_ids):
        try:
            super().free(block_ids)
        except ValueError:
            return


class CannotBeBuiltWithFive(BlockPool):
    def __init__(self, num_blocks, *, enable_caching=True):
        super().__init__(num_blocks, enable_caching=enable_caching)
        if num_blocks == 5:
            raise RuntimeError("five is not supported")


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("bug", "invariant", "shortest"),
    [
        (KeepsHashOfRecycledBlock, "IDX", 4),
        (FreesAtMostThree, "I1", 2),
        (RefusesTheLastBlocks, "ADM", 1),
        (SortsWhatItFrees, "ORD", 2),
        (ForgetsHashesAtRefusedReset, "ATOM", 3),
        (AcceptsDoubleFree, "MISUSE", 1),
        (CannotBeBuiltWithFive, "CRASH", 0),
    ],
)
def test_planted_bug_is_found_and_minimised(bug, invariant, shortest, find):
    profile = Profile.from_mapping(BlockPool(2).profile)
    campaign = PoolCampaign(
        bug.__name__, lambda n, caching: bug(n, enable_caching=caching), profile
    )
    trace = find(PoolMachine, campaign)
    assert trace is not None
    assert trace.violation.invariant == invariant
    assert len(trace.commands) <= shortest + 2
