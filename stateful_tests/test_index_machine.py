"""The index's state machine: the specification and ours hold, planted bugs are found."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import hypothesis
import pytest

from poolproof.bugs.index_bugs import INDEX_BUGS
from poolproof.harness.index_session import IndexSession
from poolproof.harness.index_workload import required_index_facts
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.index_machine import IndexMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings


@pytest.mark.parametrize(
    "target", ["impl-index", "reference-index", "reference-index[duplicates=last]"]
)
def test_index_holds(target, campaign_of, holds):
    holds(IndexMachine, campaign_of(target))


def test_a_part_of_the_quick_level_reaches_every_required_fact(campaign_of):
    campaign = campaign_of("reference-index")
    settings = hypothesis.settings(machine_settings("quick"), max_examples=60)
    result = run_machine(lambda log: IndexMachine(campaign, log), settings, seed=0)
    can = IndexSession(campaign.make(4, True), 4).can
    assert set(required_index_facts(campaign.profile, can)) - result.facts == set()


@pytest.mark.parametrize(("name", "shortest"), [("K1", 3), ("K2", 2), ("K3", 4), ("K9", 3)])
def test_planted_bug_is_found_and_minimised(name, shortest, find):
    found = INDEX_BUGS[name]
    trace = find(IndexMachine, PoolCampaign(name, found.make, found.profile))
    assert trace is not None
    assert trace.violation.invariant in found.invariants
    assert len(trace.commands) <= shortest + 1
