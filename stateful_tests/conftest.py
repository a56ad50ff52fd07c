"""pytest's side of the state machines: Hypothesis profiles, campaigns, readable failures.

The profile is chosen by POOLPROOF_HYPOTHESIS_PROFILE or `--hypothesis-profile`: `ci` (the
default), `nightly` or `deep`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis.stateful import RuleBasedStateMachine

from poolproof.contract.depth import Depth
from poolproof.contract.trace import Trace
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.run_machine import MachineResult, run_machine
from poolproof.stateful_tests.settings import (
    DEFAULT_PROFILE,
    machine_settings,
    register_profiles,
)
from poolproof.targets.load import load_target

MakeMachine = Callable[[Any, MachineLog], RuleBasedStateMachine]

register_profiles()
hypothesis.settings.load_profile(os.environ.get("POOLPROOF_HYPOTHESIS_PROFILE", DEFAULT_PROFILE))


@pytest.fixture
def campaign_of() -> Callable[..., PoolCampaign]:
    """A campaign for a target string; `chained=True` for the grammar of token chains."""

    def campaign_of(text: str, *, chained: bool = False) -> PoolCampaign:
        target = load_target(text)
        make = target.make_chained if chained else target.make
        assert make is not None, f"{text} takes no token chains"
        return PoolCampaign(
            text,
            make,
            target.profile,
            chain_block_size=target.block_size if chained else 0,
            hash_block_size=target.hash_block_size if chained else 0,
        )

    return campaign_of


@pytest.fixture(params=["some", pytest.param("all", marks=pytest.mark.deep)])
def holds(
    request: pytest.FixtureRequest,
) -> Callable[[MakeMachine, PoolCampaign], MachineResult]:
    """Runs a machine under the current profile; fails, with the minimal trace, if it broke.

    With a third of the profile's examples, and in deep runs with all of them.
    """

    def holds(machine: MakeMachine, campaign: PoolCampaign) -> MachineResult:
        settings = hypothesis.settings()  # those of the current profile
        if request.param == "some":
            settings = hypothesis.settings(settings, max_examples=settings.max_examples // 3)
        result = run_machine(lambda log: machine(campaign, log), settings)
        if result.trace is not None:
            trace = minimise(result.trace, execute_in_process(campaign.make))
            pytest.fail("\n".join([str(trace.violation), *trace.lines()]), pytrace=False)
        assert not result.nondeterministic
        return result

    return holds


@pytest.fixture
def find() -> Callable[[MakeMachine, PoolCampaign], Trace | None]:
    """The minimal trace that a machine finds at depth `quick`, if it finds one.

    What a seed draws differs between releases of Hypothesis, so one of four has to do.
    """

    def find(machine: MakeMachine, campaign: PoolCampaign) -> Trace | None:
        settings = machine_settings(Depth.QUICK)
        for seed in range(4):
            trace = run_machine(lambda log: machine(campaign, log), settings, seed=seed).trace
            if trace is not None:
                return minimise(trace, execute_in_process(campaign.make))
        return None

    return find
