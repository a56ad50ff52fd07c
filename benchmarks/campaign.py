"""What a campaign reaches, how fast it checks, and what a second worker brings.

- States reached against steps: one worker in this process, on Poolproof's own pool at 8 blocks, 2
  hashes and 2 references, whose number of orbits is known.
- Checked steps per second of process time, beside the plain driver's in turn: the first million
  steps, in which the states are found, and the steps after them.
- Two workers against one, in processes, with orders of 20,000 steps (`poolproof fuzz` gives larger
  ones): steps per second of wall time, in turn. With less than two free processors this
  figure says nothing; the load stands beside it.

Usage: python benchmarks/campaign.py [--steps N] [--repeats N] [--seconds S] [--record]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass

from record import add_destination, surroundings, write_record

from poolproof.fuzz.merge import CampaignState, merge
from poolproof.fuzz.messages import WorkerOrder, WorkerReport
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.survey import survey
from poolproof.fuzz.worker import work
from poolproof.fuzz.workers import LocalWorkers
from poolproof.harness.isolation import Beacon, Isolation
from poolproof.harness.random_driver import PoolCampaign, RunPlan, run_pool
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

TARGET = "impl[misuse=undefined]"
SETTINGS = CampaignSettings(TARGET, "pool", 8)
ROUND = 20_000
PLAIN_STEPS = 40_000
GOALS = {
    "states reached, %": 95.0,
    "checked steps/s": 100_000,
    "checked steps/s, states known": 100_000,
    "two workers / one": 1.8,
}


def beacon() -> Beacon:
    """A beacon that nobody watches."""
    return Beacon(memoryview(bytearray(64)).cast("Q"))


@dataclass
class Search:
    """One campaign of so many steps: the curve, and process time for a step."""

    curve: list[tuple[int, int]]
    seconds: float
    seconds_late: float
    steps: int
    steps_late: int


def search(target: Target, steps: int, seed: int) -> Search:
    """Drive one worker in this process."""
    state = CampaignState()
    settings = CampaignSettings(TARGET, "pool", 8, seed=seed)
    shown = beacon()
    found = Search([], 0.0, 0.0, 0, 0)
    while state.num_steps < steps:
        order = WorkerOrder(
            settings, f"benchmark {seed}", ROUND, 600.0, begins=state.num_steps == 0
        )
        began = time.process_time()
        report = work(target, order, shown)
        seconds = time.process_time() - began
        assert not report.failures, report.failures[0]
        news = merge(state, report)
        found.seconds += seconds
        found.steps += report.num_steps
        if not news.states:
            found.seconds_late += seconds
            found.steps_late += report.num_steps
        found.curve.append((state.num_steps, len(state.states)))
    return found


def plain(target: Target, repeat: int) -> float:
    """Steps per second of the plain driver, one long run."""
    campaign = PoolCampaign(TARGET, target.make, target.profile)
    plan = RunPlan(f"campaign/{repeat}", 8, True, PLAIN_STEPS, 2)
    began = time.process_time()
    result = run_pool(campaign, plan, beacon().bump)
    assert result.trace is None, result.trace
    return result.num_steps / (time.process_time() - began)


def rate_with(num_workers: int, seconds: float, seed: int) -> float:
    """Steps per second of wall time with so many workers, their start left out."""
    settings = CampaignSettings(TARGET, "pool", 8, seed=seed)
    with Isolation(load) as isolation:
        workers = LocalWorkers(isolation, num_workers)
        steps, until, began = 0, 0.0, 0.0
        for round_number in range(1 << 30):
            for worker in workers.idle():
                begins = workers.is_fresh(worker)
                stream = f"rate {seed}/{worker}"
                order = WorkerOrder(settings, stream, ROUND, 1.0, begins=begins)
                workers.give(worker, order)
            for arrival in workers.wait(10.0):
                assert isinstance(arrival.result, WorkerReport), arrival
                steps += arrival.result.num_steps
            if round_number < 2 * num_workers:
                steps, began = 0, time.monotonic()
                until = began + seconds
            elif time.monotonic() > until:
                break
        rate = steps / (time.monotonic() - began)
        workers.close()
    return rate


def load() -> Target:
    """The target of all parts."""
    return load_target(TARGET)


def measure(steps: int, repeats: int, seconds: float) -> tuple[dict[str, float], list[Search]]:
    """All figures, as medians, the parts taking turns."""
    target = load()
    possible = survey(target, SETTINGS, beacon()).num_possible
    assert possible is not None
    plain(target, -1)
    searches, plains, ones, twos = [], [], [], []
    for repeat in range(repeats):
        plains.append(plain(target, repeat))
        searches.append(search(target, steps, repeat))
        plains.append(plain(target, repeats + repeat))
        ones.append(rate_with(1, seconds, repeat))
        twos.append(rate_with(2, seconds, repeat))
    return {
        "states that there are": possible,
        "states reached": statistics.median(s.curve[-1][1] for s in searches),
        "states reached, %": statistics.median(100 * s.curve[-1][1] / possible for s in searches),
        "steps to 95 %": statistics.median(_steps_to(s, 0.95 * possible) for s in searches),
        "checked steps/s": statistics.median(s.steps / s.seconds for s in searches),
        "checked steps/s, states known": statistics.median(
            s.steps_late / s.seconds_late for s in searches if s.steps_late
        ),
        "plain driver in turn, checked steps/s": statistics.median(plains),
        "one worker, steps/s of wall time": statistics.median(ones),
        "two workers, steps/s of wall time": statistics.median(twos),
        "two workers / one": statistics.median(
            two / one for one, two in zip(ones, twos, strict=True)
        ),
    }, searches


def _steps_to(found: Search, states: float) -> float:
    return next((steps for steps, reached in found.curve if reached >= states), float("inf"))


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each number of workers")
    add_destination(parser, "campaign")
    options = parser.parse_args()
    figures, searches = measure(options.steps, options.repeats, options.seconds)
    for name, value in figures.items():
        goal = GOALS.get(name)
        told = "" if goal is None else f"   goal {goal:,}: " + (
            "reached" if value >= goal else "MISSED"
        )  # fmt: skip
        print(f"  {name:<40}{value:>14,.2f}{told}")
    record = {
        **surroundings(),
        "steps": options.steps,
        "repeats": options.repeats,
        "figures": figures,
        "curves": [found.curve for found in searches],
    }
    return 0 if write_record(options.json, record) else 2


if __name__ == "__main__":
    sys.exit(main())
