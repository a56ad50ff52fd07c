"""Every wrong output is named: the benchmark on one engine with a fault, and on one without."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_specimen import BLOCK_SIZE, build_engine
from poolproof.impl.engine import Engine
from poolproof.watch.digests import Digests
from poolproof.watch.live_memory import LiveMemory

FOLDER = Path(__file__).parents[2] / "benchmarks"
PROFILE = ENGINE_SPECIMENS["S129"].profile


@pytest.fixture
def victims(monkeypatch):
    """benchmarks/watch_victims.py, which is in no package, with its neighbours."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("record", "dependent_worker", "watch_victims"):
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


def compared(victims, engine, seed):
    right = victims.served(
        build_engine(Engine, PROFILE, 0, 64, False), PROFILE, seed, None, cancels=False
    )
    memory = LiveMemory(14, PROFILE.groups, [BLOCK_SIZE], Digests(b"key"), null_block=0)
    recorder = victims.Recorder(memory)
    run = victims.served(engine, PROFILE, seed, recorder)
    run.named = recorder.named
    return victims.compared(run, right)


def test_all_wrong_outputs_of_an_engine_that_skips_chunks_are_named(victims):
    counts = compared(victims, ENGINE_SPECIMENS["S129"].make(14), 0)
    assert counts["wrong"] == counts["named"] > 3


def test_an_engine_without_a_fault_gives_what_it_gives_without_caching(victims):
    for seed in range(3):
        counts = compared(victims, build_engine(Engine, PROFILE, 0, 14, True), seed)
        assert counts["wrong"] == counts["crashed"] == 0
        assert counts["outputs"] == 24


def test_prompts_share_their_beginnings(victims):
    starts = [tuple(tokens[:4]) for _, tokens, _, _ in victims.prompts(random.Random(1))]
    assert len(set(starts)) < len(starts) / 4
