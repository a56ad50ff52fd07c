"""`poolproof dev FILE`: certifies a file again whenever it changes, while one writes it."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from poolproof.cli.arguments import with_rows

__all__ = ["dev_command"]

_PAUSE_S = 0.2


@click.command("dev")
@click.argument("file")
@click.option(
    "--depth",
    type=click.Choice(["quick", "standard", "deep"]),
    default="quick",
    show_default=True,
    help="How much is done each time.",
)
@click.option(
    "--layout", "layouts", multiple=True, metavar="NAME", help="Run this layout of a manager only."
)
@click.option("--profile", "rows", multiple=True, metavar="KEY=VALUE", help="Set a profile row.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def dev_command(
    *, file: str, depth: str, layouts: tuple[str, ...], rows: tuple[str, ...], seed: int
) -> None:
    """Certify FILE, file.py or file.py:Class, again whenever a Python file in its folder changes.

    While methods are missing, it says which to write next. Ctrl-C ends it, with the exit status of
    the last certification.
    """
    path = Path(file.partition(".py:")[0] + ".py" if ".py:" in file else file)
    if path.suffix != ".py" or not path.is_file():
        raise click.UsageError(
            f"{file} is no Python file; `poolproof new {path.stem or 'mine'}.py` starts one"
        )
    status: int | None = 2
    for _ in _changes(path.parent):
        status = _certified(file, path, rows, depth=depth, layouts=layouts, seed=seed)
        if status is None:
            sys.exit(2)
        click.echo(f"-- waiting for {path} to change; Ctrl-C ends", err=True)
    sys.exit(status)


def _changes(folder: Path) -> Iterator[None]:
    """Now, and then each time a Python file of the folder has changed; ends at Ctrl-C."""
    seen = _stamps(folder)
    yield
    try:
        while True:
            now = _stamps(folder)
            if now != seen:
                seen = now
                yield
            else:
                time.sleep(_PAUSE_S)
    except KeyboardInterrupt:
        return


def _stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """When each file was changed, and its size; an editor may just be replacing one."""
    stamps = {}
    for path in folder.glob("*.py"):
        try:
            stat = path.stat()
        except OSError:
            continue
        stamps[path.name] = (stat.st_mtime_ns, stat.st_size)
    return stamps


def _certified(file: str, path: Path, rows: tuple[str, ...], **options: Any) -> int | None:
    """How certifying the file as it is now ended; None if Ctrl-C ended it."""
    from poolproof.api import certify
    from poolproof.certification.certify import InterruptedCertification
    from poolproof.certification.progress import progress_to
    from poolproof.contract.errors import PoolproofError
    from poolproof.report.certificate_document import certificate_document
    from poolproof.report.certificate_outputs import Outputs
    from poolproof.report.text_form import show

    try:
        spec = with_rows(file if ".py:" in file else f"{path}:{_only_class(path)}", rows)
        with progress_to(sys.stderr) as progress:
            certificate = certify(spec.text, progress=progress, **options)
    except InterruptedCertification:
        return None
    except PoolproofError as error:
        click.echo(f"poolproof: {error}", err=True)
        return 2
    show(certificate_document(certificate, Outputs().keep_traces(certificate)))
    assert certificate.verdict is not None
    return certificate.verdict.exit_status


def _only_class(path: Path) -> str:
    """The public class of a file. Raises TargetError where there is not exactly one."""
    from poolproof.contract.target import TargetError

    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise TargetError(f"{path} cannot be read: {error}") from error
    names = [
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    if len(names) != 1:
        known = f"it has {', '.join(names)}" if names else "it has none"
        raise TargetError(f"name the class: poolproof dev {path}:CLASS; {known}")
    return names[0]
