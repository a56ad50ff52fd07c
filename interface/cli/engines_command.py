"""`poolproof engines`: fetches the sources of engines that are built-in targets.

Each comes by git from its own repository, at the commit that its adapter was written for, and only
the files of its bookkeeping, which are built into a program where it is not in Python; releases of
vLLM, and MAX, come from a package index. Nothing is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from poolproof.targets.source_engines import PublishedEngine

__all__ = ["engines_command"]


@click.command("engines")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "every", is_flag=True, help="All of them.")
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that gets a folder for each; else that which POOLPROOF_ENGINES names, or "
    "build/engines.",
)
def engines_command(*, names: tuple[str, ...], every: bool, folder: Path | None) -> None:
    """Fetch the sources of the engines NAME; without a name, list them.

    With --all the others are fetched where one cannot be had.

    Afterwards each is a target: `poolproof certify NAME`. vllm==VERSION fetches the V1 core of a
    release of vLLM from the package index that pip uses; it is the targets vllm@VERSION,
    vllm-queue@VERSION, vllm-index@VERSION and vllm-manager@VERSION, or vllm-v0@VERSION before 0.4.
    nano-vLLM and its descendants are targets by their folders: nano-vllm:FOLDER.
    """
    from poolproof.contract.target import TargetError
    from poolproof.targets.catalogue import PUBLISHED_ENGINES
    from poolproof.targets.nano_clones import NANO_CLONES

    engines = {**PUBLISHED_ENGINES, **NANO_CLONES}
    releases = [name for name in names if name.startswith("vllm==")]
    unknown = [name for name in names if name not in engines and name not in releases]
    if unknown:
        raise click.UsageError(
            f"no engine {', '.join(unknown)}; there are {', '.join(engines)}, and vllm==VERSION"
        )
    if every and names:
        raise click.UsageError("--all fetches every engine; leave the names out")
    if not (every or names):
        for name, engine in engines.items():
            click.echo(f"{name:<36}{engine.address} {engine.commit[:7]}")
        click.echo("\n`poolproof engines NAME` fetches one, `poolproof engines --all` each of them")
        click.echo("`poolproof engines vllm==VERSION` fetches a release of vLLM")
        return
    wanted = list(dict.fromkeys(names) or engines)
    missed = [name for name in wanted if not _fetch(name, engines, folder, told=every)]
    if missed:
        raise TargetError(f"{len(missed)} of {len(wanted)} could not be had; lines above say why")


def _fetch(
    name: str, engines: Mapping[str, PublishedEngine], folder: Path | None, *, told: bool
) -> bool:
    """Fetch one and say so. Raises TargetError, or tells it and answers False, as `told` says."""
    from poolproof.contract.target import TargetError
    from poolproof.targets.catalogue import MAX_ENGINES, PROGRAM_ENGINES
    from poolproof.targets.max_release import fetch_max
    from poolproof.targets.program_engines import built_program
    from poolproof.targets.source_engines import fetch_engine
    from poolproof.targets.vllm_release import fetch_vllm

    try:
        if name in MAX_ENGINES:
            place, is_new = fetch_max(MAX_ENGINES[name], folder)
        elif name in engines:
            place, is_new = fetch_engine(engines[name], folder)
        else:
            place, is_new = fetch_vllm(name.removeprefix("vllm=="), folder)
        if name in PROGRAM_ENGINES:
            built_program(PROGRAM_ENGINES[name], place)
    except TargetError as error:
        if not told:
            raise
        click.echo(f"{name}: {error}", err=True)
        return False
    click.echo(f"{name}: {'fetched to' if is_new else 'is in'} {place}")
    return True
