"""How a test that knows nothing of Poolproof gets at an engine: the target's own part of it.

The test itself is written by `report/engine_test.py`, the same for every engine. What it needs of a
target is source that defines `new_engine()`, which builds a fresh instance with the methods of the
contract. A target that can be played through more of itself than that, such as a server with a
model, has a test of its own for the traces that allow it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from poolproof.contract.trace import Trace

__all__ = ["Reproducer", "native_reproducer"]


def _no_own_test(_trace: Trace, _name: str) -> list[str] | None:
    return None


@dataclass(frozen=True, slots=True)
class Reproducer:
    """What a target adds to a written test.

    `setting`, given a trace and the folder that the test lies in (None: the present one), has the
    lines that import `Any` and define `new_engine`; None for a trace whose engine cannot be built.
    `own_test`, given a trace and the name of the test function, has all lines of a test through
    more of the target than its contract; None for a trace that cannot be played so.
    """

    setting: Callable[[Trace, Path | None], list[str] | None]
    own_test: Callable[[Trace, str], list[str] | None] = _no_own_test


def native_reproducer(place: str, name: str) -> Reproducer | None:
    """Of a class that speaks the contract itself, in a file or a module.

    None for names that no file can import, a program's among them.
    """
    is_file = place.endswith(".py") or "/" in place
    names = name.split(".") if is_file else [*place.split("."), *name.split(".")]
    if not place or not all(part.isidentifier() for part in names):
        return None

    def setting(trace: Trace, folder: Path | None) -> list[str]:
        size = int(trace.options.get("block_size", 1))
        caching = f"enable_caching={trace.enable_caching}"
        return [
            *(_from_file(place, name, folder) if is_file else _from_module(place, name)),
            "",
            "",
            "def new_engine() -> Any:",
            '    """The engine under test."""',
            f"    return Engine({trace.num_blocks}, {size}, {caching})",
        ]

    return Reproducer(setting)


def _from_module(place: str, name: str) -> list[str]:
    first, *rest = name.split(".")
    renamed = [f"Engine = {name}"] if rest or first != "Engine" else []
    return ["from typing import Any", "", f"from {place} import {first}", *renamed]


def _from_file(place: str, name: str, folder: Path | None) -> list[str]:
    file = f"Path({place!r})"
    if folder is not None:
        back = os.path.relpath(Path(place).resolve(), folder.resolve())
        file = f"Path(__file__).parent / {back!r}"
    return [
        "import importlib.util",
        "import sys",
        "from pathlib import Path",
        "from typing import Any",
        "",
        f"FILE = {file}",
        "sys.path.insert(0, str(FILE.parent))  # for what the engine imports from beside it",
        'spec = importlib.util.spec_from_file_location("engine_under_test", FILE)',
        'module = sys.modules["engine_under_test"] = importlib.util.module_from_spec(spec)',
        "spec.loader.exec_module(module)",
        f"Engine = module.{name}",
    ]
