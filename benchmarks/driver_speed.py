"""How fast the plain driver checks, against Hypothesis and against the size of the pool.

One run, on one core, interleaved repeats, medians of process time:

- the plain driver at 8 blocks, everything checked after every step, in steps per second;
- the same grammar and the same checks under Hypothesis's state machine, and the ratio;
- the harness's own time for a step (checked minus unchecked) at 8 and at 100,000 blocks; there
  the checks look at what a command touched, and a full observation every 1,000 steps is
  reported apart.

The target is Poolproof's own pool under misuse=undefined, as vLLM's is, so that the figures are the
harness's and not those of a target's argument checks; one part has them on. Set-up, prefilling and
one warm-up of each part are not timed; the garbage collector is on, and what is there before is
frozen.

Usage: python benchmarks/driver_speed.py [--repeats N] [--record]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable

import hypothesis
from record import add_destination, surroundings, write_record

from poolproof.contract.commands import Allocate, Cache, Free, Lookup
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.harness.choices import Choices, SeededChoices
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload, alphabet
from poolproof.harness.random_driver import PoolCampaign, RunPlan, run_pool
from poolproof.impl.block_pool import BlockPool
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

SMALL = 8
LARGE = 100_000
NUM_HASHES = 2
FULL_EVERY = 1000
NEVER = 10**9

PLAIN_STEPS = 40_000
SIZE_STEPS = 20_000
FULL_LOOKS = 5


GOALS = {
    "plain driver, checked steps/s": (">=", 100_000),
    "plain driver / Hypothesis": (">=", 10),
    "harness's own time, 100,000 blocks / 8": ("<=", 3),
}


def make(num_blocks: int, enable_caching: bool) -> BlockPool:
    """The target of all parts but one."""
    return BlockPool(num_blocks, enable_caching=enable_caching, misuse="undefined")


def make_guarded(num_blocks: int, enable_caching: bool) -> BlockPool:
    """The same with checks of its arguments, which is driven with misuse as well."""
    return BlockPool(num_blocks, enable_caching=enable_caching)


CAMPAIGN = PoolCampaign(
    "impl", make, Profile.from_mapping(BlockPool(1, misuse="undefined").profile)
)
GUARDED = PoolCampaign("impl", make_guarded, Profile.from_mapping(BlockPool(1).profile))


class EightBlocks(PoolMachine):
    """The pool's machine at the size and with the alphabet of the plain driver's run."""

    def setup(self, choices: Choices) -> Trace:  # noqa: ARG002 -- nothing is left to choose
        """The same for every example."""
        return Trace("impl", "pool", self.campaign.profile, SMALL, True, ())

    def make_workload(self, choices: Choices) -> PoolWorkload:
        """Two hashes, as in the plain driver's run."""
        hashes = alphabet(NUM_HASHES, 0)
        return PoolWorkload(choices, self.session.reference, self.session.can, hashes)


def seconds(work: Callable[[], int]) -> float:
    """Process time for one of the steps that `work` does and counts."""
    gc.collect()
    gc.freeze()
    start = time.process_time()
    steps = work()
    elapsed = time.process_time() - start
    gc.unfreeze()
    return elapsed / steps


def plain(repeat: int, campaign: PoolCampaign = CAMPAIGN) -> float:
    """The plain driver: one long run."""
    plan = RunPlan(f"speed/{repeat}", SMALL, True, PLAIN_STEPS, NUM_HASHES)

    def work() -> int:
        result = run_pool(campaign, plan)
        assert result.trace is None, result.trace
        return result.num_steps

    return seconds(work)


def under_hypothesis(repeat: int) -> float:
    """The machine: as many examples as give a few thousand steps."""
    settings = hypothesis.settings(
        machine_settings("quick"), max_examples=40, stateful_step_count=100
    )

    def work() -> int:
        result = run_machine(lambda log: EightBlocks(CAMPAIGN, log), settings, seed=repeat)
        assert result.trace is None, result.trace
        return result.num_steps

    return seconds(work)


def small(checked: bool) -> tuple[PoolSession, PoolWorkload]:
    """A fresh pool of 8 blocks: everything is read after every command."""
    return session_of(SMALL, checked, full_every=1)


