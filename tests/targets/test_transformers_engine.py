"""Transformers' continuous batching behind the engine shape: what is told, what is found."""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import Cancel, PlanStep, RunStep, Submit
from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_session import EngineSession
from poolproof.targets import transformers_engine
from poolproof.targets.load import load_target

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def layouts():
    return {layout.name: layout for layout in load_target("transformers-engine").layouts}


def test_both_schedulers_are_driven(layouts):
    assert {"fifo", "prefill_first", "fifo+chunks", "prefill_first+chunks"} == layouts.keys()


def test_a_step_is_what_the_tensors_say(layouts):
    engine = layouts["fifo+chunks"].make(9, True)
    engine.submit(0, [1] * 7, max_new_tokens=2)
    steps, given = [], []
    for token in (1, 2, 1):
        (part,) = engine.plan().parts
        steps.append((part.first, part.count, [len(table) for table in part.blocks]))
        given += engine.answer({0: [token]}, {})
    assert steps == [(0, 6, [2]), (6, 1, [2]), (7, 1, [2])]
    assert given == [(0, [2], False), (0, [1], True)]
    assert (engine.num_free(), engine.unfinished()) == (9, [])


def test_a_prefix_is_found(layouts):
    engine = layouts["fifo"].make(9, True)
    first = []
    for number, salt in enumerate((None, None, "salt")):
        engine.submit(
            number, [1] * 9, max_new_tokens=2, extra_keys=salt and (("salt", salt, 0, None),)
        )
        first += [part.first for part in engine.plan().parts]
        engine.answer({number: [1]}, {})
        engine.plan()
        engine.answer({number: [1]}, {})
    assert first == [0, 8, 0]


def test_a_cancel_is_heard_before_the_next_step(layouts):
    engine = layouts["fifo"].make(9, True)
    engine.submit(0, [1] * 5, max_new_tokens=4)
    engine.plan()
    engine.cancel(0)
    assert engine.answer({0: [1]}, {}) == [(0, [1], False)]
    assert engine.plan().parts == ()
    assert (engine.num_free(), engine.unfinished()) == (9, [])


def test_who_gives_way_is_told(layouts):
    engine = layouts["fifo"].make(4, True)
    for number in range(2):
        engine.submit(number, [1 + number] * 8, max_new_tokens=4)
    engine.plan()
    engine.answer({0: [1], 1: [1]}, {})
    plan = engine.plan()
    assert ([part.request_id for part in plan.parts], plan.preempted) == ([0], (1,))


# Two prompts fill the cache; B gives way, and A is cancelled.
BLOCKED = (
    Submit(0, TokenChain((1,) * 8), max_new_tokens=4, priority=0),
    Submit(1, TokenChain((2,) * 8), max_new_tokens=4, priority=0),
    RunStep(1, 0, 0),
    RunStep(1, 0, 0),
    Cancel(0),
)


@pytest.mark.parametrize("name", ["fifo", "prefill_first"])
def test_a_cancel_after_a_soft_reset_blocks_the_queue(layouts, name):
    """Nobody waiting is let in until a running request finishes, and none runs."""
    layout = layouts[name]
    session = EngineSession(layout.make(4, True), layout.profile, 4, layout.block_size)
    assert [session.step(command) for command in BLOCKED] == [None] * len(BLOCKED)
    *before, last = [session.step(RunStep(1, 0, 0)) for _ in range(8)]
    assert before == [None] * 7
    assert last.invariant == "LIVE"


@pytest.mark.parametrize("name", ["fifo", "prefill_first", "fifo+chunks"])
def test_without_cancels_nothing_is_accused(layouts, name):
    layout = layouts[name]

    def without_cancel(num_blocks, enable_caching):
        engine = layout.make(num_blocks, enable_caching)
        engine.cancel = None
        return engine

    campaign = EngineCampaign(layout.name, without_cancel, layout.profile, layout.block_size)
    results = [campaign.run(number) for number in range(25)]
    assert [result.trace for result in results if result.trace is not None] == []
    assert "a preempted request came back" in set().union(*(r.facts for r in results))


def test_indices_that_are_not_the_tokens_slots_are_wrong_plans(layouts):
    layout = layouts["fifo"]
    session = EngineSession(layout.make(8, True), layout.profile, 8, layout.block_size)
    inputs = session.target._processor.inputs_and_outputs
    right = inputs.prepare_batch_tensors

    def wrong(*arguments, **named):
        right(*arguments, **named)
        inputs.write_index_storage[0, 0] += 1

    inputs.prepare_batch_tensors = wrong
    session.step(BLOCKED[0])
    violation = session.step(PlanStep())
    assert violation.invariant == "PLAN"
    assert "the model is told to write at" in violation.sentence


def test_rows_in_brackets_are_refused():
    with pytest.raises(TargetError, match="choose one with --layout, one of fifo, prefill_first"):
        load_target("transformers-engine[max_running=2]")


def test_another_release_is_one_line(monkeypatch):
    class Other:
        def __init__(self, cache):
            self.cache = cache

    loop = transformers_engine._loop()
    changed = type(loop)(**{**vars(loop), "ContinuousBatchProcessor": Other})
    monkeypatch.setattr(transformers_engine, "_loop", lambda: changed)
    with pytest.raises(TargetError, match="the constructor takes") as refused:
        load_target("transformers-engine")
    assert "\n" not in str(refused.value)
