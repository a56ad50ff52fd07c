"""Modules of an engine are run from its folder, without the engine and without a trace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import import_from_source, stub_module

MODULES = ("words", "core.manager")


def engine(root: Path, word: str = "one", name: str = "enginex") -> Path:
    core = root / name / "core"
    core.mkdir(parents=True)
    (root / name / "__init__.py").write_text("raise RuntimeError('the engine was started')\n")
    (root / name / "words.py").write_text(f"import heavyweight\nWORD = {word!r}\n")
    (core / "manager.py").write_text(
        f"from heavyweight.parts import Tensor\nfrom {name}.words import WORD\n"
        "class Manager:\n    word = WORD\n    tensor = Tensor\n"
    )
    return root


def stubs() -> dict:
    return {
        "heavyweight": stub_module("heavyweight"),
        "heavyweight.parts": stub_module("heavyweight.parts", Tensor=int),
    }


def manager(root: Path, name: str = "enginex") -> type:
    return import_from_source(root, name, MODULES, stubs())["core.manager"].Manager


def test_modules_see_each_other_and_the_stubs(tmp_path):
    found = manager(engine(tmp_path))
    assert (found.word, found.tensor) == ("one", int)


def test_no_public_name_is_left_behind(tmp_path):
    manager(engine(tmp_path))
    assert not [name for name in sys.modules if name.split(".")[0] in {"enginex", "heavyweight"}]


def test_a_module_that_was_imported_before_comes_back(tmp_path, monkeypatch):
    real = stub_module("heavyweight")
    monkeypatch.setitem(sys.modules, "heavyweight", real)
    manager(engine(tmp_path))
    assert sys.modules["heavyweight"] is real


def test_two_versions_stand_side_by_side(tmp_path):
    one, two = engine(tmp_path / "a"), engine(tmp_path / "b", "two")
    assert (manager(one).word, manager(two).word) == ("one", "two")


def test_a_second_call_gives_the_same_classes(tmp_path):
    root = engine(tmp_path)
    assert manager(root) is manager(root)


def test_the_class_knows_its_file(tmp_path):
    found = manager(engine(tmp_path))
    assert sys.modules[found.__module__].__file__ == str(tmp_path / "enginex/core/manager.py")


def test_a_missing_file_is_named(tmp_path):
    root = engine(tmp_path)
    (root / "enginex/core/manager.py").unlink()
    with pytest.raises(TargetError, match=r"core/manager\.py does not exist; .* enginex's sources"):
        manager(root)


def test_a_missing_requirement_is_named(tmp_path):
    root = engine(tmp_path)
    (root / "enginex/words.py").write_text("import no_such_library\n")
    with pytest.raises(TargetError, match="it needs the module no_such_library, which is not inst"):
        manager(root)


def test_what_a_module_raises_is_said_in_one_line(tmp_path):
    root = engine(tmp_path)
    (root / "enginex/words.py").write_text("1 / 0\n")
    with pytest.raises(TargetError, match=r"words\.py cannot be imported: ZeroDivisionError"):
        manager(root)
    assert not [name for name in sys.modules if name.startswith("enginex")]
