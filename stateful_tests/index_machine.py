"""The state machine of an index: a rule for each verb, arguments from the harness's grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.stateful import initialize, precondition, rule

from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.harness.index_session import IndexSession
from poolproof.harness.index_workload import IndexWorkload, small_index_plan
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.hypothesis_choices import HypothesisChoices, hypothesis_choices
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.session_machine import SessionMachine

__all__ = ["IndexMachine"]


def _offered(verb: str) -> Callable[[Any], Any]:
    return precondition(lambda machine: verb in machine.workload.verbs)


class IndexMachine(SessionMachine[IndexSession]):
    """Drives an index over 1 to 8 blocks and 1 to 4 keys; failures go to the log."""

    workload: IndexWorkload

    def __init__(self, campaign: PoolCampaign, log: MachineLog) -> None:
        super().__init__(log)
        self.campaign = campaign

    @initialize(choices=hypothesis_choices())
    def build(self, choices: HypothesisChoices) -> None:
        """Choose the size, then build the target and a workload for it."""
        plan = small_index_plan(choices, self.campaign.profile.fixed_hash_bytes)
        setup = Trace(
            target=self.campaign.name,
            level=Level.INDEX,
            profile=self.campaign.profile,
            num_blocks=plan.num_blocks,
            enable_caching=True,
            commands=(),
            options=self.campaign.options,
        )
        self.start(setup, self.campaign.make, IndexSession)
        reference, can = self.session.reference, self.session.can
        self.workload = IndexWorkload(choices, reference, can, plan)

    @rule()
    def insert(self) -> None:
        self.execute(self.workload.insert())

    @rule()
    def pop(self) -> None:
        self.execute(self.workload.pop())

    @rule()
    def get(self) -> None:
        self.execute(self.workload.get())

    @_offered("contains")
    @rule()
    def contains(self) -> None:
        self.execute(self.workload.contains())

    @_offered("clear")
    @rule()
    def clear(self) -> None:
        self.execute(self.workload.clear())

    def finish(self) -> None:
        """An index is read whole at the end."""
        self.fail_if(self.session.end())
