"""The managers' state machine: what is right holds in each layout, planted bugs are found."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

from itertools import count

import hypothesis
import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.stateful_tests import manager_machine
from poolproof.stateful_tests.manager_machine import ManagerMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings
from poolproof.targets.load import load_target

LAYOUTS = ["full", "sliding", "full+sliding", "full+chunked", "full+state"]


def campaign_of_layout(text, name):
    layout = load_target(text).layout(name)
    return ManagerCampaign(text, layout.make, layout.profile, layout.block_size)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_specification_holds(layout, holds):
    holds(ManagerMachine, campaign_of_layout("reference-manager", layout))


def test_swapping_holds_also_where_sequences_are_left_at_the_end(monkeypatch):
    monkeypatch.setattr(manager_machine, "MOST_ENDINGS", 1)
    target = load_target("reference-manager[groups=full,host_blocks=4]")
    layout = target.layouts[0]

    def without_abort(num_blocks, enable_caching):
        manager = layout.make(num_blocks, enable_caching)
        manager.abort = None
        return manager

    longer = hypothesis.settings(machine_settings("quick"), max_examples=100)
    campaign = ManagerCampaign("swaps", without_abort, layout.profile, 4)
    result = run_machine(lambda log: ManagerMachine(campaign, log), longer, seed=0)
    assert result.trace is None
    # The oldest Hypothesis draws other examples, in which nothing comes back.
    assert "a sequence was swapped out" in result.facts


def test_a_constructor_that_raises_every_second_time_is_found():
    """Hypothesis then runs an example again and cuts it short before it has a workload."""
    built = count(1)

    def make(num_blocks, _caching):
        if next(built) % 2 == 0:
            raise RuntimeError("no more")
        return CleanManager(num_blocks, 4)

    campaign = ManagerCampaign("sometimes", make, ManagerProfile(), 4)
    result = run_machine(
        lambda log: ManagerMachine(campaign, log), machine_settings("quick"), seed=0
    )
    assert "no more" in result.trace.violation.sentence


@pytest.mark.parametrize("specimen_id", ["D13", "A7"])
def test_planted_bug_is_found_and_minimised(specimen_id, find):
    specimen = MANAGER_SPECIMENS[specimen_id]
    campaign = ManagerCampaign(specimen.id, specimen.make, specimen.profile, specimen.block_size)
    trace = find(ManagerMachine, campaign)
    assert trace is not None
    assert trace.violation.invariant in specimen.invariants
    assert len(trace.commands) <= 8


def test_a_manager_that_cannot_be_built_is_found(find):
    def broken(num_blocks, enable_caching):
        raise RuntimeError("no memory")

    trace = find(ManagerMachine, ManagerCampaign("broken", broken, ManagerProfile(), 4))
    assert (trace.violation.invariant, trace.commands) == ("CRASH", ())
