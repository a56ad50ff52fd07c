"""The file of figures that a benchmark leaves: what it ran on, then what it measured.

Figures go to build/benchmarks. Those that the manual quotes stand in benchmarks/results, and only a
run that is asked to (`--record`) writes there: what somebody tries out changes no page.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poolproof.cli.command_line import drivers_are_compiled
from poolproof.contract.trace import write_atomically

__all__ = ["RECORDED", "add_destination", "surroundings", "tell_destination", "write_record"]

_ROOT = Path(__file__).resolve().parent.parent
RECORDED = _ROOT / "benchmarks" / "results"
"""What the manual quotes."""
_MEASURED = _ROOT / "build" / "benchmarks"


def add_destination(parser: ArgumentParser, name: str) -> None:
    """Let the command line say where the figures called `name` go, as the option `json`."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        default=_MEASURED / f"{name}.json",
        help="where the figures go (default: build/benchmarks)",
    )
    where.add_argument(
        "--record",
        action="store_const",
        dest="json",
        const=RECORDED / f"{name}.json",
        help="into benchmarks/results, for the manual to quote",
    )


def surroundings() -> dict[str, Any]:
    """What a figure can depend on besides the code; the load is the mean of the last minute."""
    return {
        "python": platform.python_version(),
        "compiled_drivers": drivers_are_compiled(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }


def write_record(
    path: Path, record: Mapping[str, Any] | list[Any], indent: int | None = 2, *, tells: bool = True
) -> bool:
    """Write the figures, whole or not at all; a file that cannot be written is told in a line.

    So is where they are, unless more of them follow.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(record, indent=indent) + "\n")
    except OSError as error:
        print(f"cannot write {path}: {error.strerror or error}", file=sys.stderr)
        return False
    if tells:
        tell_destination(path)
    return True


def tell_destination(path: Path) -> None:
    """Say where the figures are, and what is left to do where the manual quotes them."""
    shown = os.path.relpath(path)
    if path.parent == RECORDED:
        print(f"recorded in {shown}; make pages brings the manual up to date")
    else:
        print(f"figures in {shown}")
