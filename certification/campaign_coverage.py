"""How much of a target's code a campaign's tapes run: measured where the target runs, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from poolproof.contract.outside import printable
from poolproof.contract.target import TargetError
from poolproof.fuzz.code_coverage import CoverageTask, is_installed, measure_coverage
from poolproof.fuzz.coverage_record import CodeCoverage, FileCoverage
from poolproof.fuzz.merge import CampaignState
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.isolation import Executor, Finished, raise_if_ours
from poolproof.targets.target import Target

__all__ = [
    "check_coverage",
    "coverage_lines",
    "coverage_of",
    "coverage_words",
    "missing_words",
]


def check_coverage() -> None:
    """Raises TargetError where there is nothing to measure with."""
    if not is_installed():
        raise TargetError("--coverage needs coverage.py: pip install 'poolproof[fuzz]'")


def coverage_of(
    executor: Executor[Target], settings: CampaignSettings, state: CampaignState
) -> CodeCoverage:
    """Replay the corpus in a worker; one that is lost says so in place of figures."""
    task = CoverageTask(settings, tuple(state.corpus.values()))
    (ended,) = executor.map(measure_coverage, [task])
    outcome = raise_if_ours(ended)
    if isinstance(outcome, Finished):
        return outcome.value
    return CodeCoverage(why_not=f"not measured: {outcome.sentence('replaying a tape')}")


def coverage_lines(coverage: CodeCoverage) -> Iterator[str]:
    """Figures, the curve, and for each file what was never reached."""
    yield f"code       {coverage_words(coverage)}"
    if not coverage.files:
        return
    points = [
        f"{point.num_lines:,} lines and {point.num_states:,} states by {_tapes(point.num_tapes)}"
        for point in coverage.curve
    ]
    yield f"curve      {', '.join(points)}"
    for file in coverage.files:
        if file.missing_lines:
            yield printable(f"unreached  {file.path}: {missing_words(file)}")


def coverage_words(coverage: CodeCoverage) -> str:
    """Lines and branches of the target in one sentence, or why there are none."""
    if not coverage.files:
        return printable(coverage.why_not or "no tape was replayed")
    left_out = ""
    if coverage.num_left_out:
        left_out = f", {coverage.num_left_out:,} later ones left out"
    return (
        f"lines of the target: {coverage.num_reached:,} of {coverage.num_lines:,} (branches "
        f"{coverage.num_taken:,} of {coverage.num_branches:,}), by "
        f"{_tapes(coverage.num_tapes)}{left_out}"
    )


def missing_words(file: FileCoverage) -> str:
    """The lines that were never reached, as `12, 14-19`."""
    return ", ".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in _ranges(file.missing_lines)
    )


def _ranges(lines: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for line in lines:
        if last is not None and line == last + 1:
            last = line
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = line
    if first is not None and last is not None:
        yield first, last


def _tapes(number: int) -> str:
    return f"{number:,} tape" if number == 1 else f"{number:,} tapes"
