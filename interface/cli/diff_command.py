"""`poolproof diff A B`: the first divergence of two targets on one tape, minimised."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from poolproof.cli.arguments import target_argument

if TYPE_CHECKING:
    from poolproof.certification.comparison import Comparison

__all__ = ["diff_command"]


@click.command("diff")
@target_argument("first")
@target_argument("second")
@click.option(
    "--depth",
    "--level",
    "depth",
    type=click.Choice(["quick", "standard", "deep"]),
    default="quick",
    show_default=True,
    help="How long to drive them together.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="[usable processors]")
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path),
    help="Write the trace of each divergence into this folder.",
)
def diff_command(
    *,
    first: str,
    second: str,
    depth: str,
    seed: int,
    workers: int | None,
    report_folder: Path | None,
) -> None:
    """Drive FIRST and SECOND together, under the profile of FIRST, until an answer differs.

    For a subclass and its base, or two versions of an engine. Prints the shortest commands that
    show the difference, and whether a profile explains it.

    Exit status: 0 they agree, 1 they differ, 2 the run could not be carried out.
    """
    from poolproof.certification.comparison import compare
    from poolproof.certification.options import CertifyOptions, usable_processors
    from poolproof.certification.progress import progress_to
    from poolproof.contract.depth import Depth
    from poolproof.report.output_files import check_folder, write_if_possible
    from poolproof.targets.load import load_target

    if report_folder is not None:
        check_folder(report_folder)
    options = CertifyOptions(
        depth=Depth.named(depth), seed=seed, workers=workers or usable_processors()
    )
    with progress_to(sys.stderr) as progress:
        found = compare(
            (lambda: load_target(first), lambda: load_target(second)), options, progress
        )
        progress.end()
    for line in _lines(found):
        click.echo(line)
    if report_folder is not None:
        for finding in (form for whole in found.findings for form in whole.each_form):
            path = report_folder / f"diff-{finding.fingerprint}.jsonl"
            if write_if_possible(path, "\n".join(finding.trace.lines()) + "\n"):
                click.echo(f"trace written to {path}")
    sys.exit(1 if found.findings else 0)


def _lines(found: Comparison) -> list[str]:
    from poolproof.contract.outside import printable
    from poolproof.report.finding_report import form_words

    first, second = found.names
    if not found.findings:
        return [printable(f"{first} and {second} agree in {found.num_steps:,} commands")]
    lines = [f"{first} and {second} differ"]
    for finding in found.findings:
        lines.append(f"{finding.violation.invariant}: {finding.violation.sentence}")
        lines += [
            f"  {number:>3}  {command}"
            for number, command in enumerate(finding.trace.commands, start=1)
        ]
        lines += [f"  also met  {form_words(form)}" for form in finding.forms]
    return [printable(line) for line in (*lines, found.explanation)]
