"""vLLM's real schedulers behind the engine shape: what workers are told, and what is found."""

from __future__ import annotations

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
        "grammars",
        "drafts+grammars",
        "async+drafts+grammars",
    ],
)
def test_nothing_legal_is_accused(layouts, name):
    assert [result.trace for result in runs_of(layouts[name], 25) if result.trace] == []


@pytest.mark.parametrize("name", ["adapters", "images", "async+reset"])
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
