"""The plain driver of the index level: seeded runs of the index grammar against an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.choices import SeededChoices
from poolproof.harness.extent import Extent
from poolproof.harness.index_session import IndexSession
from poolproof.harness.index_workload import (
    IndexPlan,
    IndexWorkload,
    production_index_plan,
    small_index_plan,
)
from poolproof.harness.production import ProductionSizes
from poolproof.harness.random_driver import RunResult, carry_out
from poolproof.harness.single_invariant import require_stated, verdict
from poolproof.harness.smaller_index_traces import keys_of_index
from poolproof.harness.target_call import constructing, crash

__all__ = ["IndexCampaign"]


@dataclass(frozen=True, slots=True)
class IndexCampaign:
    """An index to run against; `make(num_blocks, enable_caching)` ignores the latter.

    With `production` its runs have those sizes instead of the usual small ones. With `only`, the
    name of an invariant, nothing else is checked.
    """

    name: str
    make: Callable[[int, bool], Any]
    profile: Profile
    seed: int = 0
    only: str | None = None
    production: ProductionSizes | None = None

    def __post_init__(self) -> None:
        require_stated(self.only, Level.INDEX)

    def plan(self, number: int) -> IndexPlan:
        """The size and length of run number `number`."""
        hash_bytes = self.profile.fixed_hash_bytes
        if self.production is not None:
            return production_index_plan(self.production, self.seed, number, hash_bytes)
        return small_index_plan(SeededChoices(f"index plan {self.seed}/{number}"), hash_bytes)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails."""
        return Trace(
            target=self.name,
            level=Level.INDEX,
            profile=self.profile,
            num_blocks=self.plan(number).num_blocks,
            enable_caching=True,
            commands=(),
            options={"seed": f"{self.seed}/{number}"},
        )

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Carry out run number `number`; `announce` gets each command before it is applied."""
        setup, plan = self.setup(number), self.plan(number)
        try:
            session = IndexSession(self.make(plan.num_blocks, True), plan.num_blocks, self.profile)
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("index", plan.num_blocks), error)
            is_meant = self.only in (None, "CRASH")
            return RunResult(0, set(), replace(setup, violation=unbuilt) if is_meant else None)
        commands: list[Command] = []

        def drive() -> Violation | None:
            return (
                session.first_look()
                or self._drive(setup, plan, session, commands, announce)
                or session.end()
            )

        violation = verdict(self.only, session, drive)
        trace = None
        if violation is not None:
            trace = replace(setup, commands=tuple(commands), violation=violation)
        extent = _extent(setup, commands, session.most_carriers)
        return RunResult(len(commands), session.facts, trace, extent=extent)

    def _drive(
        self,
        setup: Trace,
        plan: IndexPlan,
        session: IndexSession,
        commands: list[Command],
        announce: Callable[[Command], None] | None,
    ) -> Violation | None:
        choices = SeededChoices(f"index {setup.options['seed']}")
        workload = IndexWorkload(choices, session.reference, session.can, plan)
        workload.bias()
        drawn = (workload.next() for _ in range(plan.num_steps))
        return carry_out(session, drawn, commands, announce)


def _extent(setup: Trace, commands: Sequence[Command], most_carriers: int) -> Extent:
    """How far a run went."""
    extent = Extent({"blocks": (setup.num_blocks, setup.num_blocks)})
    keys = keys_of_index(commands)
    hashes = [key[0] if isinstance(key, tuple) else key for key in keys]
    extent.note("commands in a run", len(commands))
    extent.note("keys", len(keys))
    extent.note("bytes of a hash", *(len(found) for found in hashes if isinstance(found, bytes)))
    extent.note("blocks under one key", most_carriers)
    return extent
