"""`poolproof new FILE`: writes the skeleton of a native pool, manager, index, engine or kernel.

With `--ci` it writes the files of `fuzz/recipes/` into a user's repository: for GitHub Actions a
workflow that certifies each pull request and one that continues a campaign each night, for other
systems a fragment; docs/ci.md explains them. They are written once; from then on they belong to the
user. What they install is this very Poolproof, as far as pip noted where that came from.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from importlib.resources import files
from pathlib import Path

import click

from poolproof.cli.arguments import not_empty
from poolproof.report.output_files import OutputError, check_folder, write_file

__all__ = ["RECIPES", "SYSTEMS", "new_command", "recipe", "write_recipes"]


RECIPES = ("poolproof-gate.yml", "poolproof-campaign.yml")

SYSTEMS = {
    "github": RECIPES,
    "gitlab": ("poolproof.gitlab-ci.yml",),
    "buildkite": ("poolproof.buildkite.yml",),
    "pre-commit": ("poolproof.pre-commit-config.yaml",),
}
"""The files of each system."""


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--manager", is_flag=True, help="A manager of sequences, not a pool of blocks.")
@click.option("--index", is_flag=True, help="An index from keys to blocks, not a whole pool.")
@click.option("--engine", is_flag=True, help="An engine that plans steps, over a manager.")
@click.option("--kernel", is_flag=True, help="Functions that write a cache and copy its blocks.")
@click.option("--ci", is_flag=True, help="Workflows for GitHub Actions; FILE is .github/workflows.")
@click.option(
    "--system",
    type=click.Choice(tuple(SYSTEMS)),
    help="With --ci: whose files; github by default.",
)
@click.option(
    "--source",
    metavar="REQUIREMENT",
    callback=not_empty,
    help="With --ci: what pip installs; by default from where this Poolproof came.",
)
@click.option(
    "--target", metavar="TARGET", callback=not_empty, help="The target that the workflows certify."
)
def new_command(
    *,
    file: Path,
    manager: bool,
    index: bool,
    engine: bool,
    kernel: bool,
    ci: bool,
    system: str | None,
    source: str | None,
    target: str | None,
) -> None:
    """Write the skeleton of a pool, manager, index, engine or kernel to FILE, a new file.

    With --ci: write what certifies each pull request and fuzzes each night to the folder FILE.
    """
    kinds = {"manager": manager, "index": index, "engine": engine, "kernel": kernel}
    skeletons = [kind for kind, asked in kinds.items() if asked]
    if ci and skeletons:
        raise click.UsageError(
            f"--{skeletons[0]} writes a skeleton and --ci workflows; leave one out"
        )
    if len(skeletons) > 1:
        raise click.UsageError(f"--{' and --'.join(skeletons)} are skeletons; leave one")
    if target is not None and not ci:
        raise click.UsageError("--target names what the workflows of --ci certify; add --ci")
    for name, value in (("--system", system), ("--source", source)):
        if value is not None and not ci:
            raise click.UsageError(f"{name} is about the files of --ci; add --ci")
    if ci:
        _write_workflows(file, target, SYSTEMS[system or "github"], source)
    else:
        _write_skeleton(file, skeletons[0] if skeletons else "pool")


def _write_workflows(
    folder: Path, target: str | None, names: tuple[str, ...], source: str | None
) -> None:
    from poolproof.cli.installed_source import installed_source

    wanted = source or installed_source()
    for path in write_recipes(folder, target, names, wanted):
        click.echo(f"wrote {path}")
    many = " in both" if len(names) == 2 else ""
    todo = "see that TARGET is right" if target else f"set TARGET{many}"
    if wanted is None:
        click.echo(
            f"{todo}, and POOLPROOF, what pip installs: this Poolproof came from a folder that "
            "others cannot reach (--source 'poolproof @ git+https://...@COMMIT' fills it in); then "
            "commit"
        )
    else:
        click.echo(f"installs {wanted}\n{todo}, and that this can be installed there; then commit")


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
    if kind == "kernel":
        click.echo(f"wrote {file}\nfill it in, then: poolproof kernels {file}:write --depth quick")
        return
    name = kind.capitalize()
    click.echo(f"wrote {file}\nfill it in, then: poolproof certify {file}:{name} --depth quick")


def recipe(name: str, target: str | None = None, source: str | None = None) -> str:
    """The text of a file for CI, with the target to certify and what pip installs filled in."""
    text = (files("poolproof.fuzz") / "recipes" / name).read_text("utf-8")
    for key, value in (("TARGET", target), ("POOLPROOF", source)):
        if value is not None:
            text = _with_value(text, key, value)
    return text


def _with_value(text: str, key: str, value: str) -> str:
    """The text with another value of a key, or where a line ends in `# KEY`, of that line."""
    # A text in JSON is one in YAML, whatever brackets and colons it has.
    quoted = json.dumps(value)
    text = re.sub(
        rf"^( *){key}: .*$", lambda found: f"{found[1]}{key}: {quoted}", text, flags=re.MULTILINE
    )
    marked = re.compile(rf"^( *(?:- )?[\w_]+:) .*?  # {key}$", re.MULTILINE)
    whole = json.dumps(f"poolproof certify {shlex.quote(value)} --depth quick")
    filled = whole if key == "TARGET" else f"[{quoted}]"
    return marked.sub(lambda found: f"{found[1]} {filled}  # {key}", text)


def write_recipes(
    folder: Path,
    target: str | None = None,
    names: tuple[str, ...] = RECIPES,
    source: str | None = None,
) -> list[Path]:
    """Write all files of a system or none; returns their paths. Raises OutputError."""
    paths = [folder / name for name in names]
    for path in paths:
        if path.exists() or path.is_symlink():
            raise OutputError(f"{path} exists already and is left as it is; move it away first")
    check_folder(folder)
    for path in paths:
        write_file(path, recipe(path.name, target, source))
    return paths
