"""How short minimised traces of engines are, beside what breadth-first search says is shortest.

For each planted bug the plain driver finds failing runs, from several seeds; each is minimised.
Then, for each way in which they fail, every sequence of commands up to one less than the shortest
trace of them is tried, breadth first, on as many blocks, over the requests of that trace and the
tokens that its steps sample: either one of them fails in that way, and is the shortest of all over
these requests, or none does, and the trace is. A bound on states and on time ends a search; then it
is said up to which length nothing fails. Traces beyond what such a search reaches are not searched.

Usage: python benchmarks/engine_exploration.py [--states N] [--seconds S] [--only ID ...] [--record]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from engine_specimens import first_failure
from record import add_destination, surroundings, write_record

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_specimen import BLOCK_SIZE, EngineSpecimen
from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.exploration.engine_grammar import scope_of_trace
from poolproof.exploration.shortest import ShortestResult, shortest_engine_failure
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.minimise import minimise, run_candidate

SEEDS = (0, 1)
MOST_RUNS = 400
MOST_COMMANDS = 14
"""Longer traces are not searched below: no search came so far within its bounds."""

GOAL = 2
"""A minimised trace is short enough if it has so many commands more than the fewest."""


_SHOWN = ("id", "invariant", "minimised", "fewest")


def minimised(found: EngineSpecimen) -> list[Trace]:
    """The first failing run of each seed that has one, minimised."""
    traces = []
    for seed in SEEDS:
        campaign = EngineCampaign(found.id, found.make, found.profile, BLOCK_SIZE, seed=seed)
        _, trace = first_failure(campaign, MOST_RUNS)
        if trace is not None:
            traces.append(minimise(trace, lambda s, c: run_candidate(s, c, found.make)))
    return traces


def searched(
    found: EngineSpecimen, trace: Trace, most_states: int, most_s: float
) -> ShortestResult:
    """What fails in the trace's way in fewer commands than it has."""
    assert trace.violation is not None
    kind = failure_kind(trace.violation, trace.commands)

    def is_wanted(violation: Violation, commands: tuple[Command, ...]) -> bool:
        return failure_kind(violation, commands) == kind

    return shortest_engine_failure(
        found.make,
        found.profile,
        scope_of_trace(trace.commands, trace.num_blocks, BLOCK_SIZE),
        enable_caching=trace.enable_caching,
        max_commands=len(trace.commands) - 1,
        max_states=most_states,
        max_seconds=most_s,
        is_wanted=is_wanted,
    )


def rows_of(found: EngineSpecimen, most_states: int, most_s: float) -> list[dict[str, Any]]:
    """One row of the table for each way in which the specimen fails."""
    ways: dict[FailureKind, list[Trace]] = {}
    for trace in minimised(found):
        assert trace.violation is not None
        ways.setdefault(failure_kind(trace.violation, trace.commands), []).append(trace)
    return [row_of(found, traces, most_states, most_s) for traces in ways.values()]


def row_of(
    found: EngineSpecimen, traces: list[Trace], most_states: int, most_s: float
) -> dict[str, Any]:
    """The traces that fail in one way, and the fewest commands of any that does."""
    shortest = min(traces, key=lambda trace: len(trace.commands))
    length = len(shortest.commands)
    assert shortest.violation is not None
    row = {
        "id": found.id,
        "title": found.title,
        "invariant": shortest.violation.invariant,
        "blocks": shortest.num_blocks,
        "minimised": [len(trace.commands) for trace in traces],
        "fewest": None,
        "none_up_to": None,
        "states": None,
        "shorter": None,
    }
    if length > MOST_COMMANDS:
        return row
    result = searched(found, shortest, most_states, most_s)
    row["none_up_to"] = max(result.depth, 0)
    row["states"] = result.num_states
    if result.commands is not None:
        row["fewest"] = len(result.commands)
        row["shorter"] = list(map(str, result.commands))
    elif result.exhausted or result.depth >= length - 1:
        row["fewest"] = length
    return row


def measured(
    wanted: Sequence[EngineSpecimen], most_states: int, most_s: float
) -> list[dict[str, Any]]:
    """The rows of these; of those that were reached, where Ctrl-C ends it."""
    rows = []
    with suppress(KeyboardInterrupt):
        for found in wanted:
            of_this = rows_of(found, most_states, most_s)
            rows += of_this
            for row in of_this:
                print({key: row[key] for key in _SHOWN}, flush=True)
    return rows


def record_of(
    rows: list[dict[str, Any]], num_bugs: int, most_states: int, most_s: float
) -> dict[str, Any]:
    """The rows, with how many of them are as short as they should be."""
    reached = [row for row in rows if row["fewest"] is not None]
    return {
        **surroundings(),
        "load_average": os.getloadavg()[0],
        "most_states": most_states,
        "most_seconds": most_s,
        "num_seeds": len(SEEDS),
        "num_bugs": num_bugs,
        "num_measured": len({row["id"] for row in rows}),
        "goal": GOAL,
        "reached": len(reached),
        "within": sum(max(row["minimised"]) <= row["fewest"] + GOAL for row in reached),
        "equal": sum(max(row["minimised"]) == row["fewest"] for row in reached),
        "rows": rows,
    }


def main() -> int:
    """Measure every specimen and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=20_000, help="bound of each search")
    parser.add_argument("--seconds", type=float, default=60, help="bound of each search")
    parser.add_argument("--only", nargs="*", default=(), metavar="ID")
    add_destination(parser, "engine_exploration")
    given = parser.parse_args()
    wanted = [s for s in ENGINE_SPECIMENS.values() if not given.only or s.id in given.only]
    rows = measured(wanted, given.states, given.seconds)
    record = record_of(rows, len(wanted), given.states, given.seconds)
    return 0 if write_record(given.json, record) else 2


if __name__ == "__main__":
    sys.exit(main())
