"""Mutation testing of our own code: each change that mutmut makes, against the tests that reach it.

Takes an hour or so of one core. Where it stopped it goes on: what was found stands in
build/mutation/verdicts.jsonl, and a mutant is tried again if its file changed, or if it survived.
It ends with outcome.py, which writes the result.

Usage: python benchmarks/mutation/run.py [--folder impl ...] [--file free_queue ...] [--tests P ...]
       [--record]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

import pytest
from equivalents import read_list
from mutants import Mutant, mutants_of
from outcome import (
    FOLDERS,
    ROOT,
    VERDICTS,
    add_destination,
    change_of,
    known_verdicts,
    write_outcome,
)
from reach import Function, Reach, reach_of
from recorded import mutated_paths
from trial import Trial, tried

# The tests of a mutant that is listed as equivalent take no longer than this, each.
LISTED_MOST_S = 0.01


class Campaign:
    """A plugin that tries mutants where pytest would run the tests that it collected."""

    def __init__(self, paths: Sequence[str], known: dict[str, Any], most_s: float) -> None:
        self.paths = paths
        self.known = known
        self.most_s = most_s
        self.killers: dict[Function, list[str]] = {}
        self.listed = {change_of(entry) for entry in read_list()}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed("the tests cannot be collected")
        mutants = [mutant for path in self.paths for mutant in mutants_of(ROOT, path)]
        again = {None, "survived", "unreached"}
        wanted = [mutant for mutant in mutants if self.known.get(mutant.name) in again]
        print(
            f"{len(mutants)} mutants, {len(wanted)} to try, {len(session.items)} tests", flush=True
        )
        modules = {path: import_module(module_name(path)) for path in self.paths}
        functions = sorted({(mutant.path, mutant.function) for mutant in mutants})
        reach = reach_of(session.items, functions, modules)
        print(
            f"the tests take {sum(reach.cost_s.values()):.0f} s while they are watched", flush=True
        )
        tests = {item.nodeid: item for item in session.items}
        with VERDICTS.open("a", encoding="utf-8") as out:
            for number, mutant in enumerate(wanted):
                names = self.in_order(mutant, reach)
                found = tried(
                    mutant, modules[mutant.path], [tests[name] for name in names], reach.cost_s
                )
                if found.killer in tests:
                    self.killers.setdefault((mutant.path, mutant.function), []).insert(
                        0, found.killer
                    )
                out.write(json.dumps(row_of(mutant, found)) + "\n")
                out.flush()
                show(number, len(wanted), mutant, found)
        return True

    def in_order(self, mutant: Mutant, reach: Reach) -> list[str]:
        """The tests of a mutant: first what caught its neighbours, then the cheapest.

        Long ones are spared those that are listed as equivalent: they would meet all of them.
        """
        function = (mutant.path, mutant.function)
        most_s = LISTED_MOST_S if change_of(mutant) in self.listed else self.most_s
        reached = reach.tests_of(function)
        cheap = [name for name in reached if reach.cost_s[name] <= most_s] or reached[:1]
        first = list(dict.fromkeys(self.killers.get(function, ())))[:5]
        return list(dict.fromkeys([*first, *cheap]))


def module_name(path: str) -> str:
    """The module of a file."""
    return "poolproof." + path.removesuffix(".py").replace("/", ".")


def row_of(mutant: Mutant, found: Trial) -> dict[str, Any]:
    """A mutant and what became of it, without the source."""
    row = {key: value for key, value in asdict(mutant).items() if key != "source"}
    return {"name": mutant.name, **row, **asdict(found)}


def show(number: int, total: int, mutant: Mutant, found: Trial) -> None:
    """A line for each mutant that got through, and for each hundredth."""
    if found.verdict != "killed" or number % 100 == 0:
        change = f"{mutant.before}  =>  {mutant.after}"
        print(
            f"{number}/{total} {found.verdict} {mutant.path} {mutant.function}: {change}",
            flush=True,
        )


def main() -> int:
    """Try all mutants that are not known yet, and record what is known then."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", nargs="+", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--file", nargs="+", help="only these files: free_queue ...")
    parser.add_argument("--tests", nargs="+", help="these tests and not all of the folder's")
    parser.add_argument("--most-s", type=float, default=math.inf, help="leave out longer tests")
    add_destination(parser, "mutation")
    arguments = parser.parse_args()
    for name in arguments.file or ():
        if not any(mutated_paths(ROOT, folder, [name]) for folder in arguments.folder):
            parser.error(f"no file {name}.py in {', '.join(arguments.folder)}")
    VERDICTS.parent.mkdir(parents=True, exist_ok=True)
    for folder in arguments.folder:
        paths = mutated_paths(ROOT, folder, arguments.file)
        if not paths:
            continue
        campaign = Campaign(paths, known_verdicts(), arguments.most_s)
        tests = arguments.tests or [f"tests/{folder}"]
        options = ["-qq", "--capture=no", "-p", "no:cacheprovider", *tests]
        status = pytest.main(options, plugins=[campaign])
        if status:
            return int(status)
    return write_outcome(arguments.json, arguments.folder, arguments.file)


if __name__ == "__main__":
    sys.exit(main())
