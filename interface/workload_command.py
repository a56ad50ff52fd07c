"""`poolproof workload FILE`: replay real request traces, checked while they run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from poolproof.harness.request_workload import RequestWorkload, WorkloadResult
    from poolproof.targets.target import Target

__all__ = ["workload_command"]

_FULL_EVERY = 100


def _check_rate(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """`every`, N or `off`: compare the state for every request, for one in N, or for none."""
    if value == "off":
        return None
    rate = 1 if value == "every" else int(value) if value.isdecimal() else 0
    if rate < 1:
        message = f"{value!r} is not every, off or a number of at least 1"
        raise click.BadParameter(message, ctx, param)
    return rate


@click.command("workload")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--target", "targets", multiple=True, help="May be given several times. [impl]")
@click.option(
    "--blocks", type=click.IntRange(min=1, max=10_000_000), default=200_000, show_default=True
)
@click.option("--block-size", type=int, default=16, show_default=True, help="Tokens a block.")
@click.option(
    "--concurrent",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Requests that are live at most.",
)
@click.option(
    "--finish",
    type=click.Choice(["fifo", "output-length"]),
    default="fifo",
    show_default=True,
    help="Which live request ends next.",
)
@click.option(
    "--check",
    metavar="every|N|off",
    callback=_check_rate,
    default="every",
    show_default=True,
    help="Compare the state with the specification for every request, for one in N, or never.",
)
@click.option("--limit", type=click.IntRange(min=1), help="The first so many requests only.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures.")
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path),
    help="Write the trace of each violation into this folder.",
)
def workload_command(
    *,
    file: Path,
    targets: tuple[str, ...],
    blocks: int,
    block_size: int,
    concurrent: int,
    finish: str,
    check: int | None,
    limit: int | None,
    json_file: Path | None,
    report_folder: Path | None,
) -> None:
    """Replay the requests of FILE, a trace in the Mooncake format, on block pools.

    Each prompt is looked up block by block, its cached prefix is held, the rest is allocated and
    cached, and its blocks go back in reverse order. The pools run in this process.

    Exit status: 0 holds, 1 a violation was found, 2 the replay could not be carried out.
    """
    from poolproof.harness.request_trace import read_requests
    from poolproof.harness.request_workload import RequestWorkload
    from poolproof.output_files import check_file, check_folder, write_file
    from poolproof.targets.load import load_target
    from poolproof.terminal import show
    from poolproof.workload_report import workload_json, workload_report

    if json_file is not None:
        check_file(json_file)
    if report_folder is not None:
        check_folder(report_folder)
    try:
        workload = RequestWorkload(
            requests=read_requests(file, limit),
            num_blocks=blocks,
            block_size=block_size,
            concurrent=concurrent,
            finish=finish,
            check_every=check,
            full_every=_FULL_EVERY,
        )
    except ValueError as error:
        _stop(str(error))
    loaded = [load_target(name) for name in targets or ("impl",)]
    results = _run_all(workload, loaded)
    show(workload_report(workload, results))
    if json_file is not None:
        write_file(json_file, workload_json(file, workload, results))
    if report_folder is not None:
        _write_traces(results, report_folder)
    if any(result.violation is not None for result in results):
        sys.exit(1)
    if any(not result.counts.blocks for result in results):
        _stop(f"no request of {file} fits into {blocks} blocks of {block_size} tokens; raise one")


def _run_all(workload: RequestWorkload, targets: list[Target]) -> list[WorkloadResult]:
    """The results in the order of the targets; a queue among them ends the run."""
    from poolproof.contract.target import TargetError
    from poolproof.progress import progress_to

    queues = [target.name for target in targets if target.level != "pool"]
    if queues:
        raise TargetError(f"{queues[0]} is a queue; requests need a pool, such as impl")
    results = []
    with progress_to(sys.stderr) as progress:
        for target in targets:
            progress.begin(f"{target.name}: requests", len(workload.requests))
            results.append(
                workload.run(target.name, target.make, target.profile, lambda: progress.advance(1))
            )
            progress.end()
    return results


def _write_traces(results: list[WorkloadResult], folder: Path) -> None:
    from poolproof.output_files import write_file

    for number, result in enumerate(results, start=1):
        if result.trace is not None:
            path = folder / f"workload-{number}.jsonl"
            write_file(path, "\n".join(result.trace.lines()) + "\n")
            click.echo(f"trace of {result.name} written to {path}; next: poolproof shrink {path}")


def _stop(message: str) -> NoReturn:
    from poolproof.wording import printable

    click.echo(f"poolproof: {printable(message)}", err=True)
    sys.exit(2)
