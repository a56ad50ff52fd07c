"""What compiled drivers bring: the same work by both builds of the same sources, in turn.

`make compiled` leaves a plain copy in build/installed, a compiled one in build/compiled. All parts
run in a process of either build, under one interpreter, and the builds take turns:

- the plain driver on Poolproof's own pool, 8 blocks, everything compared after every step;
- the plain driver on a small manager that shows everything, shadow memory on;
- the plain driver on each set-up of `impl-engine` without recurrent states: commands, each checked
  whole, and how many of them its scheduler planned;
- a campaign on the same pool: one worker in the process, a million steps, all of whose states are
  found on the way, and of these the steps after the last new state.

Process time on one core. The targets are Python in both builds. Both campaigns of a pair must have
done as many steps and know as many states at each report, or the builds do not do the same.

Usage: python benchmarks/compiled_speed.py [--repeats N] [--steps N] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from record import add_destination, surroundings, write_record

ROOT = Path(__file__).resolve().parent.parent
BUILDS = {"Python": ROOT / "build" / "installed", "compiled": ROOT / "build" / "compiled"}
CAMPAIGN_GOAL = 100_000
MANAGER_GOAL = 50_000
ENGINE_GOAL = 15_000
ENGINE_STEPS = 3_000
"""Planned in each set-up."""
GOALS = {
    "manager commands/s": MANAGER_GOAL,
    "engine commands/s": ENGINE_GOAL,
    "campaign, checked steps/s": CAMPAIGN_GOAL,
    "campaign, states known, checked steps/s": CAMPAIGN_GOAL,
}


def measure(repeat: int, steps: int) -> dict[str, float | list[list[int]]]:
    """Every part once, in this process."""
    import campaign
    import manager_speed

    target = campaign.load()
    campaign.plain(target, -1)
    manager = manager_speed.campaign_of(manager_speed.EXAMPLE)
    manager_speed.driven(manager, -1 - repeat)
    searched = campaign.search(target, steps, repeat)
    return {
        "pool steps/s": campaign.plain(target, repeat),
        "manager commands/s": 1 / manager_speed.driven(manager, repeat),
        **engine_rates(repeat),
        "campaign, checked steps/s": searched.steps / searched.seconds,
        "campaign, states known, checked steps/s": searched.steps_late / searched.seconds_late
        if searched.steps_late
        else 0.0,
        "curve": [list(point) for point in searched.curve],
    }


def engine_rates(seed: int) -> dict[str, float]:
    """Commands and planned steps of our engine's set-ups, a second of process time."""
    import engine_soak

    layouts = [
        layout for layout in engine_soak.layouts_of("impl-engine") if not layout.profile.has_states
    ]
    engine_soak.soaked("impl-engine", layouts[0].name, ENGINE_STEPS // 10, -1)  # Imports, warm.
    rows = [
        engine_soak.soaked("impl-engine", layout.name, ENGINE_STEPS, seed) for layout in layouts
    ]
    assert not [row["found"] for row in rows if row["found"]], "our engine is accused"
    seconds = sum(row["cpu_seconds"] for row in rows)
    return {
        "engine commands/s": sum(row["commands"] for row in rows) / seconds,
        "engine, planned steps/s": sum(row["steps"] for row in rows) / seconds,
    }


def measured_by(build: str, repeat: int, steps: int) -> dict[str, float | list[list[int]]]:
    """Every part once, in a process of this build."""
    command = [sys.executable, __file__, "--measure", str(repeat), "--steps", str(steps)]
    # Packages that the interpreter has from there already stay within its reach.
    path = os.pathsep.join(filter(None, [str(BUILDS[build]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float | list[list[int]]] = json.loads(done.stdout)
    return found


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of each campaign")
    add_destination(parser, "compiled_speed")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options.steps)))
        return 0
    missing = [str(folder) for folder in BUILDS.values() if not folder.is_dir()]
    if missing:
        print(f"{' and '.join(missing)} not there: make compiled", file=sys.stderr)
        return 2
    found: dict[str, list[dict[str, float | list[list[int]]]]] = {build: [] for build in BUILDS}
    for repeat in range(options.repeats):
        for build in BUILDS:
            found[build].append(measured_by(build, repeat, options.steps))
        curves = [found[build][-1].pop("curve") for build in BUILDS]
        if curves[0] != curves[1]:
            print("the builds did not visit the same states", file=sys.stderr)
            return 1
    figures = {}
    print(f"  {'':<44}{'Python':>12}{'compiled':>12}{'ratio':>8}")
    for name in found["Python"][0]:
        plain, fast = ([float(one[name]) for one in found[build]] for build in BUILDS)  # type: ignore[arg-type]  # the curves are out
        figures[name] = {
            "Python": statistics.median(plain),
            "compiled": statistics.median(fast),
            "ratio": statistics.median(b / a for a, b in zip(plain, fast, strict=True)),
        }
        row = figures[name]
        goal = GOALS.get(name)
        told = "" if goal is None else f"   goal {goal:,}: " + (
            "reached" if row["compiled"] >= goal else "MISSED"
        )  # fmt: skip
        print(
            f"  {name:<44}{row['Python']:>12,.0f}{row['compiled']:>12,.0f}"
            f"{row['ratio']:>8.2f}{told}"
        )
    record = {
        **surroundings(),
        "python_build": sys.version,
        "repeats": options.repeats,
        "steps": options.steps,
        "figures": figures,
    }
    return 0 if write_record(options.json, record) else 2


if __name__ == "__main__":
    sys.exit(main())
