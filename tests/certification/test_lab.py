"""The lab: a skeleton leads to the next method, one at a time, until it holds."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from poolproof.certification.depths import BUDGETS, Budget
from poolproof.certification.lab import FirstLook, first_look, lead_on
from poolproof.certification.levels import LEVELS
from poolproof.contract.commands import Allocate
from poolproof.contract.manager_commands import AppendTokens
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity, Violation
from poolproof.stateful_tests import settings


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch):
    small = Budget(
        pool_chunks=1, chain_chunks=1, queue_chunks=1, manager_chunks=1, shortest_states=500
    )
    monkeypatch.setitem(BUDGETS, "quick", small)
    monkeypatch.setitem(settings.EXAMPLES, "quick", 10)
    monkeypatch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 40)


@pytest.fixture
def solutions():
    name = "poolproof_lab_solutions"
    path = Path(__file__).with_name("lab_solutions.py")
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def write_method(path, method, body):
    """Put the body in the place of the method's NotImplementedError."""
    unwritten = re.compile(
        rf"(    def {method}\(.*?)        raise NotImplementedError\([^\n]*\n", re.DOTALL
    )
    text = path.read_text()
    assert unwritten.search(text), method
    path.write_text(unwritten.sub(lambda found: found[1] + body.lstrip("\n"), text, count=1))


def set_up(path, body):
    line = "        self.enable_caching = enable_caching\n"
    path.write_text(path.read_text().replace(line, line + body.lstrip("\n")))


def said_next(result):
    """What the certificate says is to be done next, on one line."""
    assert result.exit_code == 1, result.output
    return re.search(r"next +(.*)", " ".join(result.stdout.split()))[1]


@pytest.mark.some(0)
def test_the_pool_is_led_to_method_by_method_and_holds(poolproof, solutions):
    poolproof("new", "mine.py")
    path = Path("mine.py")
    set_up(path, solutions.POOL_SET_UP)
    for lesson in LEVELS["pool"].lessons[:6]:
        result = poolproof("certify", "mine.py:Pool", "--depth", "quick")
        assert said_next(result).startswith(lesson.sentence)
        assert result.stdout.count("REFUSED f-") == 1, "more than one finding"
        write_method(path, lesson.method, solutions.POOL[lesson.method])
    assert poolproof("certify", "mine.py:Pool", "--depth", "quick").exit_code == 0


@pytest.mark.deep
def test_the_manager_is_led_to_method_by_method_and_then_to_the_cache(poolproof, solutions):
    poolproof("new", "--manager", "mine.py")
    path = Path("mine.py")
    set_up(path, solutions.MANAGER_SET_UP)
    for lesson in LEVELS["manager"].lessons[:5]:
        result = poolproof("certify", "mine.py:Manager", "--depth", "quick")
        assert said_next(result).startswith(lesson.sentence)
        write_method(path, lesson.method, solutions.MANAGER[lesson.method])
    held = poolproof("certify", "mine.py:Manager", "--depth", "quick")
    assert held.exit_code == 0, held.output
    assert "publishes=never: there is no prefix cache" in held.stdout
    path.write_text(path.read_text().replace('"publishes": "never"', '"publishes": "computed"'))
    cached = poolproof("certify", "mine.py:Manager", "--depth", "quick")
    assert cached.exit_code == 1
    assert "the index says less than it could" in " ".join(cached.stdout.split())


@pytest.mark.deep
def test_the_engine_is_led_to_method_by_method(poolproof, solutions):
    poolproof("new", "--engine", "mine.py")
    path = Path("mine.py")
    set_up(path, solutions.ENGINE_SET_UP)
    for lesson in LEVELS["engine"].lessons[:3]:
        result = poolproof("certify", "mine.py:Engine", "--depth", "quick")
        assert said_next(result).startswith(lesson.sentence)
        write_method(path, lesson.method, solutions.ENGINE[lesson.method])
    done = poolproof("certify", "mine.py:Engine", "--depth", "quick")
    # It is right, and so plain that what a pass needs does not occur.
    assert done.exit_code == 2, done.output
    assert "a prefix was found in the cache" in " ".join(done.stdout.split())


def test_what_is_wrong_comes_before_what_is_missing(poolproof, solutions):
    poolproof("new", "mine.py")
    path = Path("mine.py")
    set_up(path, solutions.POOL_SET_UP)
    write_method(path, "num_free", solutions.POOL["num_free"])
    write_method(path, "allocate", "        return self.queue[:n]\n")
    result = poolproof("certify", "mine.py:Pool", "--depth", "quick")
    assert said_next(result).startswith("put OWN right before you go on: reference")
    assert "everything else, until the methods are written" in result.stdout


def test_a_finished_class_that_speaks_of_it_is_certified_in_full(poolproof, solutions):
    poolproof("new", "mine.py")
    path = Path("mine.py")
    set_up(path, solutions.POOL_SET_UP)
    for method, body in solutions.POOL.items():
        write_method(path, method, body)
    path.write_text(path.read_text() + "\n    def grow(self):\n        raise NotImplementedError\n")
    result = poolproof("certify", "mine.py:Pool", "--depth", "quick")
    assert result.exit_code == 0
    assert "never called  counts_of" not in result.stdout
    assert "grow" in result.stdout


def test_a_worker_that_is_lost_leaves_the_rest_to_the_stages(poolproof):
    poolproof("new", "mine.py")
    path = Path("mine.py")
    write_method(path, "num_free", "        import os\n        os._exit(3)\n")
    result = poolproof("certify", "mine.py:Pool", "--depth", "quick")
    assert result.exit_code == 1
    assert "ended the process with exit status 3" in result.stdout


def test_a_method_of_no_lesson_comes_last():
    assert LEVELS["pool"].lesson_for({"zeta", "alpha"}).call == "alpha()"
    assert LEVELS["pool"].lesson_for({"alpha", "touch"}).method == "touch"


def test_the_command_names_the_method_where_no_frame_does(samples, monkeypatch):
    violation = Violation("MISUSE", Severity.CRASH, "raised NotImplementedError")
    pool = samples.trace(commands=(Allocate(-1),), violation=violation)
    manager = samples.trace(
        level="manager",
        profile=ManagerProfile(),
        commands=(AppendTokens(0, (1,)),),
        violation=violation,
    )
    other = samples.trace(violation=Violation("MISUSE", Severity.CRASH, "accepted"))
    runs = iter([pool, pool, manager, other, None])

    class Campaign:
        def run(self, number, announce):
            class Run:
                num_steps, trace = 1, next(runs)

            return Run

    class Chunk:
        numbers = range(5)

    class Beacon:
        def mark(self, value):
            pass

        def bump(self, command=None):
            pass

    monkeypatch.setattr("poolproof.certification.lab.campaign_of", lambda *_: Campaign())
    look = first_look(None, Chunk, Beacon())
    assert isinstance(look, FirstLook)
    assert (look.num_steps, set(look.unwritten), look.broken) == (5, {"allocate", "append"}, {})


def test_nothing_is_told_where_nothing_is_driven():
    assert not lead_on(None, [], 0)
