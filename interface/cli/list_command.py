"""`poolproof list`: the built-in targets and whether they can be used here."""

from __future__ import annotations

import click

__all__ = ["list_command"]


@click.command("list")
def list_command() -> None:
    """List the built-in targets.

    Any class of yours is a target too: path/to/file.py:Class or package.module:Class. So is any
    program that speaks the protocol: cmd:./program.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from poolproof.kernels.catalogue import BUILT_INS
    from poolproof.report.text_form import show
    from poolproof.targets.catalogue import catalogue

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("target", "level", "here", "what"):
        table.add_column(heading, no_wrap=heading != "what", overflow="fold")
    for row in catalogue():
        what = row.what if row.available else f"{row.what}; {row.how}"
        table.add_row(row.name, row.level, "yes" if row.available else "no", Text(what))
    for name, kernel in BUILT_INS.items():
        missing = kernel.missing
        needs = f"; needs {', '.join(missing)}" if missing else ""
        table.add_row(name, "kernel", "no" if missing else "yes", Text(kernel.what + needs))
    own = (
        "your own: path/to/file.py:Class, package.module:Class, a program in any language as "
        "'cmd:./program'; `poolproof new FILE` starts one"
    )
    show(Group(table, Text(""), Text(own, style="dim")))
