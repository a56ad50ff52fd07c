"""The plain driver: seeded runs of a workload against a target, as fast as Python allows.

A campaign is a number of runs; each run has its own seed, pool size, length and bias, all
derived from the campaign's seed, so a run is replayed by its number. Isolation, workers and
reports are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.careful_session import CAREFUL, open_pool_session
from poolproof.harness.chain_workload import ChainWorkload
from poolproof.harness.choices import Choices, SeededChoices
from poolproof.harness.extent import Extent
from poolproof.harness.garbage import collected_afterwards
from poolproof.harness.pool_production import ProductionWorkload
from poolproof.harness.pool_session import EVENTS_EVERY, PoolSession
from poolproof.harness.pool_workload import PoolWorkload, alphabet
from poolproof.harness.production import ProductionRun, ProductionSizes, size_near_a_border
from poolproof.harness.production_hashes import hashes_that_look_alike
from poolproof.harness.single_invariant import SinglePoolSession, require_stated, verdict
from poolproof.harness.target_call import constructing, crash
from poolproof.reference.legality import misuse_of

__all__ = ["PoolCampaign", "RunPlan", "RunResult", "carry_out", "plan_of", "run_pool"]

MISUSE_EVERY = 48
"""On average one command in so many is misuse, where the profile says what misuse does."""

LARGE_EVERY = 64
"""One run of token chains in so many has a server's pool and a server's prompts."""

LARGE_BLOCKS = 4_096
"""How many blocks such a pool has at most."""

LARGE_CHAINS = (272, 40, 1_030, 130)
"""Of how many blocks the longest prompts of such runs are, each in turn."""

RESET_EVERY = 4
"""One run of token chains in so many publishes around a reset half-way."""

EMPTY_EVERY = 64
"""After so many commands comes one whose list is empty."""

CAREFUL_EVERY = 16
"""One run in so many is careful, the second one the first of them."""

MakePool = Callable[[int, bool], Any]


class _Steps(Protocol):
    """A session of any level."""

    def step(self, command: Any, /) -> Violation | None: ...


def carry_out(
    session: _Steps,
    commands: Iterable[Command],
    carried_out: list[Command],
    announce: Callable[[Command], None] | None,
) -> Violation | None:
    """Carry out commands up to the first violation; each is drawn once the one before it is done.

    `carried_out` and `announce` get each before it is applied.
    """
    for command in commands:
        carried_out.append(command)
        if announce is not None:
            announce(command)
        violation = session.step(command)
        if violation is not None:
            return violation
    return None


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run: everything that follows from the campaign's seed and the run's number."""

    seed: str
    num_blocks: int
    enable_caching: bool
    num_steps: int
    num_hashes: int
    chains: bool = False
    careful: bool = False
    resets: bool = False
    chain_blocks: int = 0
    """Of how many blocks the longest prompts are; 0: of a few, as usual."""
    production: ProductionRun | None = None

    @property
    def reset_at(self) -> int | None:
        """Before which command blocks are published around a reset, if they are."""
        return self.num_steps // 2 if self.resets else None

    @property
    def options(self) -> dict[str, Any]:
        """What a trace must say about the run besides its sizes."""
        careful = {CAREFUL: True} if self.careful else {}
        every = 1 if self.production is None else self.production.events_every
        return careful if every == 1 else {**careful, EVENTS_EVERY: every}


@dataclass(slots=True)
class RunResult:
    """What a run did; `trace` is there only when something broke.

    `extent` is how far it went, `remarks` what a certificate should say of the target.

    `collision` is what a manager that trusts its hashes did wrong because two of them were made
    to be equal: no failure, but what the certificate says about collisions.
    """

    num_steps: int
    facts: set[str]
    trace: Trace | None = None
    collision: Trace | None = None
    extent: Extent = field(default_factory=Extent)
    remarks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PoolCampaign:
    """A target to run against, and how.

    With a `chain_block_size` its runs speak token chains instead of opaque hashes. With
    `production` its runs have those sizes instead of the usual small ones. With `only`,
    the name of an invariant, nothing else is checked, see `single_invariant.py`.
    """

    name: str
    make: MakePool
    profile: Profile
    seed: int = 0
    chain_block_size: int = 0
    hash_block_size: int = 0
    full_every: int | None = None
    checked: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    workload: type[PoolWorkload] = PoolWorkload
    only: str | None = None
    production: ProductionSizes | None = None

    def __post_init__(self) -> None:
        require_stated(self.only, Level.POOL)

    def run(self, number: int, announce: Callable[[Command], None] | None = None) -> RunResult:
        """Carry out run number `number`; `announce` gets each command before it is applied."""
        return run_pool(self, plan_of(self, number), announce)

    def setup(self, number: int) -> Trace:
        """The header of the trace that run number `number` writes if it fails."""
        return setup_of(self, plan_of(self, number))


