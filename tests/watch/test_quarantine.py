"""The mode `quarantine`: who reads wrong KV is ended, and nobody finds what it wrote."""

from __future__ import annotations

import json
import logging

import pytest

from poolproof.targets.vllm_engine import VllmEngine
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import SETUPS
from poolproof.targets.vllm_watch import attach
from poolproof.watch import watcher
from poolproof.watch.settings import WatchSettings

pytestmark = pytest.mark.vllm

PROMPT = [1] * 13
"""Three full blocks of 4 tokens and one more; two of them stand in the cache."""


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("poolproof.watch"), "handlers", [logging.NullHandler()])
    monkeypatch.setattr(watcher.atexit, "register", lambda call: None)


@pytest.fixture(scope="module")
def parts():
    return SchedulerParts(next(setup for setup in SETUPS if setup.name == "fcfs"))


@pytest.fixture
def engine(parts):
    return VllmEngine(parts, 12, enable_caching=True)


def step(engine):
    """One step; what each request was given, and how it ended."""
    plan = engine.plan()
    planned = engine._in_flight.popleft()
    ids = list(planned.num_scheduled_tokens)
    output = engine._parts.runner_output(
        req_ids=ids,
        req_id_to_index={request_id: place for place, request_id in enumerate(ids)},
        sampled_token_ids=[[1] for _ in ids],
    )
    given = engine.scheduler.update_from_output(planned, output)
    return plan, {
        one.request_id: (one.new_token_ids, str(one.finish_reason))
        for outputs in given.values()
        for one in outputs.outputs
    }


def read_of_a_stranger(engine, monkeypatch):
    """One look-up gives a block of request 1 for the second block of request 0's prompt."""
    tables = []
    for number, prompt in enumerate(([1] * 9, [2] * 9)):
        engine.submit(number, prompt, max_new_tokens=1)
        plan, _ = step(engine)
        tables.append(plan.parts[0].blocks[0])
    pool = engine.scheduler.kv_cache_manager.block_pool
    look_up = pool.get_cached_block

    def lies(*args, **named):
        found = look_up(*args, **named)
        if found and found[0].block_id == tables[0][1]:
            return [pool.blocks[tables[1][1]]]
        return found

    with monkeypatch.context() as patched:
        patched.setattr(pool, "get_cached_block", lies)
        engine.submit(2, PROMPT, max_new_tokens=3)
        return step(engine)


def findings(watch):
    lines = (watch.watcher.path / "findings.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_without_it_the_user_is_given_a_token_from_a_strangers_kv(engine, tmp_path, monkeypatch):
    watch = attach(engine.scheduler, WatchSettings("log", tmp_path, budget=9.0))
    plan, given = read_of_a_stranger(engine, monkeypatch)
    assert plan.parts[0].first == 8
    assert given == {"2": ([1], "None")}
    watch.watcher.end()
    assert [finding["invariant"] for finding in findings(watch)] == ["DATA"]


def test_who_reads_wrong_kv_is_ended_before_it_is_given_a_token(engine, tmp_path, monkeypatch):
    watch = attach(engine.scheduler, WatchSettings("quarantine", tmp_path, budget=9.0))
    _, given = read_of_a_stranger(engine, monkeypatch)
    assert given == {"2": ([], "error")}
    assert engine.unfinished() == []
    assert engine.num_free() == 11
    watch.watcher.end()
    assert [finding["action"] for finding in findings(watch)] == ["aborted"]


def test_nobody_finds_what_a_wrong_read_has_written(engine, tmp_path, monkeypatch):
    attach(engine.scheduler, WatchSettings("quarantine", tmp_path, budget=9.0))
    read_of_a_stranger(engine, monkeypatch)
    engine.submit(3, PROMPT, max_new_tokens=1)
    plan, given = step(engine)
    assert plan.parts[0].first == 8
    assert given == {"3": ([1], "length")}


def test_nobody_finds_the_block_that_was_read_wrongly(engine, tmp_path, monkeypatch):
    attach(engine.scheduler, WatchSettings("quarantine", tmp_path, budget=9.0))
    read_of_a_stranger(engine, monkeypatch)
    engine.submit(3, [2] * 9, max_new_tokens=1)
    plan, _ = step(engine)
    assert plan.parts[0].first == 4
