"""The plain driver: seeded runs of a workload against a target, as fast as Python allows.

A campaign is a number of runs; each run has its own seed, pool size, length and bias, all
derived from the campaign's seed, so a run is replayed by its number. Isolation, workers and
reports are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.chain_workload import ChainWorkload
from poolproof.harness.choices import SeededChoices
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload, alphabet
from poolproof.harness.target_call import crash
from poolproof.reference.legality import misuse_of

__all__ = ["PoolCampaign", "RunPlan", "RunResult", "plan_of", "run_pool"]

MakePool = Callable[[int, bool], Any]


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run: everything that follows from the campaign's seed and the run's number."""

    seed: str
    num_blocks: int
    enable_caching: bool
    num_steps: int
    num_hashes: int
    chains: bool = False


@dataclass(slots=True)
class RunResult:
    """What a run did; `trace` is there only when something broke."""

    num_steps: int
    facts: set[str]
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class PoolCampaign:
    """A target to run against, and how."""

    name: str
    make: MakePool
    profile: Profile
    seed: int = 0
    chain_block_size: int = 0
    hash_block_size: int = 0
    full_every: int | None = None
    checked: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Run number `number`; `announce` hears each command before it is applied."""
        return run_pool(self, plan_of(self, number), announce)


def plan_of(campaign: PoolCampaign, number: int) -> RunPlan:
    """Sizes, length and kind of one run.

    Pools have 2 to 12 usable blocks; one run in 32 is long, one in 8 has caching off; with token
    chains, every other run speaks them.
    """
    seed = f"{campaign.seed}/{number}"
    choices = SeededChoices(f"plan {seed}")
    null = campaign.profile.null_block is not None
    long = choices.below(32) == 0
    return RunPlan(
        seed=seed,
        num_blocks=2 + choices.below(11) + null,
        enable_caching=choices.below(8) != 0,
        num_steps=1000 + choices.below(1000) if long else 20 + choices.below(100),
        num_hashes=2 + choices.below(3),
        chains=bool(campaign.chain_block_size) and number % 2 == 1,
    )


def run_pool(
    campaign: PoolCampaign,
    plan: RunPlan,
    announce: Callable[[Command], None] | None = None,
) -> RunResult:
    """One run: build the target, drive it, give everything back, see that nothing leaked."""
    try:
        target = campaign.make(plan.num_blocks, plan.enable_caching)
        session = PoolSession(
            target,
            campaign.profile,
            plan.num_blocks,
            enable_caching=plan.enable_caching,
            full_every=campaign.full_every,
            block_size=campaign.chain_block_size if plan.chains else 1,
            checked=campaign.checked,
        )
    except (Exception, SystemExit) as error:
        unbuilt = crash(f"constructing the target with {plan.num_blocks} blocks", error)
        return RunResult(0, set(), _trace(campaign, plan, [], unbuilt))
    violation = session.first_look()
    commands: list[Command] = []
    if violation is None:
        for command, reason in _commands(campaign, plan, session):
            commands.append(command)
            if announce is not None:
                announce(command)
            if reason is None:
                violation = session.step(command)
            else:
                violation = session.step_misuse(command, reason)
            if violation is not None:
                break
        else:
            violation = session.end()
    trace = None if violation is None else _trace(campaign, plan, commands, violation)
    return RunResult(session.num_commands, session.facts, trace)


def _commands(
    campaign: PoolCampaign, plan: RunPlan, session: PoolSession
) -> Iterator[tuple[Command, str | None]]:
    """The run's commands, each with its reason when it is misuse."""
    workload = _workload(campaign, plan, session)
    workload.bias()
    misuse_rate = 32 if campaign.profile.misuse != "undefined" else 0
    below, pool = workload.below, session.reference
    for _ in range(plan.num_steps):
        if misuse_rate and below(misuse_rate) == 0:
            command = workload.misuse()
            reason = command and misuse_of(pool, command)
            if command is not None and reason:
                yield command, reason
                continue
        command = workload.next()
        yield command, None
        workload.note(session.taken, session.remapped)
    while (command := workload.drain()) is not None:
        yield command, None


def _workload(campaign: PoolCampaign, plan: RunPlan, session: PoolSession) -> PoolWorkload:
    choices = SeededChoices(plan.seed)
    if plan.chains:
        return ChainWorkload(
            choices,
            session.reference,
            session.can,
            block_size=campaign.chain_block_size,
            hash_block_size=campaign.hash_block_size,
        )
    hashes = alphabet(plan.num_hashes, plan.seed)
    return PoolWorkload(choices, session.reference, session.can, hashes)


def _trace(
    campaign: PoolCampaign, plan: RunPlan, commands: list[Command], violation: Violation
) -> Trace:
    return Trace(
        target=campaign.name,
        level="pool",
        profile=campaign.profile,
        num_blocks=plan.num_blocks,
        enable_caching=plan.enable_caching,
        commands=tuple(commands),
        violation=violation,
        options={
            "seed": plan.seed,
            "block_size": campaign.chain_block_size if plan.chains else 1,
            **campaign.options,
        },
    )
