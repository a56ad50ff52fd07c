"""`poolproof explore TARGET`: every state of a small pool, of a target or of the specification.

Bounds, files and memory are checked before anything is explored.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from poolproof.cli.arguments import target_argument, with_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from poolproof.contract.profile import Profile
    from poolproof.exploration.breadth_first import Exploration
    from poolproof.exploration.scope import Scope

__all__ = ["explore_command"]

_PATH = click.Path(path_type=Path)

_ENOUGH_FOR_PROCESSES = 200_000
"""Below this many states, starting processes costs more than they save."""

_ENOUGH_FOR_BULK = 3_000
"""Below this many orbits, importing NumPy takes longer than visiting them one by one."""

_NOTHING_LEFT = "all of it was in the folder"

SPECIFICATION = "specification"
"""Named like a target, so that a name that was left out is never taken for it."""


@click.command("explore")
@target_argument(also=f"{SPECIFICATION} (the rules alone, beside no target)")
@click.option(
    "--blocks",
    type=click.IntRange(min=1),
    help="Blocks; by default 4, 6 for the specification, 3 per cache group for others.",
)
@click.option("--hashes", type=click.IntRange(min=0), default=2, show_default=True)
@click.option("--references", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--no-symmetry", is_flag=True, help="Visit every state, not one per orbit.")
@click.option("--pairs", is_flag=True, help="Also try calls for two blocks, and misuse.")
@click.option(
    "--commands",
    type=click.IntRange(min=1),
    metavar="K",
    help="Manager, engine: try all workloads of up to K commands; 4 by default.",
)
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    metavar="N",
    help="Engine: at most so many requests at once; 2 by default.",
)
@click.option(
    "--states",
    type=click.IntRange(min=1),
    metavar="N",
    help="Engine: stop a set-up behind so many states; 200,000 by default.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Engine: stop a set-up after so long; no limit by default.",
)
@click.option(
    "--layout",
    "layouts",
    multiple=True,
    metavar="NAME",
    help="Run this layout of a manager or an engine only.",
)
@click.option("--profile", "rows", multiple=True, metavar="KEY=VALUE", help="Set a profile row.")
@click.option(
    "--max-depth",
    type=click.IntRange(min=0),
    help="Specification: stop this many transitions away.",
)
@click.option("--dot", type=_PATH, help="Specification: write a small graph for Graphviz.")
@click.option("--json", "json_file", type=_PATH, help="Specification: write a small graph as JSON.")
@click.option(
    "--html",
    "html_file",
    type=_PATH,
    help="Write a page to walk through: the states, or the path to each failure.",
)
@click.option(
    "--resume", type=_PATH, help="Specification: keep the work in this folder and resume from it."
)
@click.option(
    "--memory-limit",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Refuse what would take more; three quarters of the free memory by default.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes; one per CPU where it pays.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--in-process", is_flag=True, help="Use no child processes or limits.")
@click.option("--cross-check", is_flag=True, help="Specification: compare with TLC and SPIN.")
def explore_command(
    *,
    target: str,
    blocks: int | None,
    hashes: int,
    references: int,
    no_symmetry: bool,
    pairs: bool,
    commands: int | None,
    requests: int | None,
    states: int | None,
    seconds: float | None,
    layouts: tuple[str, ...],
    rows: tuple[str, ...],
    max_depth: int | None,
    dot: Path | None,
    json_file: Path | None,
    html_file: Path | None,
    resume: Path | None,
    memory_limit: int | None,
    workers: int | None,
    seed: int,
    in_process: bool,
    cross_check: bool,
) -> None:
    """Visit every state of a small pool of TARGET, comparing it with the specification.

    For a manager or an engine: try every workload of up to K commands, compared with its model and
    shadow memory. With `specification` for TARGET: count the states of the rules alone.

    Exit status: 0 TARGET is right in every state, 1 it breaks something, 2 not carried out, or
    interrupted.
    """
    from poolproof.certification.options import usable_processors
    from poolproof.exploration.scope import Scope, check_memory, usable_mib
    from poolproof.report.output_files import check_file

    is_alone = target == SPECIFICATION
    scope = Scope(blocks or (6 if is_alone else 4), hashes, references)
    limit_mib = memory_limit or usable_mib()
    symmetry = not no_symmetry
    why_not = _why_not_in_bulk(scope, workers, symmetry=symmetry) if is_alone else ""
    in_bulk = why_not is None
    check_memory(scope, limit_mib, symmetry=symmetry, in_bulk=in_bulk, why=why_not or "")
    if not is_alone:
        _refuse_beside_target(max_depth, dot, json_file, resume, cross_check)
        if html_file is not None:
            check_file(html_file)
        sys.exit(
            _explore_target(
                with_rows(target, rows).text, html_file,
                num_blocks=blocks, num_hashes=hashes, max_references=references, pairs=pairs,
                symmetry=symmetry, max_commands=commands, max_live=requests,
                max_states=states, max_seconds=seconds, layouts=layouts, seed=seed,
                workers=workers, in_process=in_process, memory_mib=limit_mib,
            )
        )  # fmt: skip
    if pairs or in_process or commands or layouts or requests or states or seconds:
        raise click.UsageError(
            "--pairs, --commands, --requests, --states, --seconds, --layout and --in-process are "
            f"for allocators, and the {SPECIFICATION} is none; name another TARGET"
        )
    if cross_check:
        sys.exit(_cross_check(scope))
    scope = scope.under(_profile(rows))
    _check_outputs(scope, (dot, json_file), html_file, symmetry=symmetry)
    enough = (scope.num_orbits if symmetry else scope.num_states) > _ENOUGH_FOR_PROCESSES
    count = workers or (usable_processors() if enough and not in_bulk else 1)
    found, memory_mib, did = _explore(
        scope, count, resume, max_depth, symmetry=symmetry, in_bulk=in_bulk
    )
    how = did + (f" ({why_not})" if why_not and did != _NOTHING_LEFT else "")
    graphs = (dot, json_file)
    sys.exit(_report(found, graphs, html_file, workers=count, memory_mib=memory_mib, how=how))


def _why_not_in_bulk(scope: Scope, workers: int | None, *, symmetry: bool) -> str | None:
    """Why the specification is not explored in bulk; None if it is."""
    from poolproof.exploration.packed_orbits import why_not_in_bulk

    if not symmetry:
        return "only orbits can be"
    if workers is not None and workers > 1:
        return "--workers asks for processes"
    if scope.num_orbits < _ENOUGH_FOR_BULK:
        return f"fewer than {_ENOUGH_FOR_BULK:,} orbits"
    return why_not_in_bulk(scope)


def _explore_target(target: str, html_file: Path | None, **arguments: Any) -> int:
    """Explore, print what was reached and what broke, and give the exit status."""
    from poolproof.api import explore
    from poolproof.certification.progress import progress_to
    from poolproof.report.explorer_page import failures_page
    from poolproof.report.finding_report import finding_report
    from poolproof.report.output_files import write_if_possible
    from poolproof.report.text_form import show

    with progress_to(sys.stderr) as progress:
        found = explore(target, progress=progress, **arguments)
    click.echo(f"target      {found.target}, {found.source}")
    for stage in found.stages:
        click.echo(f"{stage.level:<11} {stage.stage}: {stage.outcome.value}")
        click.echo(f"reached     {stage.note}")
        click.echo(f"took        {stage.seconds:.2f} s, {stage.steps:,} commands compared")
    if found.interrupted:
        click.echo(f"truncated   interrupted: {found.interrupted}")
    for finding in found.findings:
        show(finding_report(finding))
    if html_file is not None:
        write_if_possible(html_file, failures_page(found))
    return 2 if found.interrupted else int(bool(found.findings))


def _explore(
    scope: Scope,
    workers: int,
    resume: Path | None,
    max_depth: int | None,
    *,
    symmetry: bool,
    in_bulk: bool,
) -> tuple[Exploration, int, str]:
    """The exploration, the memory that it took, in MiB, and how its states were visited."""
    from contextlib import ExitStack

    from poolproof.certification.progress import progress_to
    from poolproof.exploration.breadth_first import (
        OnePartition,
        Partitions,
        WorkerProcesses,
        explore,
        space_of,
    )
    from poolproof.exploration.level_files import LevelFiles
    from poolproof.exploration.scope import peak_mib

    space = space_of(scope, symmetry=symmetry)
    files = LevelFiles(resume, space) if resume else None
    earlier = files.earlier() if files else None
    with ExitStack() as stack:
        progress = stack.enter_context(progress_to(sys.stderr))
        if earlier is not None and earlier.stopped == "complete":
            earlier.stopped = ""
            return earlier, peak_mib(), _NOTHING_LEFT
        if earlier is not None:
            progress.say(f"continuing behind {earlier.total.num_found:,} states")
        number, unit = (scope.num_orbits, "orbits") if symmetry else (scope.num_states, "states")
        progress.begin(f"exploring {scope}", number, unit)
        progress.advance(0 if earlier is None else earlier.total.num_found)
        partitions: Partitions
        if in_bulk:
            from poolproof.exploration.bulk_partition import BulkPartition

            partitions = BulkPartition(scope)
            how = "in bulk, whole levels at once"
        else:
            partitions = OnePartition(space)
            how = "orbit by orbit" if symmetry else "state by state"
            if workers > 1:
                processes = WorkerProcesses(scope, workers, symmetry=symmetry)
                partitions = stack.enter_context(processes)

        def after_level(found: Exploration, frontier: Iterator[bytes]) -> None:
            progress.advance(found.levels[-1].num_found)
            if files is not None:
                files.keep(found, frontier)

        if files is not None and earlier is not None:
            partitions.begin(files.levels(earlier))
        found = explore(
            space, partitions, max_depth=max_depth, after_level=after_level, earlier=earlier
        )
        memory_mib = partitions.memory_mib()
        progress.end()
    return found, memory_mib, how


def _report(
    found: Exploration,
    graphs: tuple[Path | None, Path | None],
    html_file: Path | None,
    *,
    workers: int,
    memory_mib: int,
    how: str,
) -> int:
    """Print what was found, write the graphs and the page, and give the exit status."""
    from poolproof.exploration.breadth_first import space_of
    from poolproof.exploration.graph import as_dot, as_json
    from poolproof.report.explore_report import exploration_lines, is_as_counted
    from poolproof.report.explorer_page import space_page
    from poolproof.report.output_files import write_if_possible

    for line in exploration_lines(found, workers=workers, memory_mib=memory_mib, how=how):
        click.echo(line)
    space = space_of(found.scope, symmetry=found.has_symmetry)
    dot, json_file = graphs
    if dot is not None:
        write_if_possible(dot, as_dot(space))
    if json_file is not None:
        write_if_possible(json_file, as_json(space))
    if html_file is not None:
        write_if_possible(html_file, space_page(space))
    interrupted = found.stopped == "interrupted"
    return 2 if interrupted or not is_as_counted(found) else 0


def _check_outputs(
    scope: Scope, graphs: tuple[Path | None, ...], html_file: Path | None, *, symmetry: bool
) -> None:
    from poolproof.exploration.graph import check_size
    from poolproof.report.output_files import check_file

    number = scope.num_orbits if symmetry else scope.num_states
    for what, files in (("graph", graphs), ("page", (html_file,))):
        for path in files:
            if path is not None:
                check_size(number, what)
                check_file(path)


def _refuse_beside_target(*options: object) -> None:
    if any(option not in {None, False} for option in options):
        raise click.UsageError(
            "--max-depth, --dot, --json, --resume and --cross-check are for the rules alone; "
            f"say {SPECIFICATION} instead of the TARGET"
        )


def _profile(rows: tuple[str, ...]) -> Profile:
    from poolproof.contract.profile import Profile

    return Profile.from_mapping(with_rows("reference", rows).rows)


def _cross_check(scope: Scope) -> int:
    from poolproof.exploration.cross_check import cross_check

    results = cross_check(scope)
    for result in results:
        click.echo(result.sentence)
    if any(result.differs for result in results):
        return 1
    return 0 if any(result.ran for result in results) else 2
