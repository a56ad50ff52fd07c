"""`poolproof shrink TRACE`: makes a failing trace as short as delta debugging can."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from poolproof.cli.arguments import not_empty, rows_of

__all__ = ["shrink_command"]


@click.command("shrink")
@click.argument("trace")
@click.option(
    "--target",
    callback=not_empty,
    help="Shrink on this target instead of the one that the trace names.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write to this file instead of standard output.",
)
@click.option(
    "--profile",
    "rows",
    multiple=True,
    metavar="KEY=VALUE",
    help="Judge by another profile than the trace's: set a row.",
)
@click.option("--in-process", is_flag=True, help="Use no child process or limits; for debuggers.")
@click.option(
    "--call-timeout",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    default=2.0,
    show_default=True,
    help="Seconds that one call of the target may take.",
)
def shrink_command(
    *,
    trace: str,
    target: str | None,
    output: Path | None,
    rows: tuple[str, ...],
    in_process: bool,
    call_timeout: float,
) -> None:
    """Minimise TRACE, a trace file or the fingerprint of a finding.

    Exit status: 1 a failing trace, no longer than TRACE, was written; 0 the trace holds now and
    nothing was written; 2 it could not be run.
    """
    from poolproof.api import shrink
    from poolproof.report.finding_report import trace_report
    from poolproof.report.output_files import check_file, write_file
    from poolproof.report.text_form import show
    from poolproof.report.trace_files import find_trace

    if output is not None:
        check_file(output)
    profile = rows_of(rows)
    path, recorded = find_trace(trace)
    small = shrink(
        recorded, target=target, profile=profile, in_process=in_process,
        call_timeout_s=call_timeout,
    )  # fmt: skip
    if small.violation is None:
        click.echo(f"holds now: {path} shows no violation, so there is nothing to shrink")
        return
    click.echo(f"{len(recorded.commands)} commands became {len(small.commands)}", err=True)
    if output is None:
        click.echo("\n".join(small.lines()))
    else:
        write_file(output, "\n".join(small.lines()) + "\n")
        show(trace_report(small))
    sys.exit(1)
