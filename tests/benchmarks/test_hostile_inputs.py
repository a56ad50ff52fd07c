"""The corpus of hostile inputs in small: no traceback, no wrong status, nobody left running."""

import importlib.util
import sys
import time
from pathlib import Path

import pytest

from poolproof.harness.isolation.process_tree import FINDS_ALL

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

pytestmark = pytest.mark.skipif(not FINDS_ALL, reason="needs Linux's subreapers and /proc")


@pytest.fixture
def script(monkeypatch):
    """The benchmark, which is no package, with the modules beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in ("record", "hostile_samples", "hostile_inputs"):
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return sys.modules["hostile_inputs"]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("kind", "count"),
    [("trace", 6), ("known", 6), ("baseline", 6), ("workload", 6), ("campaign", 6), ("program", 3),
     ("target", 3)],
)  # fmt: skip
def test_hostile_inputs_end_as_they_should(script, kind, count):
    broken, statuses, _ = script.try_kind(kind, count, seed=1)
    assert broken == []
    assert sum(statuses.values()) == count


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["program", "target"])
def test_one_round_of_all_hostile_families(script, kind):
    broken, _, _ = script.try_kind(kind, 40, seed=2)
    assert broken == []


def one(script, **changes):
    values = {"name": "x", "arguments": (), "statuses": {2}, "outputs": ("c.json",)}
    return script.Input(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"status": 124}, "takes too long"),
        ({"status": 0}, "wrong status"),
        ({"output": "Traceback (most recent call last)\n"}, "traceback"),
        ({"output": "poolproof: this is a bug in Poolproof 0.1"}, "bug of ours"),
        ({"output": "\x1b[2J"}, "output not made safe"),
        ({"output": ""}, "no message"),
        ({"status": 1, "statuses": {1}}, "output lost"),
        ({"left": 2}, "left running"),
    ],
)
def test_each_rule_can_be_broken(script, tmp_path, changes, rule):
    values = {"status": 2, "output": "poolproof: no", "seconds": 1.0, "left": 0}
    of_input = {name: changes.pop(name) for name in list(changes) if name == "statuses"}
    ended = script.Ended(**{**values, **changes})
    broken = [name for name, _ in script.rules_broken(one(script, **of_input), ended, tmp_path)]
    assert rule in broken


def test_what_a_command_leaves_running_is_seen_and_ended(script, tmp_path, monkeypatch):
    def leave(arguments, prog_name):
        import subprocess

        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        raise SystemExit(0)

    monkeypatch.setattr(script, "main", leave)
    ended = script.run([], tmp_path)
    assert ended.left == 1
    assert ended.status == 0


def test_a_command_without_end_is_ended(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script, "main", lambda *_, **__: time.sleep(600))
    assert script.run([], tmp_path, patience_s=0.2).status == 124
