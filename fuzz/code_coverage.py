"""Replays a corpus under coverage.py: which lines and branches of the target its tapes run.

Reported next to the states and never used to choose anything: in an allocator a few tapes run all
that can be run, and then every tape looks the same. The curve shows this.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.fuzz.coverage_record import CodeCoverage, CoveragePoint, FileCoverage
from poolproof.fuzz.level_runs import runs_of
from poolproof.fuzz.merge import CampaignState
from poolproof.fuzz.messages import CorpusTape
from poolproof.fuzz.recorded_choices import RecordedChoices, answers_of, new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import unpack
from poolproof.fuzz.subject import subject_of
from poolproof.fuzz.target_files import files_of
from poolproof.harness.isolation import Beacon, Executor, Finished, raise_if_ours

__all__ = ["MOST_STEPS", "CoverageTask", "check_coverage", "coverage_of", "measure_coverage"]

MOST_STEPS = 50_000
"""Tapes beyond this many commands are left out: they would take minutes to say nothing new."""

_OPTIMISED = 0x1
"""The flag of code whose names are its own: a function's, and not a module's or a class's."""


@dataclass(frozen=True, slots=True)
class CoverageTask:
    """A campaign's tapes, in the order in which they were kept."""

    settings: CampaignSettings
    tapes: tuple[CorpusTape, ...]


def is_installed() -> bool:
    """Whether there is a coverage.py to measure with."""
    try:
        import coverage  # noqa: F401 -- whether it can be imported is the question
    except ImportError:
        return False
    return True


def check_coverage() -> None:
    """Raises TargetError if there is nothing to measure with."""
    if not is_installed():
        raise TargetError("--coverage needs coverage.py: pip install 'poolproof[fuzz]'")


def coverage_of(
    executor: Executor[Any], settings: CampaignSettings, state: CampaignState
) -> CodeCoverage:
    """Replay the corpus in a worker; if that is lost, return that instead of figures."""
    task = CoverageTask(settings, tuple(state.corpus.values()))
    (ended,) = executor.map(measure_coverage, [task])
    outcome = raise_if_ours(ended)
    if isinstance(outcome, Finished):
        return outcome.value
    return CodeCoverage(why_not=f"not measured: {outcome.sentence('replaying a tape')}")


def measure_coverage(target: Any, task: CoverageTask, beacon: Beacon) -> CodeCoverage:
    """Replay the tapes; a job for an isolation. Raises TargetError."""
    beacon.bump()
    files = files_of(target, task.settings.driven_level)
    if not files:
        return CodeCoverage(why_not="the target has no Python source whose lines could be counted")
    tapes = tuple(_affordable(task.tapes))
    meter = _Meter(files)
    runs = runs_of(subject_of(target, task.settings), set(), random.Random(0))
    curve, states = [], set[int]()
    for number, tape in enumerate(tapes, start=1):
        choices = RecordedChoices(new_cells(), None, answers_of(tape.tape))
        with meter:
            runs.run(choices, runs.visits(set()), beacon.bump, max_steps=runs.longest_run)
        states.update(unpack(tape.states))
        if number == len(tapes) or _is_power_of_ten(number):
            seen = CodeCoverage(meter.read())
            curve.append(CoveragePoint(number, seen.num_reached, seen.num_taken, len(states)))
            beacon.bump()
    return CodeCoverage(meter.read(), tuple(curve), len(tapes), len(task.tapes) - len(tapes))


def _affordable(tapes: Sequence[CorpusTape]) -> Iterator[CorpusTape]:
    steps = 0
    for tape in tapes:
        steps += tape.num_steps
        if steps > MOST_STEPS:
            return
        yield tape


def _is_power_of_ten(number: int) -> bool:
    return str(number).strip("0") == "1"


class _Meter:
    """Measures while its block runs; what was measured adds up."""

    def __init__(self, files: Sequence[Path]) -> None:
        import coverage

        self._files = files
        self._lines = {path: _lines_in_functions(path) for path in files}
        self._coverage = coverage.Coverage(
            data_file=None,
            branch=True,
            config_file=False,
            include=[str(path) for path in files],
            messages=False,
        )

    def __enter__(self) -> None:
        with _without_remarks():
            self._coverage.start()

    def __exit__(self, *_: object) -> None:
        self._coverage.stop()

    def read(self) -> tuple[FileCoverage, ...]:
        """What has run so far."""
        with tempfile.TemporaryDirectory(prefix="poolproof-") as folder, _without_remarks():
            path = Path(folder, "coverage.json")
            self._coverage.json_report([str(f) for f in self._files], outfile=str(path))
            found = json.loads(path.read_text(encoding="utf-8"))["files"]
        # coverage.py names files as seen from where it was made.
        by_path = {Path(name).resolve(): value for name, value in found.items()}
        return tuple(
            _of_functions(path, by_path[path], self._lines[path])
            for path in self._files
            if path in by_path
        )


@contextlib.contextmanager
def _without_remarks() -> Iterator[None]:
    """coverage.py remarks on files that never ran; here that is the question."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _of_functions(path: Path, found: dict[str, Any], inside: set[int]) -> FileCoverage:
    missing = tuple(line for line in found["missing_lines"] if line in inside)
    reached = [line for line in found["executed_lines"] if line in inside]
    missing_branches = tuple((a, b) for a, b in found["missing_branches"] if a in inside)
    taken = [a for a, _ in found["executed_branches"] if a in inside]
    return FileCoverage(
        os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path),
        len(reached) + len(missing),
        len(taken) + len(missing_branches),
        missing,
        missing_branches,
    )


def _lines_in_functions(path: Path) -> set[int]:
    """The lines that run when a function of the file is called."""
    lines: set[int] = set()
    waiting = [compile(path.read_bytes(), str(path), "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        waiting += [value for value in code.co_consts if isinstance(value, CodeType)]
        if code.co_flags & _OPTIMISED:
            lines.update(line for _, _, line in code.co_lines() if line is not None)
            # The line of `def` itself runs at import.
            lines.discard(code.co_firstlineno)
    return lines
