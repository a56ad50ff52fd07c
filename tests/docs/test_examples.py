"""The example targets: the correct ones hold, the wrong ones are caught for what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import capabilities_of
from poolproof.contract.trace import Trace
from poolproof.harness.facts import required_facts
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RUNS = 200


def example(name: str) -> Target:
    return load_target(f"{EXAMPLES}/{name}")


def drive(campaign: Any) -> tuple[Trace | None, set[str]]:
    """The first failing trace of a campaign, and what happened in it."""
    happened: set[str] = set()
    for number in range(RUNS):
        run = campaign.run(number)
        happened |= run.facts
        if run.trace is not None:
            return run.trace, happened
    return None, happened


@pytest.mark.parametrize("name", ["simple_pool.py:Pool", "merging_pool.py:Pool"])
def test_a_correct_pool_holds_in_every_situation(name: str) -> None:
    target = example(name)
    trace, happened = drive(PoolCampaign(name, target.make, target.profile))
    assert trace is None, trace.violation
    required = required_facts(target.profile, capabilities_of(target.make(4, True)))
    assert set(required) <= happened


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["simple_manager.py:Manager", "hybrid_manager.py:Manager"])
def test_a_manager_holds_in_every_situation(name: str) -> None:
    target = example(name)
    assert isinstance(target.profile, ManagerProfile)
    trace, happened = drive(ManagerCampaign(name, target.make, target.profile, target.block_size))
    assert trace is None, trace.violation
    can = manager_capabilities_of(target.make(4, True))
    assert set(required_manager_facts(target.profile, can)) <= happened


def test_the_free_queue_holds() -> None:
    target = example("free_queue.py:Queue")
    trace, _ = drive(QueueCampaign("queue", target.make))
    assert trace is None, trace.violation


def test_the_stale_index_is_caught_as_a_stale_index() -> None:
    target = example("stale_index.py:Pool")
    trace, _ = drive(PoolCampaign("stale", target.make, target.profile))
    assert trace is not None
    assert trace.violation is not None
    assert trace.violation.invariant == "IDX"


@pytest.mark.vllm
def test_the_override_with_two_loops_is_caught() -> None:
    target = example("vllm_two_loops.py:TwoLoops")
    trace, _ = drive(PoolCampaign("two loops", target.make, target.profile))
    assert trace is not None
    assert trace.violation is not None
    assert trace.violation.invariant in {"I1", "OWN"}
