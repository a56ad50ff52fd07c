"""`poolproof new FILE`: the skeleton of a native pool or manager, for somebody to fill in."""

from __future__ import annotations

import os
from pathlib import Path

import click

__all__ = ["new_command"]


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--manager", is_flag=True, help="A manager of sequences, not a pool of blocks.")
def new_command(*, file: Path, manager: bool) -> None:
    """Write the skeleton of a pool, or of a manager, to FILE, which must not exist yet."""
    from poolproof.output_files import OutputError

    if file.suffix != ".py":
        raise OutputError(f"cannot write {file}: the skeleton is Python, give it a name in .py")
    kind = "manager" if manager else "pool"
    template = Path(__file__).with_name("templates") / f"{kind}_skeleton.txt"
    try:
        # O_EXCL, so that nothing which appears at the last moment is overwritten either.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError as error:
        raise OutputError(
            f"{file} exists already and is left as it is; choose another name"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {file}: {error.strerror or error}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(template.read_text(encoding="utf-8"))
    name = kind.capitalize()
    click.echo(f"wrote {file}\nfill it in, then: poolproof certify {file}:{name} --level quick")
