"""The plain driver of the queue level: seeded runs of the queue grammar against a free queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.choices import SeededChoices
from poolproof.harness.extent import Extent
from poolproof.harness.production import ProductionSizes
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.queue_workload import ProductionQueueWorkload, QueueWorkload
from poolproof.harness.random_driver import RunResult, carry_out
from poolproof.harness.single_invariant import SingleQueueSession, require_stated, verdict
from poolproof.harness.target_call import constructing, crash

__all__ = ["QueueCampaign"]


@dataclass(frozen=True, slots=True)
class QueueCampaign:
    """A free queue to run against; `make(num_blocks, enable_caching)` ignores the latter.

    With `production` its runs have those sizes instead of the usual small ones. With `only`, the
    name of an invariant, nothing else is checked, see `single_invariant.py`.
    """

    name: str
    make: Callable[[int, bool], Any]
    seed: int = 0
    workload: type[QueueWorkload] = QueueWorkload
    only: str | None = None
    production: ProductionSizes | None = None

    def __post_init__(self) -> None:
        require_stated(self.only, Level.QUEUE)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` makes if it fails; 1 to 8 blocks."""
        seed = f"{self.seed}/{number}"
        num_blocks = 1 + SeededChoices(f"queue size {seed}").below(8)
        if self.production is not None:
            run = self.production.run(self.seed, number)
            seed, num_blocks = run.seed, run.num_blocks
        return Trace(
            target=self.name,
            level=Level.QUEUE,
            profile=Profile(),
            num_blocks=num_blocks,
            enable_caching=True,
            commands=(),
            options={"seed": seed},
        )

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Carry out run `number`: 10 to 70 commands; `announce` gets each before it is applied."""
        setup, only = self.setup(number), self.only
        session_class: Callable[..., QueueSession] = QueueSession
        if only is not None:
            session_class = partial(SingleQueueSession, only=only)
        try:
            session = session_class(self.make(setup.num_blocks, True), setup.num_blocks)
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("queue", setup.num_blocks), error)
            is_meant = only in (None, "CRASH")
            return RunResult(0, set(), replace(setup, violation=unbuilt) if is_meant else None)
        commands: list[Command] = []

        def drive() -> Violation | None:
            return session.first_look() or self._drive(setup, number, session, commands, announce)

        violation = verdict(only, session, drive)
        trace = None
        if violation is not None:
            trace = replace(setup, commands=tuple(commands), violation=violation)
        extent = Extent.of_run(setup, commands)
        return RunResult(len(commands), session.facts, trace, extent=extent)

    def _drive(
        self,
        setup: Trace,
        number: int,
        session: QueueSession,
        commands: list[Command],
        announce: Callable[[Command], None] | None,
    ) -> Violation | None:
        choices = SeededChoices(f"queue {setup.options['seed']}")
        if self.production is None:
            workload = self.workload(choices, session.reference, session.can)
            num_steps = 10 + choices.below(61)
        else:
            workload = ProductionQueueWorkload(choices, session.reference, session.can)
            num_steps = self.production.run(self.seed, number).num_steps
        workload.bias()
        drawn = islice(iter(workload.next, None), num_steps)
        return carry_out(session, drawn, commands, announce) or session.end()
