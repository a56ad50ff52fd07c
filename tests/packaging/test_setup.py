"""setup.py computes the packages and their data; a list that misses one is silent, so it is tried.

A small tree of the same layout is built with the real setup.py in a child process.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Takes the arguments that setup.py passes on, without building anything.
PRINT_ARGUMENTS = """
import json, runpy, sys, types
seen = {}
fake = types.ModuleType("setuptools")
fake.setup = seen.update
fake.Extension = lambda name, sources, **_: [name, *sources]
sys.modules["setuptools"] = fake
building = types.ModuleType("setuptools.command.build_py")
building.build_py = object
sys.modules["setuptools.command"] = types.ModuleType("setuptools.command")
sys.modules["setuptools.command.build_py"] = building
extending = types.ModuleType("setuptools.command.build_ext")
extending.build_ext = object
sys.modules["setuptools.command.build_ext"] = extending
cython = types.ModuleType("Cython.Build")
cython.cythonize = lambda modules, **_: modules
sys.modules["Cython"] = sys.modules["Cython.Build"] = cython
if "egg_info" in sys.argv:
    sys.modules["Cython"] = sys.modules["Cython.Build"] = None
runpy.run_path("setup.py", run_name="__main__")
seen.pop("options")
seen.pop("cmdclass")
print(json.dumps(seen))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "setup.py", tmp_path)
    for name in (
        "interface/__init__.py",
        "interface/py.typed",
        "interface/templates/page.html.j2",
        "interface/templates/parts/row.html.j2",
        "contract/__init__.py",
        "contract/words.py",
        "contract/deep/deeper/module.py",
        "contract/deep/deeper/trace[1].jsonl",
        "contract/__pycache__/words.cpython-311.pyc",
        "contract/.hypothesis/example",
        "tests/test_x.py",
        "scripts/tool.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return tmp_path


def run(
    tree: Path, command: str = "bdist_wheel", **environment: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", PRINT_ARGUMENTS, command],
        cwd=tree,
        env={**os.environ, "POOLPROOF_COMPILE": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def arguments(tree: Path, *command: str, **environment: str) -> dict[str, object]:
    done = run(tree, *command, **environment)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_nested_folders_join_at_any_depth(tree: Path) -> None:
    assert arguments(tree)["packages"] == [
        "poolproof",
        "poolproof.contract",
        "poolproof.contract.deep",
        "poolproof.contract.deep.deeper",
    ]


def test_a_new_folder_joins_by_its_init(tree: Path) -> None:
    (tree / "kernels").mkdir()
    (tree / "kernels" / "__init__.py").touch()
    found = arguments(tree)
    assert "poolproof.kernels" in found["packages"]
    assert found["package_dir"]["poolproof.kernels"] == "kernels"


def test_every_other_file_is_data_and_what_tools_leave_is_not(tree: Path) -> None:
    assert arguments(tree)["package_data"] == {
        "poolproof": ["py.typed", "templates/page.html.j2", "templates/parts/row.html.j2"],
        "poolproof.contract": [],
        "poolproof.contract.deep": [],
        # A bracket is a pattern to setuptools, unless it is escaped.
        "poolproof.contract.deep.deeper": ["trace[[]1].jsonl"],
    }


@pytest.mark.parametrize("twin", ["contract.py", "contract/x.py"])
def test_two_sources_for_one_package_are_refused(tree: Path, twin: str) -> None:
    path = tree / "interface" / twin
    path.parent.mkdir(exist_ok=True)
    path.touch()
    done = run(tree)
    assert done.returncode == 1
    assert "would both be poolproof.contract; rename one of them" in done.stderr
    assert "Traceback" not in done.stderr


def test_bytecode_of_a_folder_that_is_gone_is_no_second_source(tree: Path) -> None:
    left = tree / "interface" / "contract" / "__pycache__"
    left.mkdir(parents=True)
    (left / "x.cpython-311.pyc").touch()
    assert "poolproof.contract" in arguments(tree)["packages"]


def test_nothing_is_compiled_unless_it_is_asked_for(tree: Path) -> None:
    found = arguments(tree)
    assert (found["ext_modules"], found["setup_requires"]) == ([], [])


def test_what_is_compiled_is_there_and_states_no_invariant(tree: Path) -> None:
    found = arguments(tree, POOLPROOF_COMPILE="1")
    assert [requirement.startswith("cython>=") for requirement in found["setup_requires"]] == [True]
    for name, source in found["ext_modules"]:
        assert (ROOT / source).is_file()
        assert name == f"poolproof.{source.removesuffix('.py').replace('/', '.')}"
        assert source.split("/")[0] in {"fuzz", "harness", "impl", "reference"}
    assert ["poolproof.harness.pool_check", "harness/pool_check.py"] in found["ext_modules"]


def test_what_a_compiling_build_needs_is_told_before_it_is_there(tree: Path) -> None:
    found = arguments(tree, "egg_info", POOLPROOF_COMPILE="1")
    assert found["ext_modules"] == []
    assert found["setup_requires"]


def test_an_editable_install_is_not_compiled(tree: Path) -> None:
    done = run(tree, "editable_wheel", POOLPROOF_COMPILE="1")
    assert done.returncode == 1
    assert done.stderr == "POOLPROOF_COMPILE=1 is for plain installs; leave out --editable.\n"
    assert arguments(tree, "editable_wheel")["ext_modules"] == []
