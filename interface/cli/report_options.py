"""The options of every command that makes a report: a file for one form, a folder for all.

Imported by the command line at its start, so nothing heavy is imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["Places", "given_places", "report_options"]

Places = dict[str, Path | None]
"""Where the report goes, by the fields of `ReportFiles`."""

_PATH = click.Path(path_type=Path)
_OPTIONS = {
    "json_file": "--json",
    "junit_file": "--junit",
    "markdown_file": "--md",
    "html_file": "--html",
    "folder": "--report",
}


def report_options(
    what: str, *, in_folder: str = "all forms"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options to a command, which gets them as `places`.

    `what` is reported; `in_folder` is what the folder of --report gets.
    """
    helps = {
        "json_file": f"Write the {what} as JSON.",
        "junit_file": f"Write the {what} as JUnit XML.",
        "markdown_file": f"Write the {what} as Markdown.",
        "html_file": f"Write the {what} as a web page.",
        "folder": f"Write {in_folder} to this folder.",
    }

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def collected(**arguments: Any) -> Any:
            places = {field: arguments.pop(f"report_{field}") for field in _OPTIONS}
            return command(places=places, **arguments)

        for field, name in reversed(_OPTIONS.items()):
            option = click.option(name, f"report_{field}", type=_PATH, help=helps[field])
            collected = option(collected)
        return collected

    return added


def given_places(places: Places) -> dict[str, Path | None]:
    """The options of `places` with their values, for commands that have no use for some."""
    return {_OPTIONS[field]: path for field, path in places.items()}
