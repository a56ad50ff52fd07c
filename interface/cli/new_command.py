"""`poolproof new FILE`: writes the skeleton of a native pool, manager, index or engine.

With `--ci` it writes the GitHub Actions workflows of `fuzz/recipes/` into a user's repository. One
certifies each pull request, the other continues a campaign each night; docs/ci.md explains them.
They are written once; from then on they belong to the user.
"""

from __future__ import annotations

import json
import os
import re
from importlib.resources import files
from pathlib import Path

import click

from poolproof.cli.arguments import not_empty
from poolproof.report.output_files import OutputError, check_folder, write_file

__all__ = ["RECIPES", "new_command", "recipe", "write_recipes"]


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--manager", is_flag=True, help="A manager of sequences, not a pool of blocks.")
@click.option("--index", is_flag=True, help="An index from keys to blocks, not a whole pool.")
@click.option("--engine", is_flag=True, help="An engine that plans steps, over a manager.")
@click.option("--ci", is_flag=True, help="Workflows for GitHub Actions; FILE is .github/workflows.")
@click.option(
    "--target", metavar="TARGET", callback=not_empty, help="The target that the workflows certify."
)
def new_command(
    *, file: Path, manager: bool, index: bool, engine: bool, ci: bool, target: str | None
) -> None:
    """Write the skeleton of a pool, manager, index or engine to FILE, which must not exist yet.

    With --ci: write workflows that certify each pull request and fuzz each night to the folder.
    """
    kinds = {"manager": manager, "index": index, "engine": engine}
    skeletons = [kind for kind, asked in kinds.items() if asked]
    if ci and skeletons:
        raise click.UsageError(
            f"--{skeletons[0]} writes a skeleton and --ci workflows; leave one out"
        )
    if len(skeletons) > 1:
        raise click.UsageError(f"--{' and --'.join(skeletons)} are skeletons; leave one")
    if target is not None and not ci:
        raise click.UsageError("--target names what the workflows of --ci certify; add --ci")
    if ci:
        _write_workflows(file, target)
    else:
        _write_skeleton(file, skeletons[0] if skeletons else "pool")


def _write_workflows(folder: Path, target: str | None) -> None:
    for path in write_recipes(folder, target):
        click.echo(f"wrote {path}")
    todo = "see that TARGET is right" if target else "set TARGET in both"
    click.echo(f"{todo}, and how Poolproof is installed; then commit them")


def _write_skeleton(file: Path, kind: str) -> None:
    if file.suffix != ".py":
        raise OutputError(f"cannot write {file}: the skeleton is Python, give it a name in .py")
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
    click.echo(f"wrote {file}\nfill it in, then: poolproof certify {file}:{name} --depth quick")


RECIPES = ("poolproof-gate.yml", "poolproof-campaign.yml")


def recipe(name: str, target: str | None = None) -> str:
    """The text of a workflow, with the target to certify filled in."""
    text = (files("poolproof.fuzz") / "recipes" / name).read_text("utf-8")
    if target is None:
        return text
    # A text in JSON is one in YAML, whatever brackets and colons it has.
    line = f"  TARGET: {json.dumps(target)}"
    return re.sub(r"^  TARGET: .*$", lambda _: line, text, count=1, flags=re.MULTILINE)


def write_recipes(folder: Path, target: str | None = None) -> list[Path]:
    """Write all workflows or none; returns their paths. Raises OutputError."""
    paths = [folder / name for name in RECIPES]
    for path in paths:
        if path.exists() or path.is_symlink():
            raise OutputError(f"{path} exists already and is left as it is; move it away first")
    check_folder(folder)
    for path in paths:
        write_file(path, recipe(path.name, target))
    return paths
