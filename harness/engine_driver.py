"""The plain driver of the engine level: seeded runs of its grammar against an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.choices import Choices, SeededChoices
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.engine_workload import EngineWorkload
from poolproof.harness.extent import Extent
from poolproof.harness.garbage import collected_afterwards
from poolproof.harness.random_driver import RunResult, carry_out
from poolproof.harness.single_invariant import OneInvariant, require_stated, verdict
from poolproof.harness.target_call import constructing, crash

__all__ = ["EngineCampaign"]

TURN_EVERY = 24
"""After so many commands a run turns to something else (`EngineWorkload.bias`)."""

_LONG_EVERY = 32
"""One run in so many is long."""


@dataclass(frozen=True, slots=True)
class EngineCampaign:
    """An engine to run against; `make(num_blocks, enable_caching)` builds instances.

    With `only`, the name of an invariant, nothing else is checked, see `single_invariant.py`.
    """

    name: str
    make: Callable[[int, bool], Any]
    profile: EngineProfile
    block_size: int
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    only: str | None = None

    def __post_init__(self) -> None:
        require_stated(self.only, Level.ENGINE)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails."""
        seed = f"{self.seed}/{number}"
        choices = SeededChoices(f"engine size {seed}")
        return Trace(
            target=self.name,
            level=Level.ENGINE,
            profile=self.profile,
            num_blocks=self.num_blocks(choices),
            enable_caching=choices.below(8) != 0,
            commands=(),
            options={"seed": seed, "block_size": self.block_size, **self.options},
        )

    def num_blocks(self, choices: Choices) -> int:
        """2 to 8 blocks for each cache group of an instance, one time in three up to 16.

        What preempts, evicts and waits is few blocks; what is preempted between two of its chunks
        has a prompt of several steps, beside somebody else.
        """
        ahead = self.profile.draft_tokens + self.profile.spare_tokens
        least = 2 + -(-ahead // self.block_size)
        num_blocks = least + choices.below(7) + (choices.below(9) if choices.below(3) == 0 else 0)
        num_blocks *= len(self.profile.groups)
        return self.profile.num_blocks_with(num_blocks + self.profile.num_state_blocks)

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Carry out run number `number`; `announce` gets each command before it is applied."""
        setup = self.setup(number)
        with collected_afterwards():
            return self._run(setup, announce)

    def _run(self, setup: Trace, announce: Callable[[Command], None] | None) -> RunResult:
        try:
            session = EngineSession(
                self.make(setup.num_blocks, setup.enable_caching),
                self.profile,
                setup.num_blocks,
                self.block_size,
                invariants=None if self.only is None else OneInvariant(self.only),
            )
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("engine", setup.num_blocks), error)
            is_meant = self.only in (None, "CRASH")
            return RunResult(0, set(), replace(setup, violation=unbuilt) if is_meant else None)
        commands: list[Command] = []

        def drive() -> Violation | None:
            return session.first_look() or self._drive(setup, session, commands, announce)

        violation = verdict(self.only, session, drive)
        extent = Extent.of_run(setup, commands)
        trace = None
        if violation is not None:
            trace = replace(setup, commands=tuple(commands), violation=violation)
        return RunResult(session.num_commands, session.facts, trace, extent=extent)

    def _drive(
        self,
        setup: Trace,
        session: EngineSession,
        commands: list[Command],
        announce: Callable[[Command], None] | None,
    ) -> Violation | None:
        """A run ends with the engine at rest: every request ended, nothing in flight."""
        violation = carry_out(session, self._commands(setup, session), commands, announce)
        if violation is not None or not session.nobody_holds():
            return violation
        return session.end()

    def _commands(self, setup: Trace, session: EngineSession) -> Iterator[Command]:
        """What the run gives, each drawn when the one before it is carried out."""
        choices = SeededChoices(str(setup.options["seed"]))
        workload = EngineWorkload(choices, session.model, session.can)
        is_long = choices.below(_LONG_EVERY) == 0
        num_steps = 600 + choices.below(600) if is_long else 30 + choices.below(120)
        for place in range(num_steps + 100_000):  # pragma: no branch - it drains long before
            if place % TURN_EVERY == 0:
                workload.bias()
            command = workload.next() if place < num_steps else workload.drain()
            if command is None:
                return
            yield command
