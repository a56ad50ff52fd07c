"""`poolproof completion --install`: a shell completes commands, options and their values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import ShellComplete

__all__ = ["completion_command"]

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_POOLPROOF_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write it to where the shell looks for it.")
def completion_command(*, shell: str | None, install: bool) -> None:
    """Print what lets SHELL complete commands and options; by default for the shell in use."""
    from poolproof.report.output_files import check_folder, write_file

    name = shell or _shell_in_use()
    text = _completion(name).source()
    if not install:
        click.echo(text)
        return
    path = _place_for(name)
    check_folder(path.parent)
    write_file(path, f"{text}\n")
    click.echo(f"wrote {path}")
    if name == "zsh":
        click.echo(
            f"put this before compinit in .zshrc, if it is not there: fpath+=({path.parent})"
        )
    click.echo("a new shell has it")


def _shell_in_use() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in _SHELLS:
        raise click.UsageError(
            f"name the shell: {', '.join(_SHELLS)}; $SHELL says {name or 'none'}"
        )
    return name


def _completion(shell: str) -> ShellComplete:
    from click.shell_completion import get_completion_class

    from poolproof.cli.command_line import main

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(main, {}, "poolproof", _VARIABLE)


def _place_for(shell: str) -> Path:
    """The folder of the user's own completions, by each shell's manual."""
    home = Path.home()
    if shell == "bash":
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        return data / "bash-completion" / "completions" / "poolproof"
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return config / "fish" / "completions" / "poolproof.fish"
    return home / ".zfunc" / "_poolproof"
