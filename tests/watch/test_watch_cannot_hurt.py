"""Whatever fails in the watch, vLLM's scheduler does what it does alone, bit for bit."""

from __future__ import annotations

import errno
import inspect
import logging
import os
import random
import socket
import time

import pytest

from poolproof.targets import vllm_watch
from poolproof.targets.vllm_engine import VllmEngine
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import SETUPS
from poolproof.watch import budget, digests, folder, live_memory, metrics, watcher
from poolproof.watch.settings import WatchSettings

pytestmark = pytest.mark.vllm

SCENARIO = "fcfs+async"


@pytest.fixture(scope="module")
def parts():
    return SchedulerParts(next(setup for setup in SETUPS if setup.name == SCENARIO))


TAKEN = socket.create_server(("", 0))
"""A port that the metrics cannot have, in every run."""


def served(parts, folder=None, mode="log", attach_at=0):
    """What users are given in a busy minute, every plan, and the watch."""
    engine = VllmEngine(parts, 9, enable_caching=True)
    choose, given, watch, number = random.Random(7), [], None, 0
    in_flight = []
    for step in range(160):
        if step == attach_at and folder is not None:
            settings = WatchSettings(
                mode, folder, every_s=0.0, budget=9.0, port=TAKEN.getsockname()[1]
            )
            watch = vllm_watch.attach(engine.scheduler, settings)
        if len(engine.scheduler.requests) < 5 and step < 120:
            tokens = [choose.randrange(1, 3) for _ in range(choose.randint(1, 14))]
            engine.submit(number, tokens, max_new_tokens=choose.randint(1, 9))
            number += 1
        if choose.random() < 0.03 and engine.scheduler.requests:
            engine.cancel(int(min(engine.scheduler.requests)))
        if choose.random() < 0.03:
            given.append(engine.reset())
        plan = engine.plan()
        given.append(plan)
        in_flight.append(plan)
        while len(in_flight) > (1 if step < 158 else 0):
            done = in_flight.pop(0)
            if done.parts:
                tokens = {part.request_id: [choose.randrange(1, 3)] for part in done.parts}
                given.append(engine.answer(tokens, {}))
            else:
                engine._in_flight.popleft()
    return given, watch


def calls_of_the_watch():
    """Every function and method of the modules that run beside the engine."""
    for module in (vllm_watch, live_memory, watcher, folder, budget, digests, metrics):
        for name, found in vars(module).items():
            if getattr(found, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(found):
                yield module, name
            elif inspect.isclass(found):
                for method, code in vars(found).items():
                    if inspect.isfunction(code) and not method.startswith("__"):
                        yield found, method


# The taps are what stands between the engine and the watch: their failing would be the engine's.
# What is left of each is the engine's own call and one through `guarded`.
NOT_GUARDED = {
    "_tap", "_tap_class", "tap_schedulers", "attach", "guarded", "switch_off",
    "_around_schedule", "_around_update", "_around_reset", "_around_shutdown", "_around_free",
    "_around_publish", "_around_match", "_around_alloc",
}  # fmt: skip
CALLS = [(owner, name) for owner, name in calls_of_the_watch() if name not in NOT_GUARDED]


@pytest.fixture(scope="module")
def alone(parts):
    return served(parts)[0]


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """No lines on standard error; nothing is left to be called when pytest ends."""
    monkeypatch.setattr(logging.getLogger("poolproof.watch"), "handlers", [logging.NullHandler()])
    monkeypatch.setattr(watcher.atexit, "register", lambda call: None)


@pytest.fixture
def beside(parts, alone, tmp_path):
    """Serve with a watch beside the engine, which must do what it does alone."""

    def serve():
        given, watch = served(parts, tmp_path)
        assert given == alone
        return watch

    return serve


def test_there_are_at_least_fifty_ways_to_fail():
    assert len(CALLS) > 50


@pytest.mark.parametrize(
    ("owner", "name"), CALLS, ids=[f"{owner.__name__}.{name}" for owner, name in CALLS]
)
@pytest.mark.parametrize("after", [0, 5])
def test_an_exception_in_any_call_changes_nothing(beside, monkeypatch, owner, name, after):
    original, number = getattr(owner, name), [0]

    def fail(*arguments, **named):
        number[0] += 1
        if number[0] > after:
            raise ZeroDivisionError(name)
        return original(*arguments, **named)

    static = isinstance(inspect.getattr_static(owner, name), classmethod | staticmethod)
    monkeypatch.setattr(owner, name, staticmethod(fail) if static else fail)
    beside()


def out_of_space(*arguments, **named):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")


def not_allowed(*arguments, **named):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "somewhere")


@pytest.mark.parametrize("failing", [out_of_space, not_allowed])
@pytest.mark.parametrize("call", ["_replace", "_write_finding", "_make", "_write_incident"])
def test_a_full_disk_or_a_forbidden_folder_changes_nothing(beside, monkeypatch, failing, call):
    owner = folder if call == "_replace" else folder.WatchFolder
    monkeypatch.setattr(owner, call, failing)
    watch = beside()
    assert watch.watcher.is_on


def test_a_clock_that_goes_back_changes_nothing(parts, alone, tmp_path, monkeypatch):
    now = iter(range(10**9, 0, -1000))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(now))
    monkeypatch.setattr(folder.time, "monotonic", lambda: float(next(now)))
    given, watch = served(parts, tmp_path)
    assert given == alone
    assert watch.watcher.is_on


@pytest.mark.parametrize("mode", ["log", "raise", "quarantine"])
def test_every_mode_changes_nothing_where_nothing_is_wrong(parts, alone, tmp_path, mode):
    given, watch = served(parts, tmp_path, mode)
    assert given == alone
    assert watch.watcher.counts.admissions_with_hits > 5
    assert not watch.watcher.violations


@pytest.mark.parametrize("attach_at", [1, 17, 40])
def test_what_was_computed_before_it_came_is_unknown_and_never_wrong(
    parts, alone, tmp_path, attach_at
):
    given, watch = served(parts, tmp_path, attach_at=attach_at)
    assert given == alone
    assert not watch.watcher.violations
    if attach_at == 40:  # Earlier nothing is found again that was computed before.
        assert watch.watcher.counts.unknown_reads > 0


def test_it_switches_itself_off_once_and_takes_its_taps_out(parts, alone, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(watcher, "say", lambda level, text, error=None: told.append(text))
    monkeypatch.setattr(live_memory.LiveMemory, "end", lambda self: 1 / 0)
    given, watch = served(parts, tmp_path)
    assert given == alone
    (line,) = [text for text in told if "switched itself off" in text]
    assert line.endswith("the engine goes on unwatched: ZeroDivisionError: division by zero")
    assert any("no metrics on port" in text for text in told)
    assert not watch.watcher.is_on
    assert "schedule" not in vars(watch._scheduler)
