"""Canaries of the manager level fit the profile and the verbs of a target, and are caught."""

import pytest

from poolproof.bugs.catalogue import manager_canaries
from poolproof.bugs.specimen_profiles import DESIGNS
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.target import Capabilities
from poolproof.harness.manager_driver import ManagerCampaign

EVERY_VERB = frozenset(MANAGER_METHODS)
FEW_VERBS = frozenset({"admit", "append_tokens", "step", "finish"})


def canaries_of(profile, verbs=EVERY_VERB):
    return manager_canaries(profile, Capabilities("manager", verbs, frozenset()))


@pytest.mark.parametrize("profile", DESIGNS.values(), ids=DESIGNS)
def test_every_profile_has_canaries_and_each_is_caught(profile):
    found = canaries_of(profile)
    assert 2 <= len(found) <= 6
    for canary in found:
        campaign = ManagerCampaign(canary.id, canary.make_under(profile), profile, 4)
        traces = (campaign.run(number).trace for number in range(100))
        assert any(trace is not None for trace in traces), canary.id


def test_canaries_need_no_verbs_that_the_target_lacks():
    assert "F2" in {canary.id for canary in canaries_of(ManagerProfile())}
    assert "F2" not in {canary.id for canary in canaries_of(ManagerProfile(), FEW_VERBS)}


def test_canaries_are_built_with_the_block_size_that_is_asked_for():
    canary = canaries_of(ManagerProfile())[0]
    assert canary.make_under(ManagerProfile(), 2)(5, True).block_size == 2
