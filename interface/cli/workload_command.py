"""`poolproof workload FILE`: replay real request traces, checked while they run.

Block pools serve the prompts; managers serve prompts and outputs, token by token.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from poolproof.cli.arguments import known_targets, not_empty, require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from poolproof.harness.request_workload import RequestWorkload, WorkloadResult
    from poolproof.harness.sequence_workload import SequenceWorkload, SequenceWorkloadResult
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
@click.option(
    "--target", "targets", multiple=True, callback=not_empty, help="May be given several times."
)
@click.option(
    "--blocks",
    type=click.IntRange(min=1, max=10_000_000),
    help="[200000; for managers 4000]",
)
@click.option("--block-size", type=int, default=16, show_default=True, help="Tokens per block.")
@click.option(
    "--tokens-per-id",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Managers: tokens served for each 512 of the trace.",
)
@click.option(
    "--concurrent",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Most requests that are live at once.",
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
@click.option(
    "--generate",
    type=click.IntRange(min=1),
    metavar="N",
    help="Write N generated requests to FILE first (see --seed).",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of --generate.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Replay only the first N requests."
)
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
    blocks: int | None,
    block_size: int,
    tokens_per_id: int,
    concurrent: int,
    finish: str,
    check: int | None,
    generate: int | None,
    seed: int,
    limit: int | None,
    json_file: Path | None,
    report_folder: Path | None,
) -> None:
    """Replay the requests of FILE, a trace in the Mooncake format.

    On block pools each prompt is looked up block by block, its cached prefix is held, the rest is
    allocated and cached, and its blocks go back in reverse order. A manager serves prompts and
    outputs with continuous batching and preemption, every read compared with shadow memory; its
    own block size counts. The targets run in this process.

    Exit status: 0 holds, 1 a violation was found, 2 the replay could not be carried out.
    """
    from poolproof.harness.request_trace import read_requests
    from poolproof.harness.request_workload import RequestWorkload
    from poolproof.report.output_files import check_file, check_folder
    from poolproof.report.workload_report import workload_json, workload_report
    from poolproof.targets.load import load_target

    require(targets[0] if targets else None, "--target", known_targets())
    if generate is not None:
        _generate(file, generate, seed)
    if json_file is not None:
        check_file(json_file)
    if report_folder is not None:
        check_folder(report_folder)
    loaded = [load_target(name) for name in targets]
    try:
        requests = read_requests(file, limit)
    except ValueError as error:
        _stop(str(error))
    if any(target.level.has_sequences for target in loaded):
        _serve_sequences(
            file, loaded, json_file, report_folder,
            requests=requests, num_blocks=blocks or 4_000, concurrent=concurrent,
            tokens_per_id=tokens_per_id, check_every=check or 1_000_000,
        )  # fmt: skip
        return
    num_blocks = blocks or 200_000
    try:
        workload = RequestWorkload(
            requests=requests,
            num_blocks=num_blocks,
            block_size=block_size,
            concurrent=concurrent,
            finish=finish,
            check_every=check,
            full_every=_FULL_EVERY,
        )
    except ValueError as error:
        _stop(str(error))
    for target in loaded:
        workload.check(target.name, target.profile)
    results = _run_all(workload, loaded)
    text = workload_json(file, workload, results)
    _report(results, workload_report(workload, results), text, json_file, report_folder)
    if any(not result.counts.blocks for result in results):
        _stop(
            f"no request of {file} fits into {num_blocks} blocks of {block_size} tokens; raise one"
        )


def _generate(file: Path, count: int, seed: int) -> None:
    """Write a generated trace, but never over an existing file: it may be a user's record."""
    from itertools import islice

    from poolproof.harness.request_generator import generate_requests, write_requests

    if file.exists():
        _stop(f"{file} exists; --generate writes a new file")
    try:
        write_requests(file, list(islice(generate_requests(seed), count)))
    except OSError as error:
        _stop(f"cannot write {file}: {error.strerror or error}")


def _serve_sequences(
    file: Path,
    targets: list[Target],
    json_file: Path | None,
    report_folder: Path | None,
    **settings: Any,
) -> None:
    """Managers serve whole sequences; each has its own block size, so they run one by one."""
    from poolproof.contract.target import TargetError
    from poolproof.harness.sequence_workload import SequenceWorkload
    from poolproof.report.workload_report import sequence_json, sequence_report

    for target in targets:
        if not target.level.has_sequences or target.block_size != targets[0].block_size:
            raise TargetError(
                f"{target.name} and {targets[0].name} cannot serve requests side by side: give "
                "pools alone, or managers with one block size"
            )
    workload = SequenceWorkload(block_size=targets[0].block_size, **settings)
    results = _run_all(workload, targets)
    text = sequence_json(file, workload, results)
    _report(results, sequence_report(workload, results), text, json_file, report_folder)
    if any(not result.counts.num_finished for result in results):
        _stop(f"no request of {file} fits into {workload.num_blocks} blocks; raise --blocks")


def _report(
    results: list[Any], shown: Any, text: str, json_file: Path | None, report_folder: Path | None
) -> None:
    """Print and write the results; exit with status 1 if something broke."""
    from poolproof.report.output_files import write_if_possible
    from poolproof.report.text_form import show

    show(shown)
    if json_file is not None:
        write_if_possible(json_file, text)
    if report_folder is not None:
        _write_traces(results, report_folder)
    if any(result.violation is not None for result in results):
        sys.exit(1)


def _run_all(workload: RequestWorkload | SequenceWorkload, targets: list[Target]) -> list[Any]:
    """The results in the order of the targets; a queue or an index ends the run."""
    from poolproof.certification.progress import progress_to
    from poolproof.contract.target import TargetError

    for target in targets:
        if target.level.is_part:
            raise TargetError(
                f"{target.name} is {target.level.with_article}; requests need a pool, such as impl"
            )
    run: Callable[..., Any] = workload.run
    results = []
    with progress_to(sys.stderr) as progress:
        for target in targets:
            progress.begin(f"{target.name}: requests", len(workload.requests), "requests")
            results.append(
                run(target.name, target.make, target.profile, lambda: progress.advance(1))
            )
            progress.end()
    return results


def _write_traces(results: Sequence[WorkloadResult | SequenceWorkloadResult], folder: Path) -> None:
    from poolproof.report.output_files import write_if_possible

    for number, result in enumerate(results, start=1):
        if result.trace is not None:
            path = folder / f"workload-{number}.jsonl"
            if write_if_possible(path, "\n".join(result.trace.lines()) + "\n"):
                click.echo(
                    f"trace of {result.name} written to {path}; next: poolproof shrink {path}"
                )


def _stop(message: str) -> NoReturn:
    from poolproof.contract.outside import cut

    click.echo(f"poolproof: {cut(message)}", err=True)
    sys.exit(2)
