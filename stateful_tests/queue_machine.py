"""The state machine of a free queue: a rule for each verb, arguments from the harness's grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.stateful import initialize, precondition, rule

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.queue_workload import QueueWorkload
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.hypothesis_choices import HypothesisChoices, hypothesis_choices
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.session_machine import SessionMachine

__all__ = ["QueueMachine"]


def _offered(verb: str) -> Callable[[Any], Any]:
    return precondition(lambda machine: verb in machine.workload.verbs)


_queued = precondition(lambda machine: bool(machine.session.reference.order))
_outside = precondition(
    lambda machine: len(machine.session.reference.order) < machine.session.reference.num_blocks
)


class QueueMachine(SessionMachine[QueueSession]):
    """Drives a queue over 1 to 8 blocks; only legal commands, failures go to the log."""

    workload: QueueWorkload

    def __init__(self, campaign: PoolCampaign, log: MachineLog) -> None:
        super().__init__(log)
        self.campaign = campaign

    @initialize(choices=hypothesis_choices())
    def build(self, choices: HypothesisChoices) -> None:
        """Choose the size, then build the target and a workload for it."""
        setup = Trace(
            target=self.campaign.name,
            level=Level.QUEUE,
            profile=self.campaign.profile,
            num_blocks=1 + choices.below(8),
            enable_caching=True,
            commands=(),
            options=self.campaign.options,
        )
        self.start(setup, self.campaign.make, QueueSession)
        self.workload = QueueWorkload(choices, self.session.reference, self.session.can)

    def execute_legal(self, choose: Callable[[], Command | None]) -> None:
        """Apply what a method of the workload chose; nothing where it found nothing."""
        command = choose()
        if command is not None:
            self.execute(command)

    @_offered("popleft")
    @_queued
    @rule()
    def popleft(self) -> None:
        self.execute_legal(self.workload.popleft)

    @_offered("popleft_n")
    @rule()
    def popleft_n(self) -> None:
        self.execute_legal(self.workload.popleft_n)

    @_offered("remove")
    @_queued
    @rule()
    def remove(self) -> None:
        self.execute_legal(self.workload.remove)

    @_offered("append")
    @_outside
    @rule()
    def append(self) -> None:
        self.execute_legal(self.workload.append)

    @_offered("append_n")
    @rule()
    def append_n(self) -> None:
        self.execute_legal(self.workload.append_n)

    @_offered("prepend_n")
    @rule()
    def prepend_n(self) -> None:
        self.execute_legal(self.workload.prepend_n)
