"""Writes the GitHub Actions workflows of `fuzz/recipes/` into a user's repository.

One certifies each pull request, the other continues a campaign each night; docs/ci.md explains
them. They are written once; from then on they belong to the user.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

from poolproof.report.output_files import OutputError, check_folder, write_file

__all__ = ["RECIPES", "recipe", "write_recipes"]

RECIPES = ("poolproof-gate.yml", "poolproof-campaign.yml")


def recipe(name: str, target: str | None = None) -> str:
    """The text of a workflow, with the target to certify filled in."""
    text = (files("poolproof.fuzz") / "recipes" / name).read_text("utf-8")
    if target is None:
        return text
    # A text in JSON is one in YAML, whatever brackets and colons it has.
    line = f"  TARGET: {json.dumps(target)}"
    return re.sub(r"^  TARGET: .*$", lambda _: line, text, count=1, flags=re.MULTILINE)


def write_recipes(folder: Path, target: str | None = None) -> list[Path]:
    """Write all workflows or none; returns their paths. Raises OutputError."""
    paths = [folder / name for name in RECIPES]
    for path in paths:
        if path.exists() or path.is_symlink():
            raise OutputError(f"{path} exists already and is left as it is; move it away first")
    check_folder(folder)
    for path in paths:
        write_file(path, recipe(path.name, target))
    return paths
