"""Canaries of the engine level fit the profile and the verbs of a target, and are soon caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.bugs.engine_catalogue import engine_canaries
from poolproof.certification.levels.certified_level import Veiled
from poolproof.certification.ruler import MOST_RUNS
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import ENGINE_METHODS
from poolproof.contract.level import Level
from poolproof.contract.target import Capabilities
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.targets.impl_engine import impl_engine_layouts
from poolproof.targets.sglang_engine_setups import SGLANG_SETUPS
from poolproof.targets.vllm_engine_setups import CONNECTOR_SETUPS, SETUPS

PLAIN = EngineProfile(null_block=0)
PROFILES = {
    **{f"impl-engine, {layout.name}": layout.profile for layout in impl_engine_layouts()},
    **{f"vllm, {s.name}": s.profile() for s in (*SETUPS, *CONNECTOR_SETUPS)},
    **{f"sglang, {s.name}": s.profile() for s in SGLANG_SETUPS},
    "plain": PLAIN,
    "one at a time": replace(PLAIN, max_running=1),
    "two tokens a step": replace(PLAIN, max_batch_tokens=2),
    "large": replace(PLAIN, max_batch_tokens=512, max_running=64),
    "short requests": replace(PLAIN, max_request_tokens=20),
    "far ahead": replace(PLAIN, steps_in_flight=5, stale_outputs="may-drop"),
    "spare slots": replace(PLAIN, spare_tokens=3, draft_tokens=5, policy="priority"),
}
EVERY_VERB = frozenset(ENGINE_METHODS)
FEW_VERBS = frozenset({"submit", "plan", "answer", "run"})


def canaries_of(profile, verbs=EVERY_VERB):
    return engine_canaries(profile, Capabilities(Level.ENGINE, verbs, frozenset()))


def runs_until_caught(canary, profile, block_size, hidden):
    make = Veiled.maker(canary.make_under(profile, block_size), frozenset(hidden))
    campaign = EngineCampaign(canary.id, make, profile, block_size)
    failing = (n for n in range(MOST_RUNS) if campaign.run(n).trace is not None)
    return next(failing, None)


@pytest.mark.some(5)
@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_every_profile_has_canaries_and_each_is_soon_caught(profile):
    found = canaries_of(profile)
    assert 2 <= len(found) <= 6
    for canary in found:
        # As by a target that shows all, and by one that shows nothing.
        for hidden in ((), ("num_free", "unfinished", "reset")):
            number = runs_until_caught(canary, profile, 4, hidden)
            assert number is not None, canary.id
            assert number < MOST_RUNS // 10, canary.id


@pytest.mark.parametrize("block_size", [1, 2, 16])
def test_canaries_are_caught_at_every_size_of_blocks(block_size):
    for profile in (PLAIN, PROFILES["impl-engine, async+drafts"]):
        for canary in canaries_of(profile):
            number = runs_until_caught(canary, profile, block_size, ())
            assert number is not None, canary.id


def test_canaries_need_no_verbs_that_the_target_lacks():
    assert "S120" in {canary.id for canary in canaries_of(PLAIN)}
    assert "S120" not in {canary.id for canary in canaries_of(PLAIN, FEW_VERBS)}


def test_nothing_that_needs_a_preemption_is_planted_where_one_request_runs():
    found = {canary.id for canary in canaries_of(PROFILES["one at a time"])}
    assert not found & {"S8", "S12"}
