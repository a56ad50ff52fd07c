"""Runs at the start of each interpreter below `--own-tests`: mutates one file while it is loaded.

The environment variable POOLPROOF_MUTANT says in JSON which files are watched, where to note the
ones that were loaded, and the edit of one of them. The file is read, changed in memory and
compiled; neither source nor bytecode of the mutant is ever written. The `sitecustomize` that this
one hides is run afterwards. Only the standard library is used.

Not seen: interpreters started with -I, -E or -S, a file that is run as a script, zip archives.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

VARIABLE = "POOLPROOF_MUTANT"


def install(order: dict[str, Any]) -> None:
    """Let the loader of source files ask the order before it takes what is on disk."""
    watched = set(order["files"])
    edit = order.get("edit")
    loader_class: Any = importlib.machinery.SourceFileLoader
    get_code = loader_class.get_code

    def get_mutated_code(loader: Any, fullname: str) -> Any:
        path = os.path.realpath(loader.path)
        if path in watched:
            with Path(order["seen"]).open("a", encoding="utf-8") as seen:
                seen.write(path + "\n")
            if edit is not None and edit["file"] == path:
                text = mutated(loader.get_data(loader.path), edit)
                return loader.source_to_code(text, loader.path)
        return get_code(loader, fullname)

    loader_class.get_code = get_mutated_code


def mutated(text: bytes, edit: dict[str, Any]) -> bytes:
    """The bytes of the file with the edit in them. Raises ImportError for another file."""
    if hashlib.sha256(text).hexdigest() != edit["sha256"]:
        raise ImportError(f"{edit['file']} has changed since the mutants were made")
    start, end, replacement = int(edit["start"]), int(edit["end"]), str(edit["text"])
    return text[:start] + replacement.encode() + text[end:]


def run_hidden() -> None:
    """Run the `sitecustomize` that would have run without this one."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if VARIABLE in os.environ:
    install(json.loads(os.environ[VARIABLE]))
    run_hidden()
