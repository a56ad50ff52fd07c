"""Our engine and its planted bugs under another package's name, where Poolproof cannot be imported.

A written test has to stand for itself, but the engine that it tests is ours: so the folders that
the planted bugs are made of are copied as the package `elsewhere`, and a process that runs a test
refuses every import of `poolproof` and of our folders.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CARRIED = ("impl", "bugs", "contract")

_ENGINE = """\
from elsewhere.bugs.engine_catalogue import ENGINE_SPECIMENS
from elsewhere.impl.engine import Engine as Right

FOUND = ENGINE_SPECIMENS[{specimen_id!r}]


def Engine(num_blocks, block_size, *, enable_caching=True):
    return {cls}.under(
        FOUND.profile.to_json(),
        num_blocks,
        block_size,
        enable_caching=enable_caching,
        host_places=FOUND.host_places,
    )
"""
_RUN = """\
import runpy
import sys


class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ImportError(f"{{name}} is not here")


sys.meta_path.insert(0, Refusing())
for name, function in runpy.run_path(sys.argv[1]).items():
    if name.startswith("test_"):
        function()
"""


class Elsewhere:
    """A folder with the package `elsewhere`, where engines and written tests lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for room in CARRIED:
            without = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / room, folder / "elsewhere" / room, ignore=without)
        (folder / "elsewhere" / "__init__.py").write_text("")
        for file in (folder / "elsewhere").rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace("poolproof.", "elsewhere."), encoding="utf-8")

    def write_engine(self, name: str, specimen_id: str, *, mended: bool) -> Path:
        """A file with `Engine`: a planted bug, or the engine without it, under its profile."""
        cls = "Right" if mended else "FOUND.cls"
        path = self.folder / name
        path.write_text(_ENGINE.format(specimen_id=specimen_id, cls=cls), encoding="utf-8")
        return path

    def run(self, test: Path) -> subprocess.CompletedProcess[str]:
        """Run the functions of a written test in a process that has nothing of Poolproof."""
        folders = {path.parent.name for path in ROOT.glob("*/__init__.py")}
        code = _RUN.format(refused=tuple(sorted({"poolproof", *folders})))
        return subprocess.run(  # noqa: S603 -- our own interpreter, on a file just written
            [sys.executable, "-B", "-c", code, test.name],
            capture_output=True,
            text=True,
            check=False,
            cwd=test.parent,
            env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        )


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    """Where Poolproof cannot be imported."""
    return Elsewhere(tmp_path_factory.mktemp("elsewhere"))
