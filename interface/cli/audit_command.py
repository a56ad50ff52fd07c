"""`poolproof audit FILE`: judges a recording of what a live engine did."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from poolproof.certification.audit import Audit

__all__ = ["audit_command"]


@click.command("audit")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all findings.")
@click.option(
    "--report",
    "report_folder",
    type=click.Path(path_type=Path),
    help="Write the trace of the first finding into this folder, for `poolproof replay`.",
)
@click.option("--request", "request_id", help="Say how the request with this id is called in FILE.")
def audit_command(
    *, file: Path, json_file: Path | None, report_folder: Path | None, request_id: str | None
) -> None:
    """Judge FILE, a recording of what a scheduler told its workers.

    Answers in one line that no sequence read a slot that was not computed for it, so that the fault
    is to be looked for in kernels and numerics; or names the first step, slot, reader and writer.

    Exit status: 0 no such read, 1 there is one, 2 the recording could not be judged.
    """
    from poolproof.api import audit
    from poolproof.contract.recording import named_request
    from poolproof.report.output_files import check_file, check_folder, write_if_possible

    if json_file is not None:
        check_file(json_file)
    if report_folder is not None:
        check_folder(report_folder)
    if request_id is not None:
        click.echo(f"request {named_request(request_id)} is {request_id}")
    found = audit(file)
    click.echo(found.sentence())
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    if json_file is not None:
        write_if_possible(json_file, json.dumps(found.to_json(), indent=2) + "\n")
    if report_folder is not None and found.findings:
        _write_trace(found, report_folder)
    if found.findings:
        sys.exit(1)
    if not found.holds:
        sys.exit(2)


def _write_trace(found: Audit, folder: Path) -> None:
    """The verdict does not change where there is no trace."""
    from poolproof.certification.recorded_story import write_story
    from poolproof.contract.recording import RecordingError

    try:
        path = write_story(found, folder)
    except (RecordingError, OSError) as error:
        click.echo(f"poolproof: {error}", err=True)
        return
    click.echo(f"trace written to {path}; next: poolproof replay {path}")
