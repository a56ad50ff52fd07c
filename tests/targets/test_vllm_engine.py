"""vLLM's real schedulers behind the engine shape: what workers are told, and what is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import RunStep, Submit
from poolproof.contract.engine_target import engine_capabilities_of
from poolproof.contract.trace import read_trace
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.replay import start_session
from poolproof.targets.vllm_engine import vllm_engine_layouts

pytestmark = pytest.mark.vllm

FINDINGS = Path(__file__).resolve().parents[2] / "docs" / "findings"


@pytest.fixture(scope="module")
def layouts():
    return {layout.name: layout for layout in vllm_engine_layouts()}


def runs_of(layout, number):
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    return [campaign.run(place) for place in range(number)]


def test_first_come_first_served_is_not_accused_and_shows_everything(layouts):
    layout = layouts["fcfs"]
    results = runs_of(layout, 60)
    assert [result.trace for result in results if result.trace is not None] == []
    seen = set().union(*(result.facts for result in results))
    can = engine_capabilities_of(layout.make(9, True))
    assert set(required_engine_facts(layout.profile, can, layout.block_size)) <= seen


def test_the_first_step_of_a_request_has_its_whole_table(layouts):
    engine = layouts["fcfs"].make(9, True)
    engine.submit(0, [1, 2, 3, 4, 5], max_new_tokens=4)
    (part,) = engine.plan().parts
    assert (part.request_id, part.first, part.count, part.num_drafts) == (0, 0, 5, 0)
    assert [len(table) for table in part.blocks] == [2]


def test_later_steps_have_the_table_with_what_was_added(layouts):
    engine = layouts["fcfs"].make(9, True)
    engine.submit(0, [1, 2, 3, 4], max_new_tokens=4)
    (first,) = engine.plan().parts
    assert engine.answer({0: [1]}, {}) == [(0, [1], False)]
    (second,) = engine.plan().parts
    assert second.blocks[0][:1] == first.blocks[0]
    assert (second.first, second.count, len(second.blocks[0])) == (4, 1, 2)


def test_a_request_ends_with_the_stop_token(layouts):
    engine = layouts["fcfs"].make(9, True)
    engine.submit(0, [1, 2, 3], max_new_tokens=4)
    engine.plan()
    assert engine.answer({0: [0]}, {}) == [(0, [0], True)]
    assert (engine.num_free(), engine.unfinished()) == (8, [])


def test_a_salt_keeps_prompts_apart(layouts):
    engine = layouts["fcfs"].make(9, True)
    first = []
    for number, salt in enumerate((None, None, "salt")):
        keys = salt and (("salt", salt, 0, None),)
        engine.submit(number, [1] * 9, max_new_tokens=1, extra_keys=keys)
        first += [part.first for part in engine.plan().parts]
        engine.answer({number: [1]}, {})
    assert first == [0, 8, 0]


def test_a_smaller_priority_goes_first(layouts):
    engine = layouts["priority"].make(9, True)
    engine.submit(0, [1] * 16, max_new_tokens=1, priority=1)
    engine.submit(1, [2] * 16, max_new_tokens=1, priority=0)
    first, *_ = engine.plan().parts
    assert first.request_id == 1


# vllm#43569: keys are published when slots are allocated, and a preemption in the same pass keeps
# them. A, long, is preempted by B, which is more urgent, in the pass that scheduled A's
# third chunk.
A_LEAK = (
    Submit(0, TokenChain((1, 2) * 11 + (1,)), max_new_tokens=1, priority=2),
    RunStep(1, 0, 0),
    Submit(1, TokenChain((2, 2, 2, 2)), max_new_tokens=2, priority=0),
    *[RunStep(1, 0, 0)] * 4,
)


def test_a_request_that_is_preempted_in_its_own_pass_reads_what_nobody_computed(layouts):
    layout = layouts["priority"]
    session = EngineSession(layout.make(8, True), layout.profile, 8, layout.block_size)
    *before, last = [session.step(command) for command in A_LEAK]
    assert before == [None] * len(before)
    assert last is not None
    assert last.invariant == "DATA"


def test_the_same_without_priorities_is_right(layouts):
    layout = layouts["fcfs+chunks"]
    session = EngineSession(layout.make(8, True), layout.profile, 8, layout.block_size)
    assert [session.step(command) for command in A_LEAK] == [None] * len(A_LEAK)


@pytest.mark.parametrize(
    "name",
    [
        "fcfs+async",
        "fcfs+drafts",
        "async+drafts",
        "fcfs+chunks",
        "sliding",
        "full+sliding",
        "chunked",
        "pipeline",
        "adapters",
        "images",
        "async+reset",
        "async+drafts+images+reset",
        "async+images+sleep",
        "drafts+sleep-wait",
        "grammars",
        "drafts+grammars",
        "async+drafts+grammars",
    ],
)
def test_nothing_legal_is_accused(layouts, name):
    assert [result.trace for result in runs_of(layouts[name], 25) if result.trace] == []


@pytest.mark.parametrize(
    "name", ["adapters", "images", "async+reset", "async+images+sleep", "drafts+sleep-wait"]
)
def test_what_a_set_up_is_there_for_happens(layouts, name):
    layout = layouts[name]
    facts = set().union(*(result.facts for result in runs_of(layout, 60)))
    can = engine_capabilities_of(layout.make(8, True))
    needed = required_engine_facts(layout.profile, can, layout.block_size)
    assert set(needed) <= facts


def test_the_same_leak_needs_no_threshold_where_there_are_drafts(layouts):
    trace = read_trace(FINDINGS / "vllm-priority-leak-drafts.jsonl")
    session = start_session(trace, layouts["priority+drafts"].make)
    *before, last = [session.step(command) for command in trace.commands]
    assert before == [None] * len(before)
    assert last is not None
    assert last.invariant == "DATA"


def test_who_keeps_requests_sleeps_when_no_step_is_in_flight(layouts):
    engine = layouts["async+images+sleep"].make(9, True)
    engine.submit(0, [1, 2, 3], max_new_tokens=4)
    engine.plan()
    assert engine.reset() is False
    assert engine.plan().parts == ()
    assert engine.answer({0: [1]}, {}) == [(0, [1], False)]
    assert engine.answer({}, {}) == []
    assert engine.reset() is True
    (part,) = engine.plan().parts
    assert (part.first, part.count) == (0, 4)


def test_who_is_not_asked_again_is_woken_without_having_slept(layouts):
    engine = layouts["async+images+sleep"].make(9, True)
    engine.submit(0, [1, 2, 3], max_new_tokens=4)
    engine.plan()
    assert engine.reset() is False
    engine.answer({0: [1]}, {})
    (part,) = engine.plan().parts
    assert (part.first, part.count) == (3, 1)


def test_who_waits_sleeps_when_those_that_run_have_ended(layouts):
    engine = layouts["drafts+sleep-wait"].make(9, True)
    engine.submit(0, [1] * 8, max_new_tokens=2)
    engine.plan()
    engine.answer({0: [1]}, {0: []})
    engine.submit(1, [1] * 8, max_new_tokens=1)
    assert engine.reset() is False
    assert [part.request_id for part in engine.plan().parts] == [0]
    assert engine.answer({0: [1]}, {0: []}) == [(0, [1], True)]
    (part,) = engine.plan().parts or engine.plan().parts
    assert (part.request_id, part.first) == (1, 0)


def _forgets_no_key(engine):
    engine.scheduler.kv_cache_manager.reset_prefix_cache = lambda: True


def _keeps_the_encoders_cache(engine):
    engine.scheduler.reset_encoder_cache = lambda: None


def _keeps_the_blocks_of_those_that_run(engine):
    whole = engine.scheduler.reset_prefix_cache

    def weaker(reset_running_requests=False, reset_connector=False):
        del reset_running_requests
        whole(False, reset_connector)
        return True

    engine.scheduler.reset_prefix_cache = weaker


@pytest.mark.parametrize(
    ("name", "plant", "invariant"),
    [
        ("async+images+sleep", _forgets_no_key, "DATA"),
        ("async+images+sleep", _keeps_the_encoders_cache, "PLAN"),
        ("async+images+sleep", _keeps_the_blocks_of_those_that_run, "DATA"),
        ("drafts+sleep-wait", _forgets_no_key, "DATA"),
    ],
)
def test_what_goes_wrong_in_a_sleep_is_found(layouts, name, plant, invariant):
    layout = layouts[name]

    def make(num_blocks, enable_caching):
        engine = layout.make(num_blocks, enable_caching)
        plant(engine)
        return engine

    campaign = EngineCampaign(name, make, layout.profile, layout.block_size)
    runs = (campaign.run(number).trace for number in range(100))
    found = next(trace for trace in runs if trace is not None)
    assert found.violation.invariant == invariant


def test_a_request_waits_until_its_grammar_is_compiled(layouts):
    engine = layouts["grammars"].make(9, True)
    engine.submit(0, [1, 2, 3], max_new_tokens=1)
    engine.submit(1, [1, 2, 3], max_new_tokens=1)
    assert [part.request_id for part in engine.plan().parts] == [0]
    engine.answer({0: [1]}, {})
    assert [part.request_id for part in engine.plan().parts] == [1]
    assert engine.answer({1: [4]}, {}) == [(1, [4], True)]


@pytest.mark.parametrize(("request_id", "tried"), [(0, 2), (1, 1)])
def test_drafts_end_where_a_grammar_does_not_have_them(layouts, request_id, tried):
    engine = layouts["drafts+grammars"].make(9, True)
    engine.submit(request_id, [1, 2, 3], max_new_tokens=5)
    parts = engine.plan().parts or engine.answer({}, {}) or engine.plan().parts
    assert [part.count for part in parts] == [3]
    engine.answer({request_id: [1]}, {request_id: [3, 2]})
    (part,) = engine.plan().parts
    assert (part.count, part.num_drafts) == (1 + tried, tried)


@pytest.mark.parametrize("name", ["grammars", "drafts+grammars", "async+drafts+grammars"])
def test_masks_are_made_in_every_set_up_with_grammars(layouts, name):
    engine = layouts[name].make(9, True)
    made = []
    manager = engine.scheduler.structured_output_manager
    whole = manager.grammar_bitmask

    def noted(requests, ids, drafts):
        made.append(list(ids))
        return whole(requests, ids, drafts)

    manager.grammar_bitmask = noted
    engine.submit(1, [1, 2, 3], max_new_tokens=4)
    for _ in range(4):
        (part, *_) = engine.plan().parts or (None,)
        engine.answer({} if part is None else {1: [1]}, {1: [1, 1]})
    assert ["1"] in made


def test_loading_has_vllm_look_into_the_model_so_that_no_constructor_waits(tmp_path):
    # Where no vLLM has run, a process of its own does so, for ten seconds on a slow machine.
    look = "from poolproof.targets.load import load_target; load_target('vllm-engine')"
    environment = {**os.environ, "VLLM_CACHE_ROOT": str(tmp_path)}
    subprocess.run([sys.executable, "-c", look], env=environment, check=True, capture_output=True)
    assert list(tmp_path.glob("modelinfos/*Llama*"))
