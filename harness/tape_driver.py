"""The plain driver for targets that take whole tapes: predict, play, judge.

The workload is run on the reference alone, which gives the commands of the run. The target plays
them as one tape. Then the same run is done once more, on what the target answered, with every
check after every command: a session cannot tell it from the target. A tape that was lost on the
way (the program died, say) is given again command by command, and so is one after which the run
went another way than predicted without breaking anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from poolproof.contract.commands import Command
from poolproof.contract.profile import Profile
from poolproof.contract.tapes import (
    PlayedTape,
    PlaysTapes,
    TapeDivergedError,
    TapeLostError,
    is_predictable,
)
from poolproof.contract.target import POOL_OPTIONAL_VERBS, Capabilities
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.random_driver import (
    PoolCampaign,
    RunPlan,
    RunResult,
    plan_of,
    run_pool,
    setup_of,
)
from poolproof.reference.native_pool import NativeDictPool

__all__ = ["TapedCampaign", "predicted_commands", "taped"]

Announce = Callable[[Command], None]
AnyCampaign = TypeVar("AnyCampaign")


def taped(campaign: AnyCampaign, tapes: PlaysTapes | None) -> AnyCampaign | TapedCampaign:
    """The campaign on whole tapes, where the target takes them and its answers can be predicted."""
    if (
        tapes is None
        or not isinstance(campaign, PoolCampaign)
        or not is_predictable(campaign.profile, tapes.can)
    ):
        return campaign
    return TapedCampaign(campaign, tapes)


@dataclass(frozen=True, slots=True)
class TapedCampaign:
    """A campaign whose runs are tapes."""

    campaign: PoolCampaign
    tapes: PlaysTapes

    def run(self, number: int, announce: Announce | None = None) -> RunResult:
        """Run number `number`; `announce` hears each command before it is judged."""
        campaign, plan = self.campaign, plan_of(self.campaign, number)
        if plan.careful or plan.production is not None:
            # Two instances at once, and events that are not read after every command.
            return run_pool(campaign, plan, announce)
        commands = predicted_commands(campaign, plan, self.tapes.can)
        try:
            played = self.tapes.play(plan.num_blocks, plan.enable_caching, commands)
        except TapeLostError as lost:
            found = run_pool(campaign, plan, announce)
            return found if found.trace else _not_again(campaign, plan, commands, lost)
        try:
            return run_pool(replace(campaign, make=_maker(played)), plan, announce)
        except TapeDivergedError:
            return run_pool(campaign, plan, announce)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` makes if it fails."""
        return self.campaign.setup(number)


def predicted_commands(campaign: PoolCampaign, plan: RunPlan, can: Capabilities) -> list[Command]:
    """The commands that a right target is given in this run."""
    commands: list[Command] = []

    def make(num_blocks: int, enable_caching: bool) -> NativeDictPool:
        return _specification(num_blocks, enable_caching, campaign.profile, can)

    run_pool(replace(campaign, make=make, checked=False), plan, commands.append)
    return commands


def _specification(
    num_blocks: int, enable_caching: bool, profile: Profile, can: Capabilities
) -> NativeDictPool:
    """The reference with no more verbs than the target has."""
    pool = NativeDictPool(num_blocks, enable_caching=enable_caching, profile=profile)
    for verb in POOL_OPTIONAL_VERBS:
        if verb not in can.verbs:
            setattr(pool, verb, None)
    return pool


def _maker(played: PlayedTape) -> Callable[[int, bool], Any]:
    return lambda _num_blocks, _enable_caching: played.instance()


def _not_again(
    campaign: PoolCampaign, plan: RunPlan, commands: list[Command], lost: TapeLostError
) -> RunResult:
    violation = Violation(
        "CRASH",
        Severity.CRASH,
        f"{lost}; that was while it was given {len(commands)} commands at once, and one by one it "
        "does them all: the target does not behave the same way twice",
        command_index=len(commands) - 1,
    )
    trace = replace(setup_of(campaign, plan), commands=tuple(commands), violation=violation)
    return RunResult(len(commands), set(), trace)
