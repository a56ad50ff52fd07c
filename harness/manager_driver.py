"""The plain driver of the manager level: seeded runs of its grammar against a manager.

At the sizes of servers it is one run for each script of `manager_production.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import lcm
from typing import Any

from poolproof.contract.commands import Command, Reset
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile, slots_ahead
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.careful_session import CAREFUL, open_manager_session
from poolproof.harness.choices import SeededChoices
from poolproof.harness.extent import Extent
from poolproof.harness.garbage import collected_afterwards
from poolproof.harness.manager_production import (
    QUICK_SIZES,
    SCRIPTS,
    ManagerScript,
    ManagerSizes,
    Plan,
)
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import MOST_SEQUENCES, ManagerWorkload
from poolproof.harness.random_driver import RunResult, carry_out
from poolproof.harness.replay import replay
from poolproof.harness.single_invariant import SingleManagerSession, require_stated, verdict
from poolproof.harness.target_call import constructing, crash
from poolproof.harness.weak_hashes import WEAK_HASHES, collided, with_full_hashes
from poolproof.reference.content_names import ContentNames
from poolproof.reference.manager_legality import as_told, undefined_for_manager

__all__ = ["ManagerCampaign", "ManagerProductionCampaign"]


MOST_NAMES = 100_000
"""Names of contents that are kept from run to run; two or three symbols make the same prefixes."""

CAREFUL_EVERY = 16
"""One run in so many has a second instance beside it, the second one the first of them."""

_USUAL_MOST = 12
"""Blocks of the largest pool of a usual run, the null block left out."""

TURN_EVERY = 16
"""After so many commands a run turns to something else (`ManagerWorkload.bias`)."""


@dataclass(frozen=True, slots=True)
class ManagerCampaign:
    """A manager to run against; `make(num_blocks, enable_caching)` builds instances.

    With the option `weak_hashes` (bits) its hashes are made to collide, see `weak_hashes.py`. With
    `only`, the name of an invariant, nothing else is checked, see `single_invariant.py`.
    """

    name: str
    make: Callable[[int, bool], Any]
    profile: ManagerProfile
    block_size: int
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    workload: type[ManagerWorkload] = ManagerWorkload
    only: str | None = None
    names: ContentNames = field(default_factory=ContentNames, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_stated(self.only, Level.MANAGER)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails.

        It has 3 to 12 blocks, and more where groups or hits take more.
        """
        seed = f"{self.seed}/{number}"
        choices = SeededChoices(f"manager size {seed}")
        careful = {CAREFUL: True} if number % CAREFUL_EVERY == 1 else {}
        null = self.profile.null_block
        num_blocks = (3 + choices.below(10)) * self._most_blocks() // _USUAL_MOST
        num_blocks += null is not None
        return Trace(
            target=self.name,
            level=Level.MANAGER,
            profile=self.profile,
            num_blocks=max(num_blocks, 0 if null is None else null + 1),
            enable_caching=choices.below(8) != 0,
            commands=(),
            options={"seed": seed, "block_size": self.block_size, **careful, **self.options},
        )

    def _most_blocks(self) -> int:
        """Enough blocks for two sequences that share the shortest hit, and six for each group.

        Blocks for states behind drafts come on top, for as many sequences as there are at a time.
        """
        profile = self.profile
        sizes = [group.block_size or self.block_size for group in profile.groups]
        hit = lcm(*sizes) + profile.proof_blocks * max(sizes)
        tokens = hit + (profile.full_hit == "recompute-token") + slots_ahead(profile)
        wanted = 2 * sum(-(-tokens // size) for size in sizes)
        return max(_USUAL_MOST, 6 * len(sizes), wanted) + MOST_SEQUENCES * self._behind_drafts()

    def _behind_drafts(self) -> int:
        """Blocks that each sequence has for states behind drafts."""
        profile = self.profile
        return profile.state_blocks * sum(group.is_state for group in profile.groups)

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Carry out run number `number`; `announce` gets each command before it is applied."""
        return self.run_from(self.setup(number), announce)

    def run_from(
        self, setup: Trace, announce: Callable[[Command], None] | None = None
    ) -> RunResult:
        """Carry out the run of a header from `setup`, perhaps with other sizes."""
        with collected_afterwards():
            return self._run(setup, announce)

    def _run(
        self,
        setup: Trace,
        announce: Callable[[Command], None] | None,
        *,
        follows_seldom: bool = False,
    ) -> RunResult:
        if len(self.names) > MOST_NAMES:
            self.names.clear()
        only = self.only
        session_class: Callable[..., ManagerSession] = ManagerSession
        if only is not None:
            session_class = partial(SingleManagerSession, only=only)
        try:
            session = open_manager_session(
                self.make,
                self.profile,
                setup.num_blocks,
                self.block_size,
                enable_caching=setup.enable_caching,
                options=setup.options,
                session_class=session_class,
                follows_seldom=follows_seldom,
                names=self.names,
            )
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            unbuilt = crash(constructing("manager", setup.num_blocks), error)
            is_meant = only in (None, "CRASH")
            return RunResult(0, set(), replace(setup, violation=unbuilt) if is_meant else None)
        commands: list[Command] = []

        def drive() -> Violation | None:
            return session.first_look() or self._drive(setup, session, commands, announce)

        violation = verdict(only, session, drive)
        extent = Extent.of_run(setup, commands)
        extent.note("sequences at once", session.most_sequences)
        extent.note("references to one block", session.most_references)
        if violation is None:
            return RunResult(
                session.num_commands, session.facts, extent=extent, remarks=session.remarks
            )
        trace = replace(setup, commands=tuple(commands), violation=violation)
        result = self._result(session, trace)
        result.extent.take_in(extent)
        return result

    def _result(self, session: ManagerSession, trace: Trace) -> RunResult:
        """A failing run; if the profile trusts hashes, a manager is not blamed for a collision."""
        is_weak = WEAK_HASHES in self.options
        if not is_weak or replay(with_full_hashes(trace), self.make).violation is not None:
            return RunResult(session.num_commands, session.facts, trace)
        trace = collided(trace)
        if self.profile.collisions == "trusted":
            return RunResult(session.num_commands, session.facts, collision=trace)
        return RunResult(session.num_commands, session.facts, trace)

    def _drive(
        self,
        setup: Trace,
        session: ManagerSession,
        commands: list[Command],
        announce: Callable[[Command], None] | None,
    ) -> Violation | None:
        """A run ends with every sequence ended."""
        violation = carry_out(session, self._commands(setup, session), commands, announce)
        if violation is not None or not session.nobody_holds():
            return violation
        return session.end()

    def _commands(self, setup: Trace, session: ManagerSession) -> Iterator[Command]:
        """One run in 32 is long; each ends with every sequence ended and an empty cache."""
        choices = SeededChoices(str(setup.options["seed"]))
        workload = self.workload(choices, session.model, session.can, 2 + choices.below(2))
        turn = workload.seek_collisions if WEAK_HASHES in self.options else workload.bias
        num_steps = 600 + choices.below(600) if choices.below(32) == 0 else 20 + choices.below(100)
        for place in range(num_steps + 10_000):  # pragma: no branch - it drains long before
            if place % TURN_EVERY == 0:
                turn()
            command = workload.next() if place < num_steps else workload.drain()
            if command is None:
                break
            yield command
        if "reset" in session.can.verbs:
            yield Reset()


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
        """The header of the trace that run number `number` writes if it fails.

        The scripts come in turn; the first round has the sizes as they are, later ones others.
        """
        plans = self.plans()
        name = list(plans)[number % len(plans)]
        plan = plans[name]
        null = self.profile.null_block
        usable = plan.num_blocks(self.sizes) * len(self.profile.groups)
        # No script has more sequences at a time than these, or than blocks of a group.
        most = max(self.sizes.num_sequences, self.sizes.num_references)
        usable += self._behind_drafts() * min(most, plan.num_blocks(self.sizes))
        setup = ManagerCampaign.setup(self, number)
        options = {key: value for key, value in setup.options.items() if key != CAREFUL}
        return replace(
            setup,
            num_blocks=max(usable + (null is not None), 0 if null is None else null + 1),
            enable_caching=plan.enable_caching,
            options={**options, SCRIPT: name},
        )

    def run_from(
        self, setup: Trace, announce: Callable[[Command], None] | None = None
    ) -> RunResult:
        """The run; where thousands of tables may change by themselves, they are followed seldom.

        To read all of them after each command takes three quarters of a certification. If a run
        that reads them seldom fails, it is carried out again with all of them, and that one counts.
        """
        with collected_afterwards():
            result = self._run(setup, announce, follows_seldom=True)
            failed = result.trace is not None or result.collision is not None
            return self._run(setup, announce) if failed else result

    def _commands(self, setup: Trace, session: ManagerSession) -> Iterator[Command]:
        """The script, as far as it means something."""
        model, can = session.model, session.can
        run = ManagerScript(str(setup.options["seed"]), model, can, self.sizes, session.facts)
        for planned in self.plans()[str(setup.options[SCRIPT])].script(run):
            command = as_told(model, planned)
            if command.verb in can.verbs and undefined_for_manager(model, command) is None:
                yield command
