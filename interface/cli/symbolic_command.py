"""`poolproof symbolic`: contracts of the small functions, confirmed over all inputs."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

    from poolproof.exploration.symbolic.symbolic_run import SymbolicRun

__all__ = ["symbolic_command"]


@click.command("symbolic")
@click.argument("names", nargs=-1, metavar="[CONTRACT]...")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all results.")
@click.option(
    "--timeout-s",
    type=click.FloatRange(min=0.1),
    default=20.0,
    show_default=True,
    help="Limit for each condition, in seconds of CPU time. Not confirmed is a failure.",
)
def symbolic_command(names: tuple[str, ...], json_file: Path | None, timeout_s: float) -> None:
    """Confirm the contracts of hash keys, sizing, windows, slots, admission and single steps.

    CrossHair executes each function symbolically: a contract is confirmed over all paths, refuted
    by arguments that it names, or neither. Wrong versions of the code must be refuted.

    Exit status: 0 all confirmed, 1 one refuted, 2 not confirmed or CrossHair is missing.
    """
    if importlib.util.find_spec("crosshair") is None:
        _stop("symbolic needs CrossHair; install it with: pip install 'poolproof[proof,symbolic]'")
    from poolproof.exploration.symbolic.catalogue import CONTRACTS
    from poolproof.exploration.symbolic.symbolic_run import run_symbolic
    from poolproof.report.output_files import check_file, write_file
    from poolproof.report.text_form import show

    known = [contract.name for contract in CONTRACTS]
    unknown = [name for name in names if name not in known]
    if unknown:
        _stop(f"no contract {unknown[0]!r}; known are {', '.join(known)}")
    if json_file is not None:
        check_file(json_file)
    run = run_symbolic(timeout_s, names)
    show(_report(run))
    if json_file is not None:
        value = {"format": "poolproof-symbolic", "version": 1, **asdict(run)}
        write_file(json_file, json.dumps(value, indent=1) + "\n")
    sys.exit(run.exit_status)


def _report(run: SymbolicRun) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from poolproof.exploration.symbolic.catalogue import CONTRACTS

    by_name = {contract.name: contract for contract in CONTRACTS}
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in ("contract", "of", "conditions", "verdict", "time"):
        table.add_column(heading, overflow="fold")
    for outcome in run.contracts:
        table.add_row(
            outcome.name, by_name[outcome.name].subject, str(outcome.num_conditions),
            outcome.verdict, f"{outcome.duration_s:.2f} s",
        )  # fmt: skip
    confirmed = sum(outcome.verdict == "confirmed" for outcome in run.contracts)
    refuted = sum(outcome.verdict == "refuted" for outcome in run.wrong)
    lines = [
        f"{outcome.name}: {outcome.message}"
        for outcome in run.contracts
        if outcome.verdict != "confirmed"
    ]
    lines += [
        f"a wrong version got through {outcome.name}: {outcome.message}"
        for outcome in run.wrong
        if outcome.verdict != "refuted"
    ]
    lines += [
        f"wrong versions   {refuted} of {len(run.wrong)} refuted",
        f"contracts        {confirmed} of {len(run.contracts)} confirmed over all paths",
    ]
    return Group(table, Text(""), *map(Text, lines))


def _stop(message: str) -> NoReturn:
    click.echo(f"poolproof: {message}", err=True)
    sys.exit(2)
