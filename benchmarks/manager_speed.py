"""How fast the plain driver checks managers: commands per second, everything checked after each.

One run, on one core, interleaved repeats, medians of process time. Each part is the plain driver's
campaign at 8 blocks of 4 tokens: every run as a certification makes it (its own seed, length and
bias, one in 8 with caching off), shadow memory on, the set-up and the end of each run included.
Reported apart is what a session takes for the same commands, which are recorded before and not
timed, and what it takes without comparing the whole state after each command.

The targets are an example that shows all that can be looked at, and Poolproof's own managers; the
figures hold their time as well. Builds of one Python differ by a tenth and more: the build is
recorded with the figures. Importing and one
warm-up of each part are not timed; what is there before is frozen.

Usage: python benchmarks/manager_speed.py [--repeats N] [--record]
"""

from __future__ import annotations

import argparse
import gc
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from record import add_destination, surroundings, write_record

from poolproof.contract.commands import Command
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.garbage import collected_afterwards
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.targets.load import load_target

EXAMPLE = "examples/simple_manager.py:Manager"
TARGETS = (EXAMPLE, "impl-nano", "impl-vllm-v0", "impl-manager")
"""The example first: a manager that does little beside what has to be checked."""
NUM_BLOCKS = 8
NUM_RUNS = 100
NEVER = 10**9
GOAL = 50_000

ROOT = Path(__file__).resolve().parent.parent


def campaign_of(target: str) -> ManagerCampaign:
    """The plain driver against a built-in target, in its first layout."""
    found = load_target(str(ROOT / target) if target == EXAMPLE else target)
    assert isinstance(found.profile, ManagerProfile)
    return ManagerCampaign(target, found.make, found.profile, found.block_size)


def setups(campaign: ManagerCampaign, repeat: int) -> list[Trace]:
    """The headers of the runs of one repeat, at one size."""
    numbers = range(repeat * NUM_RUNS, (repeat + 1) * NUM_RUNS)
    return [replace(campaign.setup(number), num_blocks=NUM_BLOCKS) for number in numbers]


def seconds(work: Callable[[], int]) -> float:
    """Process time for one of the commands that `work` gives and counts."""
    gc.collect()
    gc.freeze()
    start = time.process_time()
    num_commands = work()
    elapsed = time.process_time() - start
    gc.unfreeze()
    return elapsed / num_commands


def driven(campaign: ManagerCampaign, repeat: int) -> float:
    """The plain driver: workload, target and every check."""

    def work() -> int:
        num_commands = 0
        for setup in setups(campaign, repeat):
            result = campaign.run_from(setup)
            assert result.trace is None, result.trace
            num_commands += result.num_steps
        return num_commands

    return seconds(work)


def replayed(campaign: ManagerCampaign, repeat: int, check_every: int) -> float:
    """Sessions alone, for the commands of the same runs."""
    tapes: list[tuple[Trace, list[Command]]] = []
    for setup in setups(campaign, repeat):
        tapes.append((setup, []))
        campaign.run_from(setup, tapes[-1][1].append)

    def work() -> int:
        for setup, commands in tapes:
            with collected_afterwards():
                play(campaign, setup, commands, check_every)
        return sum(len(commands) for _, commands in tapes)

    return seconds(work)


def play(
    campaign: ManagerCampaign, setup: Trace, commands: list[Command], check_every: int
) -> None:
    """One session of known commands."""
    session = ManagerSession(
        campaign.make(setup.num_blocks, setup.enable_caching),
        campaign.profile,
        setup.num_blocks,
        campaign.block_size,
        enable_caching=setup.enable_caching,
        check_every=check_every,
        names=campaign.names,
    )
    for command in commands:
        violation = session.step(command)
        assert violation is None, violation


def parts() -> dict[str, Callable[[int], float]]:
    """What is measured, by name; each takes the number of the repeat."""
    found: dict[str, Callable[[int], float]] = {}
    for target in TARGETS:
        campaign = campaign_of(target)
        found[f"{target}, plain driver"] = lambda repeat, c=campaign: driven(c, repeat)
        found[f"{target}, session"] = lambda repeat, c=campaign: replayed(c, repeat, 1)
        found[f"{target}, answers alone"] = lambda repeat, c=campaign: replayed(c, repeat, NEVER)
    return found


def measure(repeats: int) -> dict[str, list[float]]:
    """Seconds a command of each part, the parts taking turns."""
    timed = parts()
    for part in timed.values():
        part(0)
    times: dict[str, list[float]] = {name: [] for name in timed}
    for repeat in range(repeats):
        for name, part in timed.items():
            times[name].append(part(repeat))
    return times


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="how often each part runs")
    add_destination(parser, "manager_speed")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be 1 or more")
    times = measure(options.repeats)
    found = {name: 1 / statistics.median(values) for name, values in times.items()}
    print(f"commands/s, medians of {options.repeats} repeats, process time, one core,", end=" ")
    print(f"Python {platform.python_version()}")
    for name, value in found.items():
        print(f"  {name:<34}{value:>10,.0f}{1e6 / value:>8.1f} us{verdict(name, value)}")
    record = {
        **surroundings(),
        "python_build": sys.version,
        "repeats": options.repeats,
        "blocks": NUM_BLOCKS,
        "runs_per_repeat": NUM_RUNS,
        "goal_commands_per_second": GOAL,
        "commands_per_second": found,
        "seconds_per_command": times,
    }
    return 0 if write_record(options.json, record) else 2


def verdict(name: str, value: float) -> str:
    """The goal beside the plain driver's figures, and whether it is reached."""
    if not name.endswith("plain driver"):
        return ""
    return f"   goal >= {GOAL:,}: {'reached' if value >= GOAL else 'MISSED'}"


if __name__ == "__main__":
    sys.exit(main())
