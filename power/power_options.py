"""The options of `certify --power`, and what does not go together with them.

Imported by the command line at its start, so nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["PowerOptions", "power_options", "power_request"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerOptions:
    """What is mutated and who judges.

    `most_mutants` None is all, and `own_mutants` None as many; `modules` empty is what the
    target's class needs. `also` are targets that judge what the target lets pass. `results` is
    the file in which verdicts are kept. `of_size`: mutants that begin to be wrong at some size, in
    place of the usual ones.
    """

    most_mutants: int | None = 100
    of_size: bool = False
    modules: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    own_tests: str | None = None
    own_mutants: int | None = None
    results: Path | None = None


def _number_or_all(_context: click.Context, _option: click.Parameter, value: str) -> int | None:
    """A number of mutants; None for all of them."""
    if value == "all":
        return None
    number = int(value) if value.isdecimal() else 0
    if number < 1:
        raise click.BadParameter(f"{value!r} is neither a number from 1 on nor 'all'")
    return number


def power_options(command: F) -> F:
    """Add the options of a power run to a command."""
    options = (
        click.option("--power", is_flag=True, help="Also certify mutants of TARGET's own source."),
        click.option(
            "--mutants",
            callback=_number_or_all,
            metavar="N|all",
            default="100",
            show_default=True,
            help="With --power: how many mutants, drawn by the seed.",
        ),
        click.option(
            "--power-sizes",
            is_flag=True,
            help="With --power: mutants that are right in small and wrong from some size on.",
        ),
        click.option(
            "--power-modules",
            metavar="LIST",
            help="With --power: modules to mutate; else the class's own and those it needs.",
        ),
        click.option(
            "--power-also",
            metavar="TARGET",
            multiple=True,
            help="With --power: another target of the same source, for mutants that TARGET passes.",
        ),
        click.option(
            "--power-results",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="With --power: keep verdicts here, and go on from them.",
        ),
        click.option(
            "--own-tests",
            metavar="COMMAND",
            help="With --power: the target's own tests, run on each mutant as well.",
        ),
        click.option(
            "--own-mutants",
            callback=_number_or_all,
            metavar="N|all",
            default="all",
            show_default=True,
            help="With --own-tests: on how many of the mutants, the first that were drawn.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def power_request(
    *,
    power: bool,
    mutants: int | None,
    power_sizes: bool,
    power_modules: str | None,
    power_also: tuple[str, ...],
    power_results: Path | None,
    own_tests: str | None,
    own_mutants: int | None,
    refused: dict[str, object],
) -> PowerOptions | None:
    """What was asked for; None without --power. Raises UsageError for what does not fit.

    `refused` are options that a power run has no use for, with their values.
    """
    if not power:
        given = {
            "--power-sizes": power_sizes,
            "--power-modules": power_modules is not None,
            "--power-also": bool(power_also),
            "--power-results": power_results is not None,
            "--own-tests": own_tests is not None,
        }
        for name, is_given in given.items():
            if is_given:
                raise click.UsageError(f"{name} belongs to --power; add --power")
        if mutants != 100:
            raise click.UsageError("--mutants belongs to --power; add --power")
        if own_mutants is not None:
            raise click.UsageError("--own-mutants belongs to --own-tests, with --power; add both")
        return None
    for name, value in refused.items():
        if value:
            raise click.UsageError(
                f"{name} does not go with --power; leave it out, or certify without --power"
            )
    names = tuple(name.strip() for name in (power_modules or "").split(",") if name.strip())
    if power_modules is not None and not names:
        raise click.BadParameter(
            "name at least one module, as a.b,c.d", param_hint="--power-modules"
        )
    if own_mutants is not None and own_tests is None:
        raise click.UsageError("--own-mutants belongs to --own-tests; add --own-tests COMMAND")
    return PowerOptions(
        most_mutants=mutants,
        modules=names,
        of_size=power_sizes,
        also=power_also,
        own_tests=own_tests,
        own_mutants=own_mutants,
        results=power_results,
    )
