"""Which tests reach which function, and how long each takes: so that a mutant meets only those.

A test that starts a process is not followed into it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

import pytest
from trial import code_of, first_failure, forked, function_in

__all__ = ["Reach", "reach_of"]

Function = tuple[str, str]  # path and name: impl/block_pool.py, BlockPool.allocate


class Reach:
    """The tests of each function, cheapest first."""

    def __init__(
        self, functions: Mapping[Function, list[str]], cost_s: Mapping[str, float]
    ) -> None:
        self.cost_s = cost_s
        self._functions = functions

    def tests_of(self, function: Function) -> list[str]:
        """The names of the tests that call a function."""
        return sorted(self._functions.get(function, ()), key=lambda test: self.cost_s[test])


def reach_of(
    tests: Sequence[pytest.Item], functions: Sequence[Function], modules: Mapping[str, Any]
) -> Reach:
    """Run every test once in a child and see what it calls."""
    owner = {
        code: number
        for number, (path, name) in enumerate(functions)
        for code in code_of(function_in(vars(modules[path]), name).__code__)
    }

    def run(tell: int) -> None:
        with os.fdopen(tell, "w", closefd=False) as out:
            for test in tests:
                began_s = time.process_time()
                called, failed = _followed(test, owner)
                row = [test.nodeid, time.process_time() - began_s, sorted(called), failed]
                out.write(json.dumps(row) + "\n")

    _, told = forked(run)
    rows = [json.loads(line) for line in told.splitlines()]
    failed = [row[3] for row in rows if row[3]]
    if failed or len(rows) < len(tests):
        raise SystemExit(
            f"{failed or 'a test that ended the process'} failed without any mutant: "
            "mutants are tried against tests that pass."
        )
    found: dict[Function, list[str]] = {}
    for name, _, called, _ in rows:
        for number in called:
            found.setdefault(functions[number], []).append(name)
    return Reach(found, {row[0]: row[1] for row in rows})


def _followed(test: pytest.Item, owner: Mapping[CodeType, int]) -> tuple[set[int], str | None]:
    """What one test calls, and its name if it fails."""
    called: set[int] = set()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in owner:
            called.add(owner[frame.f_code])

    sys.setprofile(see)
    try:
        failed = first_failure([test], {test.nodeid: 1000.0})
    finally:
        sys.setprofile(None)
    return called, failed
