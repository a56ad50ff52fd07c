"""Standard output: colours and full width on a terminal, plain text of 100 columns elsewhere."""

from __future__ import annotations

import sys

import click
from rich.console import Console, RenderableType

from poolproof.report.finding_report import plain_text

__all__ = ["show"]


def show(content: RenderableType) -> None:
    """Print a report as suits where standard output goes."""
    if sys.stdout.isatty():
        Console(highlight=False).print(content, crop=False)
    else:
        click.echo(plain_text(content), nl=False)
