"""`poolproof certify` without a target: certifies what `[tool.poolproof]` lists, one after another.

An option on the command line takes the place of the one in the file, for every target.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from poolproof.cli.arguments import known_targets
from poolproof.contract.errors import PoolproofError
from poolproof.project_file import (
    OUTPUTS,
    PATHS,
    ProjectFile,
    ProjectFileError,
    ProjectTarget,
    find_project,
)

__all__ = ["certify_project"]

_PARAMETERS = {
    "layouts": "layouts",
    "profile": "rows",
    "report": "report_folder",
    "json": "report_json_file",
    "junit": "report_junit_file",
    "md": "report_markdown_file",
    "html": "report_html_file",
    "sarif": "sarif_file",
    "badge": "badge_file",
}
"""The parameters of the command whose names are not those of the keys."""


def certify_project(context: click.Context) -> int:
    """Certify each target of the project; the exit status of them all.

    A violation beats a run that was not concluded, and that beats a pass. Raises UsageError where
    there is no `[tool.poolproof]`, ProjectFileError for one that cannot be used.
    """
    project = find_project(Path.cwd())
    if project is None:
        raise click.UsageError(
            f"TARGET is missing: {known_targets()}; or list targets in [tool.poolproof] of a "
            "pyproject.toml here or above"
        )
    given = _given(context)
    _refuse_one_file_for_all(project, given)
    runs = [_arguments(context, project, target, given) for target in project.targets]
    os.chdir(project.folder)
    certify_one = context.command.callback
    assert certify_one is not None
    statuses = set()
    for target, arguments in zip(project.targets, runs, strict=True):
        if len(runs) > 1:
            click.echo(f"== {target.target}")
        statuses.add(_status(certify_one, arguments))
    return next(status for status in (1, 2, 0) if status in statuses)


def _given(context: click.Context) -> dict[str, Any]:
    """What the user gave on the command line; paths from the current folder."""
    source = click.core.ParameterSource.DEFAULT
    given = {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is not source and name != "target"
    }
    return {
        name: value.absolute() if isinstance(value, Path) else value
        for name, value in given.items()
    }


def _refuse_one_file_for_all(project: ProjectFile, given: Mapping[str, Any]) -> None:
    for key in OUTPUTS:
        if len(project.targets) > 1 and _PARAMETERS[key] in given:
            raise click.UsageError(
                f"--{key} names one file for the {len(project.targets)} targets of {project.path}; "
                "use --report, which gets a folder for each"
            )


def _arguments(
    context: click.Context, project: ProjectFile, target: ProjectTarget, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What the command is called with for one target. Raises ProjectFileError."""
    parameters = {str(parameter.name): parameter for parameter in context.command.params}
    arguments = {**context.params, "target": target.target}
    for key, value in target.options.items():
        name = _PARAMETERS.get(key, key.replace("-", "_"))
        try:
            arguments[name] = parameters[name].type_cast_value(context, _as_given(key, value))
        except click.BadParameter as error:
            raise ProjectFileError(
                f"{project.path}, [tool.poolproof]: {key} of {target.target}: {error.message}"
            ) from error
    arguments.update(given)
    report = arguments["report_folder"]
    if report is not None:
        arguments["report_folder"] = project.report_folder(target, report)
    return arguments


def _as_given(key: str, value: Any) -> Any:
    """A value of the file as the command line has it."""
    if key == "profile":
        return tuple(f"{row}={wanted}" for row, wanted in value.items())
    if key == "fail-on":
        return ",".join(value)
    return Path(value) if key in PATHS else value


def _status(certify_one: Callable[..., None], arguments: Mapping[str, Any]) -> int:
    """How certifying one target ended."""
    try:
        certify_one(**arguments)
    except PoolproofError as error:
        # The others are certified all the same.
        click.echo(f"poolproof: {error}", err=True)
        return 2
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    return 0
