"""The file of figures that a benchmark leaves: what it ran on, then what it measured."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poolproof.compiled_drivers import drivers_are_compiled
from poolproof.contract.trace import write_atomically

__all__ = ["surroundings", "write_record"]


def surroundings() -> dict[str, Any]:
    """What a figure can depend on besides the code; the load is the mean of the last minute."""
    return {
        "python": platform.python_version(),
        "compiled_drivers": drivers_are_compiled(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }


def write_record(path: Path, record: Mapping[str, Any], indent: int | None = 2) -> bool:
    """Write the figures, whole or not at all; a file that cannot be written is told in a line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(record, indent=indent) + "\n")
    except OSError as error:
        print(f"cannot write {path}: {error.strerror or error}", file=sys.stderr)
        return False
    return True
