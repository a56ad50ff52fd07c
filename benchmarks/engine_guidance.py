"""What novelty of abstract states is worth on engines: steps to find the hardest planted bugs.

Three ways, side by side, from the same seeds: the plain driver; a campaign, whose runs of engines
are all fresh; and a campaign that keeps the tapes which reached abstract states of the engine for
the first time and mutates them, as it does at other levels (`fuzz/engine_runs.py`). The bugs are
those that the plain driver took longest to find (`benchmarks/results/engine_specimens.json`). A run
that finds nothing within the bound counts as longer than any that does.

Usage: python benchmarks/engine_guidance.py [--bugs N] [--seeds N] [--steps N] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from record import RECORDED, add_destination, surroundings, write_record

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_specimen import BLOCK_SIZE, EngineSpecimen
from poolproof.contract.level import Level
from poolproof.fuzz.messages import WorkerOrder
from poolproof.fuzz.recorded_choices import new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.worker import CampaignWorker
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.isolation import Beacon

BLOCKS = 8
STEPS_OF_AN_ORDER = 400


@dataclass(frozen=True, slots=True)
class Layout:
    """A specimen as the only set-up of a target."""

    found: EngineSpecimen
    block_size: int = BLOCK_SIZE

    @property
    def profile(self) -> Any:
        return self.found.profile

    @property
    def make(self) -> Any:
        return self.found.make


@dataclass(frozen=True, slots=True)
class Planted:
    """A specimen as a target that a campaign has loaded."""

    found: EngineSpecimen

    level = Level.ENGINE

    @property
    def name(self) -> str:
        return self.found.id

    @property
    def profile(self) -> Any:
        return self.found.profile

    @property
    def make(self) -> Any:
        return self.found.make

    def layout(self, _name: str) -> Layout:
        return Layout(self.found)

    def part_at(self, _level: Level) -> Any:
        return self


class MutatingWorker(CampaignWorker):
    """A worker that mutates what reached new states, and draws fresh runs beside."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._yield_of = {"mutated": 1.0, "fresh": 1.0}


def plain(found: EngineSpecimen, seed: int, most_steps: int) -> int | None:
    """Steps of the plain driver up to the first failure; None for none."""
    campaign = EngineCampaign(found.id, found.make, found.profile, BLOCK_SIZE, seed=seed)
    steps = number = 0
    while steps < most_steps:
        run = campaign.run(number)
        steps, number = steps + run.num_steps, number + 1
        if run.trace is not None:
            return steps
    return None


def campaign(
    kind: type[CampaignWorker], found: EngineSpecimen, seed: int, most_steps: int
) -> int | None:
    """The same of a campaign's worker."""
    settings = CampaignSettings(found.id, Level.ENGINE, BLOCKS, seed=seed, layout="planted")
    beacon = Beacon(memoryview(bytearray(8 * 8)).cast("Q"))
    order = WorkerOrder(
        settings, f"{found.id} {seed}", STEPS_OF_AN_ORDER, max_seconds=1e9, begins=True
    )
    worker = kind(Planted(found), order, new_cells())
    steps = 0
    while steps < most_steps:
        report = worker.work(order, beacon)
        if report.failures:
            return steps + report.failures[0].step
        steps += report.num_steps
    return None


WAYS = {
    "plain driver": plain,
    "fresh runs": lambda *given: campaign(CampaignWorker, *given),
    "novelty": lambda *given: campaign(MutatingWorker, *given),
}


def hardest(number: int) -> list[EngineSpecimen]:
    """Those that the plain driver took longest to find, the hardest last."""
    bugs = json.loads((RECORDED / "engine_specimens.json").read_text("utf-8"))["bugs"]
    order = sorted(bugs, key=lambda bug: -median(bug["steps"]))
    return [ENGINE_SPECIMENS[bug["id"]] for bug in reversed(order[:number])]


def row_of(found: EngineSpecimen, seeds: int, most_steps: int) -> dict[str, Any]:
    """Steps by way and seed, and the median of each way."""
    steps = {
        name: [way(found, seed, most_steps) for seed in range(seeds)] for name, way in WAYS.items()
    }
    middles = {}
    for name, counts in steps.items():
        middle = sorted(most_steps + 1 if n is None else n for n in counts)[len(counts) // 2]
        middles[name] = None if middle > most_steps else middle
    return {"id": found.id, "title": found.title, "steps": steps, "median": middles}


def main() -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bugs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40_000, help="bound of each search")
    add_destination(parser, "engine_guidance")
    given = parser.parse_args()
    rows = []
    with suppress(KeyboardInterrupt):  # what was measured by then is kept
        for found in hardest(given.bugs):
            rows.append(row_of(found, given.seeds, given.steps))
            print(rows[-1]["id"], rows[-1]["median"], flush=True)
    record = {
        **surroundings(),
        "load_average": os.getloadavg()[0],
        "num_seeds": given.seeds,
        "most_steps": given.steps,
        "rows": rows,
    }
    return 0 if write_record(given.json, record) else 2


if __name__ == "__main__":
    sys.exit(main())
