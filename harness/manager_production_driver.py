"""Drives a manager at the sizes of servers: one run for each script of `manager_production.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.careful_session import CAREFUL
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_production import (
    QUICK_SIZES,
    SCRIPTS,
    ManagerScript,
    ManagerSizes,
    Plan,
)
from poolproof.harness.manager_session import ManagerSession
from poolproof.reference.manager_legality import undefined_for_manager

__all__ = ["ManagerProductionCampaign"]

SCRIPT = "script"
"""The option of a trace that names the script that its run played."""


@dataclass(frozen=True, slots=True)
class ManagerProductionCampaign(ManagerCampaign):
    """A manager to run against, whose runs are scripts, one after the other, at these sizes."""

    sizes: ManagerSizes = QUICK_SIZES

    def plans(self) -> Mapping[str, Plan]:
        """What the runs play, by name and in turn."""
        return {name: SCRIPTS[name] for name in self.sizes.scripts_for(self.profile)}

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` makes if it fails.

        The scripts come in turn; the first round has the sizes as they are, later ones others.
        """
        plans = self.plans()
        name = list(plans)[number % len(plans)]
        plan = plans[name]
        null = self.profile.null_block
        usable = plan.num_blocks(self.sizes) * len(self.profile.groups)
        setup = ManagerCampaign.setup(self, number)
        options = {key: value for key, value in setup.options.items() if key != CAREFUL}
        return replace(
            setup,
            num_blocks=max(usable + (null is not None), 0 if null is None else null + 1),
            enable_caching=plan.enable_caching,
            options={**options, SCRIPT: name},
        )

    def _drive(
        self,
        setup: Trace,
        session: ManagerSession,
        commands: list[Command],
        announce: Callable[[Command], None] | None,
    ) -> Violation | None:
        model, can = session.model, session.can
        run = ManagerScript(str(setup.options["seed"]), model, can, self.sizes, session.facts)
        for command in self.plans()[str(setup.options[SCRIPT])].script(run):
            if command.verb not in can.verbs or undefined_for_manager(model, command) is not None:
                continue
            commands.append(command)
            if announce is not None:
                announce(command)
            violation = session.step(command)
            if violation is not None:
                return violation
        return session.end() if session.nobody_holds() else None
