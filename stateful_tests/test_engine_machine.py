"""The engines' state machine: what is right holds in each set-up, planted bugs are found."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import pytest

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_specimen import BLOCK_SIZE
from poolproof.certification.broken_engines import BROKEN_ENGINES
from poolproof.contract.engine_profile import EngineProfile
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.stateful_tests.engine_machine import EngineMachine
from poolproof.targets.load import load_target

SET_UPS = ["fcfs", "async+drafts", "offloading", "full+sliding"]


@pytest.mark.parametrize("name", SET_UPS)
def test_our_engine_holds(name, holds):
    layout = load_target("impl-engine").layout(name)
    holds(
        EngineMachine, EngineCampaign("impl-engine", layout.make, layout.profile, layout.block_size)
    )


@pytest.mark.parametrize("words", BROKEN_ENGINES)
def test_each_mistake_of_the_plainest_engine_is_found_and_minimised(words, find):
    broken = BROKEN_ENGINES[words]
    campaign = EngineCampaign(words, lambda n, _caching: broken(n), EngineProfile(), 4)
    trace = find(EngineMachine, campaign)
    assert trace is not None
    assert trace.violation.invariant in {"DATA", "OUT", "LIVE", "LEAK"}
    assert len(trace.commands) <= 20


@pytest.mark.parametrize("specimen_id", ["S26", "S31"])
def test_a_planted_bug_is_found(specimen_id, find):
    specimen = ENGINE_SPECIMENS[specimen_id]
    campaign = EngineCampaign(specimen.id, specimen.make, specimen.profile, BLOCK_SIZE)
    trace = find(EngineMachine, campaign)
    assert trace is not None
    assert trace.violation.invariant in specimen.invariants


def test_an_engine_that_cannot_be_built_is_found(find):
    def broken(num_blocks, enable_caching):
        raise RuntimeError("no memory")

    trace = find(EngineMachine, EngineCampaign("broken", broken, EngineProfile(), 4))
    assert (trace.violation.invariant, trace.commands) == ("CRASH", ())
