"""What the state machines of all levels share: a session, a record of commands, one way to fail.

The rules of a machine only choose; every command goes through the session of the harness, so that
the checks of all other drivers hold after every step here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation, ViolationError
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.index_session import IndexSession
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.replay import start_session
from poolproof.stateful_tests.machine_log import MachineLog

__all__ = ["SessionMachine"]

SessionT = TypeVar(
    "SessionT", PoolSession, QueueSession, IndexSession, ManagerSession, EngineSession
)


class SessionMachine(RuleBasedStateMachine, Generic[SessionT]):
    """A state machine without rules; subclasses start a session in their `initialize` rule.

    Raises ViolationError from the rule whose command broke something, or from `teardown`.
    """

    session: SessionT

    def __init__(self, log: MachineLog) -> None:
        super().__init__()
        self.log = log
        self.commands: list[Command] = []
        self._setup: Trace | None = None
        self._is_broken = False

    def start(self, setup: Trace, make: Callable[[int, bool], Any], kind: type[SessionT]) -> None:
        """Build the target and look at it; `setup` becomes the head of a failure's trace."""
        self._setup = setup
        self.log.begin(setup)
        session = start_session(setup, make)
        if isinstance(session, Violation):
            self.fail(session)
        assert isinstance(session, kind), f"a {setup.level} trace started {session!r}"
        self.session = session
        self.fail_if(session.first_look())

    def execute(self, command: Command) -> None:
        """Apply a command and check the state after it."""
        self.commands.append(command)
        self.log.announce(command)
        self.fail_if(self.session.step_any(command))

    def fail_if(self, violation: Violation | None) -> None:
        """End the example if something broke."""
        if violation is not None:
            self.fail(violation)

    def fail(self, violation: Violation) -> None:
        """End the example. Raises ViolationError, always."""
        assert self._setup is not None
        self._is_broken = True
        self.log.fail(replace(self._setup, commands=tuple(self.commands), violation=violation))
        raise ViolationError(violation)

    def finish(self) -> None:
        """What has to hold at the end of an example; called where nothing broke before."""

    def teardown(self) -> None:
        """The example is over, be it to its end, by a failure, or cut short by Hypothesis."""
        if not hasattr(self, "session"):
            return
        try:
            # Before the first command there is nothing to give back, and perhaps no workload yet:
            # what draws it may be what Hypothesis cut short.
            if self.commands and not self._is_broken:
                self.finish()
        finally:
            self.log.end(self.session.facts)
