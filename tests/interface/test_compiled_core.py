"""A compiled module that does not fit is left aside: its source runs, and one line says so.

The compiled files are fakes that no system loads; under `make test-compiled` they are real.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import pytest

import poolproof
from poolproof import compiled_core

SUFFIX = EXTENSION_SUFFIXES[0]
NAME = "madeup.core.loops"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with one module whose compiled file hides the source, and its record."""
    folder = tmp_path / "madeup"
    (folder / "core").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "core" / "__init__.py").touch()
    source = folder / "core" / "loops.py"
    source.write_text("KIND = 'source'\n")
    (folder / "core" / f"loops{SUFFIX}").write_bytes(b"no machine code")
    record(folder, SUFFIX)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(compiled_core, "_LEFT_ASIDE", {})
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "madeup"]:
        del sys.modules[name]


def record(folder: Path, suffix: str) -> None:
    digest = compiled_core.source_digest(folder / "core" / "loops.py")
    text = json.dumps({"suffix": suffix, "modules": {NAME: digest}})
    (folder / compiled_core.RECORD).write_text(text)


def imported_kind() -> str:
    module = __import__(NAME, fromlist=["KIND"])
    assert module.__file__.endswith("loops.py")
    return module.KIND


def test_a_compiled_module_that_fits_is_the_one_that_is_found(package):
    compiled_core.leave_unfit_aside(package)
    found = sys.meta_path[0].find_spec(NAME)
    assert found.origin.endswith(SUFFIX)
    assert compiled_core.left_aside_line() == ""


@pytest.mark.parametrize("edited", ["loops.py", "loops.pxd"])
def test_a_module_older_than_its_source_or_types_is_left_aside(package, edited):
    with (package / "core" / edited).open("a") as file:
        file.write("# edited\n")
    compiled_core.leave_unfit_aside(package)
    assert imported_kind() == "source"
    line = compiled_core.left_aside_line()
    assert "their sources run: core.loops (" in line
    assert "older than the source" in line
    assert "POOLPROOF_COMPILE=1 pip install" in line
    assert "\n" not in line


def test_a_module_for_another_interpreter_is_left_aside(package):
    record(package, ".cpython-27-other.so")
    compiled_core.leave_unfit_aside(package)
    assert imported_kind() == "source"
    assert "compiled for .cpython-27-other.so, not for this Python" in (
        compiled_core.left_aside_line()
    )


def test_a_module_that_cannot_be_loaded_is_left_aside_when_it_is_imported(package):
    compiled_core.leave_unfit_aside(package)
    assert imported_kind() == "source"
    assert "cannot be loaded" in compiled_core.left_aside_line()
    assert compiled_core.left_aside_line(known=[NAME]) == ""


@pytest.mark.parametrize("text", ["", "[]", '{"suffix": 1}'])
def test_a_record_that_cannot_be_read_leaves_all_compiled_files_aside(package, text):
    (package / compiled_core.RECORD).write_text(text)
    compiled_core.leave_unfit_aside(package)
    assert imported_kind() == "source"
    assert "older than the source" in compiled_core.left_aside_line()


def test_many_names_are_cut_to_one_line(monkeypatch):
    monkeypatch.setattr(compiled_core, "_LEFT_ASIDE", {f"p.m{n}": "older" for n in range(9)})
    assert "sources run: m0, m1, m2 and 6 more (" in compiled_core.left_aside_line()


@pytest.mark.skipif(
    find_spec("poolproof.impl.block_loops").origin.endswith(".py"), reason="nothing is compiled"
)
def test_a_fresh_build_leaves_nothing_aside_and_an_edited_source_runs(tmp_path):
    package = Path(poolproof.__file__).parent
    shutil.copytree(package, tmp_path / "poolproof", ignore=shutil.ignore_patterns("manual"))
    code = (
        "import poolproof.impl.block_loops as loops, poolproof.impl.key_table as table\n"
        "from poolproof.compiled_core import left_aside\n"
        "print(loops.__file__.endswith('.py'), table.__file__.endswith('.py'), *left_aside())"
    )

    def kinds():
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=True, env=environment
        )
        return done.stdout.split()

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert kinds() == ["False", "False"]
    with (tmp_path / "poolproof" / "impl" / "block_loops.py").open("a") as source:
        source.write("# edited\n")
    assert kinds() == ["True", "False", "poolproof.impl.block_loops"]


@pytest.mark.some(0)
def test_every_command_says_it_in_one_line():
    code = (
        "from poolproof import compiled_core\n"
        "compiled_core._LEFT_ASIDE['poolproof.impl.x'] = 'older than the source'\n"
        "from poolproof.cli.command_line import main\n"
        "main(['list'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.startswith(
        "poolproof: compiled modules are left aside and their sources run: impl.x ("
    )
    assert done.stderr.count("\n") == 1
