"""How long planted bugs survive our workload, and one that prefers nothing.

For each specimen of queue, pool and manager, over many seeds: the commands that the plain driver
gives until it catches the bug, with the tuned workload and with the uniform one
(harness/uniform_workload.py), over pools of the same sizes. Medians and curves are Kaplan-Meier's,
since the uniform workload gives up after a budget. Exit status 1 when a goal is missed:

- where the uniform workload needs more than 1,000 commands, ours needs at most a tenth of them;
- nowhere does ours need more than twice as many, or 50 where that is more.

Usage: python benchmarks/survival.py [--seeds N] [--most-steps N] [--record] [ID ...]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from catching import SPECIMENS_BY_ID, Caught, campaign_of, steps_to_catch
from censored import median_steps, survival_curve
from record import add_destination, surroundings, write_record

HARD = 1_000
"""Specimens that need more commands than this of the uniform workload."""
FEW = 50
ENOUGH_STEPS = 100_000
"""Beyond so many commands in all, a specimen is given up after the fewest seeds."""
LEAST_SEEDS = 15


def measured(job: tuple[str, bool, int, int]) -> tuple[list[Caught], float]:
    """What becomes of one specimen under one workload, seed by seed, and the seconds it took."""
    specimen_id, uniform, seeds, most_steps = job
    found = SPECIMENS_BY_ID[specimen_id]
    began = time.process_time()
    caught: list[Caught] = []
    for seed in range(seeds):
        is_enough = sum(one.steps for one in caught) > ENOUGH_STEPS
        if uniform and is_enough and len(caught) >= LEAST_SEEDS:
            break
        caught.append(steps_to_catch(campaign_of(found, seed, uniform=uniform), most_steps))
    return caught, time.process_time() - began


def row_of(specimen_id: str, ours: list[Caught], uniform: list[Caught], budget: int) -> Any:
    """A specimen's medians, their ratio, and what is asked of it."""
    found = SPECIMENS_BY_ID[specimen_id]
    mine, theirs = median_steps(ours), median_steps(uniform)
    is_hard = theirs is None or theirs > HARD
    base = budget if theirs is None else theirs
    goal = base / 10 if is_hard else max(2 * base, FEW)
    return {
        "id": specimen_id, "level": found.level, "title": found.title, "thread": found.thread,
        "ours": mine, "uniform": theirs,
        "ratio": None if mine is None else round(mine / base, 4),
        "is_hard": is_hard, "goal": goal, "is_reached": mine is not None and mine <= goal,
        "seeds": [len(ours), len(uniform)],
        "not_caught": [sum(not one.is_caught for one in which) for which in (ours, uniform)],
    }  # fmt: skip


def curves(by_workload: dict[str, dict[str, list[Caught]]]) -> dict[str, Any]:
    """The curve of each workload, of all specimens and of each level.

    A specimen weighs the same however many of its seeds were run: its first `LEAST_SEEDS` count.
    """
    found: dict[str, Any] = {}
    for level in ("all", "queue", "pool", "manager"):
        found[level] = {}
        for workload, caught in by_workload.items():
            observations = [
                one
                for specimen_id, seeds in caught.items()
                if level in ("all", SPECIMENS_BY_ID[specimen_id].level)
                for one in seeds[:LEAST_SEEDS]
            ]
            if observations:
                found[level][workload] = [(s, round(v, 5)) for s, v in survival_curve(observations)]
    return found


def summary_of(rows: list[Any]) -> dict[str, Any]:
    """What the table comes to."""
    hard = [row for row in rows if row["is_hard"]]
    others = [row for row in rows if not row["is_hard"]]
    return {
        "specimens": len(rows),
        "hard": len(hard),
        "missed": [row["id"] for row in rows if not row["is_reached"]],
        "worst_hard": max(hard, key=lambda row: row["ratio"] or 9e9)["id"] if hard else None,
        "worst_other": max(others, key=lambda row: row["ratio"] or 9e9)["id"] if others else None,
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these specimens")
    parser.add_argument("--seeds", type=int, default=101, help="for each specimen and workload")
    parser.add_argument("--most-steps", type=int, default=50_000, help="after which one gives up")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    add_destination(parser, "survival")
    options = parser.parse_args()
    unknown = [name for name in options.ids if name not in SPECIMENS_BY_ID]
    if unknown:
        parser.error(f"no specimen {', '.join(unknown)}; bugs/catalogue.py has them")
    if min(options.seeds, options.most_steps, options.workers) < 1:
        parser.error("--seeds, --most-steps and --workers must be 1 or more")
    ids = options.ids or list(SPECIMENS_BY_ID)
    jobs = [(i, u, options.seeds, options.most_steps) for i in ids for u in (False, True)]
    with ProcessPoolExecutor(options.workers) as workers:
        done = dict(zip([job[:2] for job in jobs], workers.map(measured, jobs), strict=True))
    by_workload = {
        "ours": {i: done[i, False][0] for i in ids},
        "uniform": {i: done[i, True][0] for i in ids},
    }
    rows = [
        row_of(i, by_workload["ours"][i], by_workload["uniform"][i], options.most_steps)
        for i in ids
    ]
    summary = summary_of(rows)
    for row in rows:
        if row["is_hard"] or not row["is_reached"]:
            state = "" if row["is_reached"] else "   MISSED"
            uniform = row["uniform"] or f"> {options.most_steps}"
            print(f"{row['id']:<14}{row['ours']!s:>8}{uniform:>10}{row['ratio']!s:>9}{state}")
    print(summary)
    record = {
        **surroundings(),
        "cpu_seconds": round(sum(seconds for _, seconds in done.values()), 1),
        "seeds": options.seeds,
        "least_seeds": LEAST_SEEDS,
        "most_steps": options.most_steps,
        "summary": summary,
        "rows": rows,
        "curves": curves(by_workload),
    }
    if not write_record(options.json, record, indent=None):
        return 2
    return 1 if summary["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
