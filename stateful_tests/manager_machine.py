"""The state machine of a manager: one rule for each verb, arguments from the harness's grammar.

Hypothesis chooses the rules, `ManagerWorkload` the arguments; what is not legal in the state that
was reached is left out.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis.stateful import initialize, rule

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.harness.choices import Choices
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.stateful_tests.hypothesis_choices import HypothesisChoices, hypothesis_choices
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.pool_machine import offered
from poolproof.stateful_tests.session_machine import SessionMachine

__all__ = ["ManagerMachine"]

MOST_ENDINGS = 200
"""Commands that may end what an example left; a refused swap could go on for ever."""


class ManagerMachine(SessionMachine[ManagerSession]):
    """Drives a manager of 3 to 12 usable blocks; failures go to the log as traces.

    When an example ends, every sequence is ended and the manager is checked for leaks.
    """

    workload: ManagerWorkload

    def __init__(self, campaign: ManagerCampaign, log: MachineLog) -> None:
        super().__init__(log)
        self.campaign = campaign

    @initialize(choices=hypothesis_choices())
    def build(self, choices: HypothesisChoices) -> None:
        """Choose sizes, then build the target and a workload for it."""
        self.start(self.setup(choices), self.campaign.make, ManagerSession)
        session = self.session
        self.workload = ManagerWorkload(choices, session.model, session.can, 2 + choices.below(2))

    def setup(self, choices: Choices) -> Trace:
        """The head of this example's trace: 3 to 12 usable blocks, caching mostly on."""
        campaign = self.campaign
        null = campaign.profile.null_block
        return Trace(
            target=campaign.name,
            level=Level.MANAGER,
            profile=campaign.profile,
            num_blocks=3 + choices.below(10) + (0 if null is None else null + 1),
            # The last answer and not the first: what shrinks gets caching on.
            enable_caching=choices.below(8) != 7,
            commands=(),
            options={"block_size": campaign.block_size, **campaign.options},
        )

    def execute_legal(self, choose: Callable[[], Command | None]) -> None:
        """Apply what a method of the workload chose, if that is legal now."""
        command = choose()
        if command is not None and undefined_for_manager(self.session.model, command) is None:
            self.execute(command)

    @rule()
    def admit(self) -> None:
        self.execute_legal(self.workload.admit)

    @rule()
    def append_tokens(self) -> None:
        self.execute_legal(self.workload.append_tokens)

    @rule()
    def step(self) -> None:
        self.execute_legal(self.workload.step)

    @offered("schedule")
    @rule()
    def schedule(self) -> None:
        self.execute_legal(self.workload.schedule)

    @offered("draft")
    @rule()
    def draft(self) -> None:
        self.execute_legal(self.workload.draft)

    @offered("accept")
    @rule()
    def accept(self) -> None:
        self.execute_legal(self.workload.accept)

    @offered("fork")
    @rule()
    def fork(self) -> None:
        self.execute_legal(self.workload.fork)

    @offered("truncate")
    @rule()
    def truncate(self) -> None:
        self.execute_legal(self.workload.truncate)

    @offered("preempt")
    @rule()
    def preempt(self) -> None:
        self.execute_legal(self.workload.preempt)

    @offered("resume")
    @rule()
    def resume(self) -> None:
        self.execute_legal(self.workload.resume)

    @offered("swap_out")
    @rule()
    def swap_out(self) -> None:
        self.execute_legal(self.workload.swap_out)

    @offered("swap_in")
    @rule()
    def swap_in(self) -> None:
        self.execute_legal(self.workload.swap_in)

    @rule()
    def finish_sequence(self) -> None:
        self.execute_legal(self.workload.finish)

    @offered("abort")
    @rule()
    def abort(self) -> None:
        self.execute_legal(self.workload.abort)

    @offered("lookup_prefix")
    @rule()
    def lookup_prefix(self) -> None:
        self.execute_legal(self.workload.lookup_prefix)

    @offered("load")
    @rule()
    def load(self) -> None:
        self.execute_legal(self.workload.load)

    @offered("loaded")
    @rule()
    def loaded(self) -> None:
        self.execute_legal(self.workload.loaded)

    @offered("reset")
    @rule()
    def reset(self) -> None:
        self.execute_legal(self.workload.reset)

    def finish(self) -> None:
        """End every sequence and look for leaks."""
        for _ in range(MOST_ENDINGS):
            command = self.workload.drain()
            if command is None:
                break
            self.execute(command)
        if self.session.nobody_holds():
            self.fail_if(self.session.end())
