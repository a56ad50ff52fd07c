"""What `[tool.poolproof]` says of a target that a test names: the arguments of `certify`.

So a test and `poolproof certify` on the command line ask for the same, and neither says it twice.
Reports are left to the command line: a test writes none.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poolproof.contract.depth import Depth
from poolproof.contract.errors import OptionError
from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity
from poolproof.project_file import ProjectFile, ProjectFileError, find_project
from poolproof.targets.command_target import PREFIX
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec

__all__ = ["project_options"]

_ARGUMENTS = {
    "depth": "depth",
    "layouts": "layouts",
    "profile": "profile",
    "api": "api",
    "fail-on": "fail_on",
    "keep-going": "keep_going",
    "hardening": "hardening",
    "seed": "seed",
    "workers": "workers",
    "call-timeout": "call_timeout_s",
    "memory-limit": "memory_mib",
    "known": "known",
    "baseline": "baseline",
}
"""The keys of a target that say how it is judged, and the arguments that say the same."""

_FILES = ("known", "baseline")

_LEAST = {"seed": 0, "workers": 1, "memory-limit": 1}


def project_options(target: str | type | Target, *, named_from: Path, test: Path) -> dict[str, Any]:
    """The arguments of `certify` that the project of a test has for a target.

    Args:
        target: as `certify` takes it.
        named_from: the folder from which the text of a target names its file.
        test: the folder of the test; the nearest table from there upward counts.

    Empty where there is no table, where it does not list the target, and for a loaded `Target`,
    which is as its owner loaded it. Raises ProjectFileError for a table that cannot be used, or
    that lists the target twice with different options.
    """
    if isinstance(target, Target):
        return {}
    project = find_project(test)
    if project is None:
        return {}
    meant = _names_of(TargetSpec.of(target), named_from)
    found = [
        one
        for one in project.targets
        if meant & _names_of(TargetSpec.parse(one.target), project.folder)
    ]
    asked = [{key: one.options[key] for key in one.options if key in _ARGUMENTS} for one in found]
    if not asked:
        return {}
    for key in _ARGUMENTS:
        said = [options.get(key) for options in asked]
        if any(value != said[0] for value in said):
            raise ProjectFileError(
                f"{project.path}, [tool.poolproof] lists {found[0].target} {len(found)} times, "
                f"with different {key}: name {key} in the test, or list the target once"
            )
    _check(project, found[0].target, asked[0])
    return {_ARGUMENTS[key]: _as_argument(project, key, value) for key, value in asked[0].items()}


def _as_argument(project: ProjectFile, key: str, value: Any) -> Any:
    return project.folder / value if key in _FILES else value


def _check(project: ProjectFile, target: str, options: Mapping[str, Any]) -> None:
    """Raises ProjectFileError for a value of the right type that there is not."""
    where = f"{project.path}, [tool.poolproof]: {{}} of {target}"
    for key, least in _LEAST.items():
        if key in options and options[key] < least:
            raise ProjectFileError(
                f"{where.format(key)} must be {least} or more, not {shown(options[key])}"
            )
    if not 0 < options.get("call-timeout", 1) <= 86_400:
        given = shown(options["call-timeout"])
        raise ProjectFileError(
            f"{where.format('call-timeout')} must be above 0 and at most 86400 seconds, not {given}"
        )
    known = [severity.value for severity in Severity]
    for name in options.get("fail-on", ()):
        if name not in known:
            raise ProjectFileError(
                f"{where.format('fail-on')} has {shown(name)}; known are {', '.join(known)}"
            )
    try:
        Depth.named(options.get("depth", Depth.QUICK))
    except OptionError as error:
        raise ProjectFileError(f"{where.format('depth')}: {error}") from error


def _names_of(spec: TargetSpec, folder: Path) -> frozenset[tuple[str, str]]:
    """What a target is called, with its rows: by its file and, where that is known, its module.

    A module is taken for the file of its name below the folder, or below `src` there.
    """
    rows = repr(sorted(spec.rows.items()))
    if spec.base.startswith(PREFIX):
        return frozenset({(_program(spec.base.removeprefix(PREFIX), folder), rows)})
    place, colon, name = spec.base.rpartition(":")
    if not colon:
        return frozenset({(spec.base, rows)})
    if place.endswith(".py") or "/" in place:
        return frozenset({(f"{(folder / place).resolve()}:{name}", rows)})
    names = {(spec.base, rows)}
    if spec.cls is not None:
        file_of_class = getattr(sys.modules.get(spec.cls.__module__), "__file__", None)
        if file_of_class is not None:
            names.add((f"{Path(file_of_class).resolve()}:{name}", rows))
    for root in (folder, folder / "src"):
        module = root.joinpath(*place.split("."))
        for file in (module.with_name(f"{module.name}.py"), module / "__init__.py"):
            if file.is_file():
                names.add((f"{file.resolve()}:{name}", rows))
    return frozenset(names)


def _program(command: str, folder: Path) -> str:
    """A command line with the file that it starts as an absolute path."""
    try:
        first, *rest = shlex.split(command)
    except ValueError:  # empty, or a quote that is not closed
        return command
    program = str((folder / first).resolve()) if "/" in first else first
    return shlex.join([program, *rest])
