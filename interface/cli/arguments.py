"""What several commands take: TARGET, the rows of its profile, the severities that fail a run.

A target is required, and an empty text counts as missing. A variable that is not set, `poolproof
certify $TARGET`, must not certify something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    # The command line starts quickly: everything heavy is imported when the command runs.
    from poolproof.contract.violation import Severity
    from poolproof.targets.target_spec import TargetSpec

__all__ = [
    "known_kernels",
    "known_targets",
    "not_empty",
    "require",
    "rows_of",
    "severities",
    "target_argument",
    "with_rows",
]


AnyCommand = TypeVar("AnyCommand", bound=Callable[..., Any])


def target_argument(
    name: str = "target", *, also: str | None = None
) -> Callable[[AnyCommand], AnyCommand]:
    """The argument of a command that cannot do without a target: left out or empty is status 2.

    `also` is what this command takes besides targets, for the list that it then prints.
    """

    def required(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if not ctx.resilient_parsing:
            known = known_targets()
            require(value, _label(param), known if also is None else f"{known}; or {also}")
        return value

    return click.argument(name, required=False, callback=required)


def require(value: str | None, label: str, known: str) -> None:
    """Raises a usage error, with what is `known`, for a name that was left out or is empty."""
    if value is None:
        raise click.UsageError(f"{label} is missing: {known}")
    if not value.strip():
        raise click.UsageError(f"{label} is empty (is a variable unset?): {known}")


def not_empty(_ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """The callback of an argument or option that may be left out, but not be empty."""
    for text in value if isinstance(value, tuple) else (value,):
        if text is not None:
            require(text, _label(param), known_targets())
    return value


def known_targets() -> str:
    """What a target may be, in words."""
    from poolproof.targets.load import BUILT_INS

    return (
        "path/to/file.py:Class, package.module:Class, cmd:./program, or one that is built in: "
        f"{', '.join(BUILT_INS)}"
    )


def known_kernels() -> str:
    """The same for kernels."""
    from poolproof.kernels.catalogue import BUILT_INS

    return f"path/to/file.py:function, or one that is built in: {', '.join(BUILT_INS)}"


def severities(fail_on: str | None) -> tuple[Severity, ...]:
    """The severities that `--fail-on` lists. Raises a usage error."""
    from poolproof.contract.violation import Severity

    if fail_on is None:
        return tuple(Severity)
    names = [name.strip() for name in fail_on.split(",") if name.strip()]
    known = {severity.value: severity for severity in Severity}
    for name in names:
        if name not in known:
            raise click.BadParameter(
                f"unknown severity {name!r}; known are {', '.join(known)}", param_hint="--fail-on"
            )
    if not names:
        raise click.BadParameter(f"name at least one of {', '.join(known)}", param_hint="--fail-on")
    return tuple(known[name] for name in names)


def with_rows(target: str, rows: tuple[str, ...]) -> TargetSpec:
    """The target with the rows of --profile, which override those in its brackets."""
    from poolproof.targets.target_spec import TargetSpec

    return TargetSpec.parse(target).with_rows(rows_of(rows))


def rows_of(given: tuple[str, ...]) -> Mapping[str, Any]:
    """The rows that --profile gives, each as KEY=VALUE. Raises a usage error."""
    from poolproof.targets.target_spec import TargetSpec

    rows: dict[str, Any] = {}
    for row in (part.strip() for text in given for part in text.split(",")):
        key, equals, value = (part.strip() for part in row.partition("="))
        if not (key and equals and value):
            raise _bad_row(f"{row!r} is not KEY=VALUE, such as eviction=lifo")
        if key in rows:
            raise _bad_row(f"{key!r} is given twice; leave one of them out")
        spec = TargetSpec.parse(f"target[{key}={value}]")
        if spec.patch is not None:
            raise _bad_row("patch is no row of a profile; write TARGET[patch=FILE], or --patch")
        rows |= spec.rows
    return rows


def _bad_row(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="--profile")


def _label(param: click.Parameter) -> str:
    return param.opts[0] if isinstance(param, click.Option) else str(param.name).upper()
