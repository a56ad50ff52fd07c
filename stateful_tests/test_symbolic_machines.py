"""The machines under CrossHair: Hypothesis draws symbolic choices, at tiny depth.

A step costs some hundred times as much as a drawn one, so this is a second opinion on short runs
and no replacement for the random search. Not the queue's machine: CrossHair and linked lists do
not go together.
"""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import hypothesis
import pytest

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

pytest.importorskip(
    "hypothesis_crosshair_provider", reason="needs hypothesis-crosshair (make proof)"
)

pytestmark = pytest.mark.deep


def run_symbolically(campaign, examples):
    settings = hypothesis.settings(
        machine_settings("quick"),
        backend="crosshair",
        max_examples=examples,
        stateful_step_count=4,
    )
    return run_machine(lambda log: PoolMachine(campaign, log), settings)


@pytest.mark.parametrize("target", ["impl", "reference"])
def test_short_runs_hold_symbolically(target, campaign_of):
    result = run_symbolically(campaign_of(target), 10)
    assert result.trace is None
    assert result.num_steps > 10


def test_a_planted_bug_is_found_symbolically():
    bug = SPECIMENS["A6"]
    result = run_symbolically(PoolCampaign(bug.id, bug.make, bug.profile), 30)
    assert result.trace is not None
    assert result.trace.violation.invariant in bug.invariants