def setup_of(campaign: PoolCampaign, plan: RunPlan) -> Trace:
    """The header of the trace that the run makes if it fails."""
    return Trace(
        target=campaign.name,
        level=Level.POOL,
        profile=campaign.profile,
        num_blocks=plan.num_blocks,
        enable_caching=plan.enable_caching,
        commands=(),
        options={
            "seed": plan.seed,
            "block_size": campaign.chain_block_size if plan.chains else 1,
            **plan.options,
            **campaign.options,
        },
    )


def plan_of(campaign: PoolCampaign, number: int) -> RunPlan:
    """Sizes, length and kind of one run.

    Pools have 2 to 12 usable blocks; one run in 32 is long, one in 8 has caching off, and one in
    16 is careful (`careful_session.py`). At production sizes see `production.py`; of token chains
    one run in 64 has a pool of up to 4,096 blocks and prompts of up to 1,030.
    """
    if campaign.production is not None:
        hash_bytes = campaign.profile.fixed_hash_bytes
        run = campaign.production.run(campaign.seed, number, hash_bytes)
        return _production_plan(run, campaign.profile)
    seed = f"{campaign.seed}/{number}"
    choices = SeededChoices(f"plan {seed}")
    null = campaign.profile.null_block
    long = choices.below(32) == 0
    if campaign.chain_block_size and number % LARGE_EVERY == LARGE_EVERY - 1:
        return _large_chain_plan(seed, choices, number // LARGE_EVERY, null)
    return RunPlan(
        seed=seed,
        num_blocks=max(2 + choices.below(11) + (null is not None), 0 if null is None else null + 1),
        enable_caching=choices.below(8) != 0,
        num_steps=1000 + choices.below(1000) if long else 20 + choices.below(100),
        num_hashes=2 + choices.below(3),
        chains=campaign.chain_block_size > 0,
        careful=campaign.chain_block_size == 0 and number % CAREFUL_EVERY == 1,
        resets=campaign.chain_block_size > 0 and number % RESET_EVERY == 1,
    )


def _large_chain_plan(seed: str, choices: Choices, place: int, null: int | None) -> RunPlan:
    most = LARGE_BLOCKS if place % 4 == 0 else 16 + size_near_a_border(choices, LARGE_BLOCKS - 16)
    return RunPlan(
        seed=seed,
        num_blocks=max(most, 0 if null is None else null + 2),
        enable_caching=True,
        num_steps=120 + choices.below(60),
        num_hashes=0,
        chains=True,
        chain_blocks=LARGE_CHAINS[place % len(LARGE_CHAINS)],
    )


def _production_plan(run: ProductionRun, profile: Profile) -> RunPlan:
    null = profile.null_block
    return RunPlan(
        seed=run.seed,
        num_blocks=max(run.num_blocks, 0 if null is None else null + 2),
        enable_caching=run.enable_caching,
        num_steps=run.num_steps,
        num_hashes=run.num_hashes,
        careful=run.careful,
        production=run,
    )


def run_pool(
    campaign: PoolCampaign,
    plan: RunPlan,
    announce: Callable[[Command], None] | None = None,
) -> RunResult:
    """One run: build the target, drive it, give everything back, see that nothing leaked."""
    with collected_afterwards():
        return _run_pool(campaign, plan, announce)


def _run_pool(
    campaign: PoolCampaign, plan: RunPlan, announce: Callable[[Command], None] | None
) -> RunResult:
    only = campaign.only
    session_class: Callable[..., PoolSession] = PoolSession
    if only is not None:
        session_class = partial(SinglePoolSession, only=only)
    setup = setup_of(campaign, plan)
    try:
        session = open_pool_session(
            campaign.make,
            campaign.profile,
            plan.num_blocks,
            enable_caching=plan.enable_caching,
            options=setup.options,
            session_class=session_class,
            full_every=campaign.full_every or (plan.production and plan.production.full_every),
            checked=campaign.checked,
        )
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        unbuilt = crash(constructing("target", plan.num_blocks), error)
        is_meant = only in (None, "CRASH")
        return RunResult(0, set(), _trace(campaign, plan, [], unbuilt) if is_meant else None)
    commands: list[Command] = []

    def drive() -> Violation | None:
        return session.first_look() or _drive(campaign, plan, session, commands, announce)

    violation = verdict(only, session, drive)
    trace = None if violation is None else _trace(campaign, plan, commands, violation)
    extent = Extent.of_run(setup, commands)
    extent.note("references to one block", session.facts.most_references)
    return RunResult(
        session.num_commands, session.facts, trace, extent=extent, remarks=session.remarks
    )


def _drive(
    campaign: PoolCampaign,
    plan: RunPlan,
    session: PoolSession,
    commands: list[Command],
    announce: Callable[[Command], None] | None,
) -> Violation | None:
    """Choose and apply the run's commands, then give everything back; what broke, or None."""
    workload = _workload(campaign, plan, session)
    workload.bias()
    step, next_command, references = session.step, workload.next, workload.references
    last = session.last
    misuse_at = _misuse_places(workload, plan, campaign.profile)

    def apply(command: Command) -> Violation | None:
        commands.append(command)
        if announce is not None:
            announce(command)
        violation = step(command)
        references.extend(last.taken)
        return violation

    for place in range(plan.num_steps):
        turn, between = divmod(place + plan.num_steps, EMPTY_EVERY)
        besides: Iterable[Command] = () if between else (workload.empty(place + turn),)
        if place == plan.reset_at:
            besides = workload.around_a_reset()
        elif place == 0:
            besides = workload.opening()
        for command in besides:
            violation = apply(command)
            if violation is not None:
                return violation
        command = next_command()
        misuse = None
        if place in misuse_at:
            wrong = workload.misuse()
            misuse = None if wrong is None else misuse_of(session.reference, wrong)
            if wrong is not None and misuse is not None:
                workload.put_back(command)
                command = wrong
        commands.append(command)
        if announce is not None:
            announce(command)
        violation = step(command) if misuse is None else session.step_misuse(command, misuse)
        if violation is not None:
            return violation
        references.extend(last.taken)
        if last.remapped:
            workload.remap(last.remapped)
    for command in workload.give_everything_back():
        violation = apply(command)
        if violation is not None:
            return violation
    return session.last_look() or session.end()


def _misuse_places(workload: PoolWorkload, plan: RunPlan, profile: Profile) -> frozenset[int]:
    """The places in the run at which misuse is tried, one in 48 on average."""
    if profile.misuse == "undefined":
        return frozenset()
    count = plan.num_steps // MISUSE_EVERY + workload.below(2)
    return frozenset(workload.below(plan.num_steps) for _ in range(count))


def _workload(campaign: PoolCampaign, plan: RunPlan, session: PoolSession) -> PoolWorkload:
    choices = SeededChoices(plan.seed)
    if plan.production is not None:
        run = plan.production
        alike = hashes_that_look_alike(run.num_hashes, run.hash_bytes, run.seed)
        return ProductionWorkload(choices, session.reference, session.can, alike, run)
    if plan.chains:
        return ChainWorkload(
            choices,
            session.reference,
            session.can,
            block_size=campaign.chain_block_size,
            hash_block_size=campaign.hash_block_size,
            most_blocks=plan.chain_blocks,
        )
    hashes = alphabet(plan.num_hashes, plan.seed, campaign.profile.usual_hash_bytes)
    return campaign.workload(choices, session.reference, session.can, hashes)


def _trace(
    campaign: PoolCampaign, plan: RunPlan, commands: list[Command], violation: Violation
) -> Trace:
    return replace(setup_of(campaign, plan), commands=tuple(commands), violation=violation)
