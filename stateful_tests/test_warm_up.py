"""What Hypothesis does at its first run is done before a target is called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.stateful_tests import warm_up as module
from poolproof.stateful_tests.warm_up import warm_up, warmed_up


def test_the_target_is_loaded_between_so_that_its_modules_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def load() -> str:
        order.append("load")
        return "the target"

    monkeypatch.setattr(module, "warm_up", lambda: order.append("warm up"))
    assert warmed_up(load)() == "the target"
    assert order == ["warm up", "load", "warm up"]


def test_warming_up_leaves_nothing_behind_and_prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    warm_up()
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_what_runs_later_reads_no_modules(tmp_path: Path) -> None:
    # Old releases read no modules, but parse much at every run.
    pytest.importorskip("hypothesis.internal.constants_ast")
    # In a process of its own: here Hypothesis has run before.  A run parses a text or two anyway.
    program = """
import ast
from poolproof.stateful_tests.warm_up import warm_up
parse, texts = ast.parse, []
ast.parse = lambda *given, **options: texts.append(given) or parse(*given, **options)
warm_up()
first = len(texts)
warm_up()
assert len(texts) - first <= min(first, 5), (first, len(texts))
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)