def large(checked: bool, full_every: int = NEVER) -> tuple[PoolSession, PoolWorkload]:
    """A large pool as a busy server leaves it: 64 blocks free, half of all blocks cached."""
    session, workload = session_of(LARGE, checked, full_every)
    session.step(Allocate(LARGE))
    cached = tuple(range(0, LARGE, 2))
    session.step(Cache(cached, tuple(workload.hashes) * 2))
    freed = cached[:: len(cached) // 64]
    session.step(Free(freed))
    workload.references.extend(set(range(LARGE)).difference(freed))
    return session, workload


def session_of(num_blocks: int, checked: bool, full_every: int) -> tuple[PoolSession, PoolWorkload]:
    """A session and the plain driver's grammar; as many hashes for each block at every size."""
    session = PoolSession(
        make(num_blocks, True),
        CAMPAIGN.profile,
        num_blocks,
        full_every=full_every,
        checked=checked,
    )
    hashes = alphabet(NUM_HASHES * num_blocks // SMALL, "size")
    choices = SeededChoices("size")
    return session, PoolWorkload(choices, session.reference, session.can, hashes)


def drive(session: PoolSession, workload: PoolWorkload, steps: int) -> int:
    """The plain driver's loop, over a session that may have been filled before."""
    references, last = workload.references, session.last
    for _ in range(steps):
        violation = session.step(workload.next())
        assert violation is None, violation
        references.extend(last.taken)
    return steps


def stepping(build: Callable[[bool], tuple[PoolSession, PoolWorkload]], checked: bool) -> float:
    """Seconds for one step of a session, its first thousand left out."""
    session, workload = build(checked)
    drive(session, workload, 1000)
    return seconds(lambda: drive(session, workload, SIZE_STEPS))


def full_look() -> float:
    """Seconds for one full observation of the large pool."""
    session, _ = large(checked=True, full_every=1)
    lookup = Lookup(alphabet(1, "size")[0])

    def look() -> int:
        for _ in range(FULL_LOOKS):
            assert session.step(lookup) is None
        return FULL_LOOKS

    return seconds(look)


PARTS: dict[str, Callable[[int], float]] = {
    "plain": plain,
    "guarded": lambda repeat: plain(repeat, GUARDED),
    "hypothesis": under_hypothesis,
    "small checked": lambda _: stepping(small, checked=True),
    "small unchecked": lambda _: stepping(small, checked=False),
    "large checked": lambda _: stepping(large, checked=True),
    "large unchecked": lambda _: stepping(large, checked=False),
    "large full look": lambda _: full_look(),
}


def measure(repeats: int) -> dict[str, list[float]]:
    """Seconds a step of each part, the parts taking turns."""
    for warm_up in (plain, under_hypothesis):
        warm_up(0)
    times: dict[str, list[float]] = {name: [] for name in PARTS}
    for repeat in range(repeats):
        for name, part in PARTS.items():
            times[name].append(part(repeat))
    return times


def figures(times: dict[str, list[float]]) -> dict[str, float]:
    """What the repeats say, as medians; a difference or a ratio is taken within each repeat."""

    def median(value: Callable[[dict[str, float]], float]) -> float:
        repeats = zip(*times.values(), strict=True)
        return statistics.median(value(dict(zip(times, row, strict=True))) for row in repeats)

    def own(row: dict[str, float], size: str) -> float:
        return row[f"{size} checked"] - row[f"{size} unchecked"]

    return {
        "plain driver, checked steps/s": median(lambda row: 1 / row["plain"]),
        "the same, pool with argument checks": median(lambda row: 1 / row["guarded"]),
        "Hypothesis, checked steps/s": median(lambda row: 1 / row["hypothesis"]),
        "plain driver / Hypothesis": median(lambda row: row["hypothesis"] / row["plain"]),
        "harness's own time, 8 blocks, us/step": median(lambda row: 1e6 * own(row, "small")),
        "harness's own time, 100,000 blocks, us/step": median(lambda row: 1e6 * own(row, "large")),
        "harness's own time, 100,000 blocks / 8": median(
            lambda row: own(row, "large") / own(row, "small")
        ),
        "unchecked step, 8 blocks, us": median(lambda row: 1e6 * row["small unchecked"]),
        "unchecked step, 100,000 blocks, us": median(lambda row: 1e6 * row["large unchecked"]),
        "full observation, 100,000 blocks, ms": median(lambda row: 1e3 * row["large full look"]),
        f"full observation, one in {FULL_EVERY}, us/step": median(
            lambda row: 1e6 * row["large full look"] / FULL_EVERY
        ),
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="how often each part runs")
    add_destination(parser, "driver_speed")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be 1 or more")
    times = measure(options.repeats)
    found = figures(times)
    print(f"medians of {options.repeats} repeats, process time, one core")
    for name, value in found.items():
        print(f"  {name:<46}{value:>12,.2f}{goal_of(name, value)}")
    record = {
        **surroundings(),
        "hypothesis": hypothesis.__version__,
        "repeats": options.repeats,
        "figures": found,
        "seconds_per_step": times,
    }
    return 0 if write_record(options.json, record) else 2


def goal_of(name: str, value: float) -> str:
    """The goal beside a figure, and whether it is reached."""
    if name not in GOALS:
        return ""
    comparison, goal = GOALS[name]
    reached = value >= goal if comparison == ">=" else value <= goal
    return f"   goal {comparison} {goal:,}: {'reached' if reached else 'MISSED'}"


if __name__ == "__main__":
    sys.exit(main())
