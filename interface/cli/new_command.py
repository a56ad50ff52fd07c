"""`poolproof new FILE`: writes the skeleton of a native pool, manager, index, engine or kernel.

With `--ci` it writes files for CI into a user's repository (`ci_recipes.py`): for GitHub Actions a
workflow that certifies each pull request and one that continues a campaign each night, for other
systems a fragment. They are written once; from then on they belong to the user. What they install
is this very Poolproof, as far as pip noted where that came from.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from poolproof.cli.arguments import not_empty
from poolproof.cli.ci_recipes import SYSTEMS, recipe, require_pinned, write_recipes
from poolproof.project_file import ProjectFile, find_project
from poolproof.report.output_files import OutputError

__all__ = ["new_command"]


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
    "--target",
    metavar="TARGET",
    callback=not_empty,
    help="With --ci: what to certify; by default what [tool.poolproof] lists.",
)
@click.option("--force", is_flag=True, help="With --ci: overwrite files that exist.")
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
    force: bool,
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
    for name, value in (("--system", system), ("--source", source), ("--force", force)):
        if value and not ci:
            raise click.UsageError(f"{name} is about the files of --ci; add --ci")
    if ci:
        _write_workflows(file, target, SYSTEMS[system or "github"], source, force=force)
    else:
        _write_skeleton(file, skeletons[0] if skeletons else "pool")


def _write_workflows(
    folder: Path, target: str | None, names: tuple[str, ...], source: str | None, *, force: bool
) -> None:
    from poolproof.cli.installed_source import installed_source

    wanted = installed_source() if source is None else require_pinned(source)
    if wanted is None:
        raise click.UsageError(
            "this Poolproof came from a folder that others cannot reach: say what CI is to "
            "install with --source 'poolproof @ git+https://...@COMMIT'"
        )
    project = None if target is not None else find_project(Path.cwd())
    if project is None:
        paths = write_recipes(folder, target, names, wanted, force=force)
    else:
        first = project.targets[0].target
        paths = write_recipes(folder, "", names, wanted, campaign_target=first, force=force)
    for path in paths:
        click.echo(f"wrote {path}")
    click.echo(f"installs {wanted}")
    if project is None:
        todo = "see that TARGET is right" if target else "set TARGET"
        click.echo(f"{todo}, and that all this can be installed there; then commit")
    else:
        _say_what_is_certified(project, names)
        click.echo("see that all this can be installed there; then commit")


def _say_what_is_certified(project: ProjectFile, names: tuple[str, ...]) -> None:
    listed = ", ".join(one.target for one in project.targets)
    click.echo(f"certifies what {project.path} lists: {listed}")
    if project.folder != Path.cwd():
        click.echo(f"CI starts at the repository's top: see that {project.path} is found there")
    has_campaign = any("CAMPAIGN_TARGET" in recipe(name) for name in names)
    if has_campaign and len(project.targets) > 1:
        first = project.targets[0].target
        click.echo(f"the campaign searches {first}; one campaign has one target")


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
