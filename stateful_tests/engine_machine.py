"""The state machine of an engine: one rule for each thing that can happen to it.

Hypothesis chooses the rules, `EngineWorkload` the arguments; what is not legal in the state that
was reached is left out.
"""

from __future__ import annotations

from hypothesis.stateful import initialize, rule

from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.harness.choices import Choices
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.engine_workload import EngineWorkload
from poolproof.stateful_tests.hypothesis_choices import HypothesisChoices, hypothesis_choices
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.pool_machine import offered
from poolproof.stateful_tests.session_machine import SessionMachine

__all__ = ["EngineMachine"]

_MOST_ENDINGS = 2_000
"""Commands that bring an engine to rest; one that never comes to rest is refused before."""


class EngineMachine(SessionMachine[EngineSession]):
    """Drives an engine of few blocks; failures go to the log as traces.

    When an example ends, every request is served and the engine is checked for leaks.
    """

    workload: EngineWorkload

    def __init__(self, campaign: EngineCampaign, log: MachineLog) -> None:
        super().__init__(log)
        self.campaign = campaign

    @initialize(choices=hypothesis_choices())
    def build(self, choices: HypothesisChoices) -> None:
        """Choose sizes, then build the target and a workload for it."""
        self.start(self.setup(choices), self.campaign.make, EngineSession)
        self.workload = EngineWorkload(choices, self.session.model, self.session.can)

    def setup(self, choices: Choices) -> Trace:
        """The head of this example's trace: few blocks, caching mostly on."""
        campaign = self.campaign
        return Trace(
            target=campaign.name,
            level=Level.ENGINE,
            profile=campaign.profile,
            num_blocks=campaign.num_blocks(choices),
            # The last answer and not the first: what shrinks gets caching on.
            enable_caching=choices.below(8) != 7,
            commands=(),
            options={"block_size": campaign.block_size, **campaign.options},
        )

    def execute_drawn(self, name: str) -> None:
        """Apply one of these commands, if there is a legal one now."""
        command = self.workload.draw(name)
        if command is not None:
            self.execute(command)

    @rule()
    def submit(self) -> None:
        self.execute_drawn("submit")

    @rule()
    def run_step(self) -> None:
        self.execute_drawn("run")

    @rule()
    def plan(self) -> None:
        self.execute_drawn("plan")

    @rule()
    def answer(self) -> None:
        self.execute_drawn("answer")

    @offered("cancel")
    @rule()
    def cancel(self) -> None:
        self.execute_drawn("cancel")

    @offered("arrive")
    @rule()
    def arrive(self) -> None:
        self.execute_drawn("arrive")

    @offered("reset")
    @rule()
    def reset(self) -> None:
        self.execute_drawn("reset")

    def finish(self) -> None:
        """Serve every request and look for leaks."""
        for _ in range(_MOST_ENDINGS):
            command = self.workload.drain()
            if command is None:
                break
            self.execute(command)
        if self.session.nobody_holds():
            self.fail_if(self.session.end())
