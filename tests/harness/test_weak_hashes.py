"""Weak hashes: whoever compares what is found passes, whoever trusts its hashes is told apart."""

from dataclasses import replace

import pytest

from poolproof.bugs.catalogue import manager_specimen
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.replay import replay
from poolproof.harness.weak_hashes import weak_hash, with_full_hashes

WEAK = {"weak_hashes": 8}


def campaign_of(name, profile=None, options=None):
    found = manager_specimen(name)
    profile = profile or found.profile
    return ManagerCampaign(
        name,
        found.make_under(profile),
        profile,
        found.block_size,
        options=WEAK if options is None else options,
    )


def first(campaign, wanted, num_runs=60):
    results = (getattr(campaign.run(number), wanted) for number in range(num_runs))
    return next((trace for trace in results if trace is not None), None)


@pytest.mark.parametrize("num_bits", [1, 8, 64])
def test_a_weak_hash_has_so_many_values_and_always_the_same(num_bits):
    digest = weak_hash(num_bits)
    values = {int.from_bytes(digest(bytes([n, m])), "big") for n in range(64) for m in range(64)}
    assert len(values) == min(2**num_bits, 64 * 64)
    assert max(values) < 2**num_bits
    assert digest(b"x") == weak_hash(num_bits)(b"x")


def test_a_collision_is_not_held_against_a_manager_that_trusts_its_hashes():
    campaign = campaign_of("C1-trusted")
    collision = first(campaign, "collision")
    assert first(campaign, "trace") is None
    assert collision.violation.sentence.endswith(
        "; this depends on a hash collision (hashes were cut to 8 bits, with full hashes the same "
        "commands pass)"
    )


def test_a_manager_that_says_it_compares_and_does_not_is_wrong():
    campaign = campaign_of("C1-trusted", ManagerProfile())
    trace = first(campaign, "trace")
    assert "depends on a hash collision" in trace.violation.sentence
    assert first(campaign, "collision") is None


def test_a_bug_that_has_nothing_to_do_with_hashes_is_a_failure_under_weak_ones():
    trusting = ManagerProfile(collisions="trusted")
    trace = first(campaign_of("A7", trusting), "trace")
    assert "collision" not in trace.violation.sentence


def test_a_trace_under_weak_hashes_replays_and_minimises_under_them():
    collision = first(campaign_of("C1-trusted"), "collision")
    make = manager_specimen("C1-trusted").make
    small = minimise(collision, execute_in_process(make))
    assert len(small.commands) <= 5
    assert replay(small, make).violation is not None
    assert replay(with_full_hashes(small), make).violation is None


def test_a_manager_whose_hash_cannot_be_replaced_is_no_target_for_weak_hashes():
    campaign = campaign_of("D1-nano")
    with pytest.raises(TargetError) as refused:
        campaign.run(0)
    assert "has no use_hash(digest)" in str(refused.value)


def test_without_the_option_hashes_stay_as_they_are():
    campaign = replace(campaign_of("C1-trusted"), options={})
    assert first(campaign, "collision", 20) is None
    assert first(campaign, "trace", 20) is None
