"""Schedulers in nano-vLLM's shape become engines: what a step computes, who is found, who is not.

nano-vLLM itself is looked at where `poolproof engines nano-engine` has fetched it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.targets.load import load_target

sys.path.insert(0, str(Path(__file__).parent))
from toy_nano_engine import written

sys.path.pop(0)


def findings(target, runs=25):
    """The invariants that are broken in any layout."""
    return {
        trace.violation.invariant
        for layout in target.layouts
        for number in range(runs)
        if (trace := campaign(layout).run(number).trace) is not None
    }


def campaign(layout):
    return EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)


def toy(tmp_path, *changes):
    return load_target(f"nano-engine:{written(tmp_path, *changes)}")


def test_a_right_scheduler_holds(tmp_path):
    target = toy(tmp_path)
    assert [layout.name for layout in target.layouts] == ["fcfs", "chunks", "large-steps"]
    assert findings(target) == set()


def test_a_prefill_computes_the_scheduled_positions_and_a_decode_the_last(tmp_path):
    engine = toy(tmp_path).layout("chunks").make(9, True)
    engine.submit(0, [1] * 7, max_new_tokens=2)
    steps = []
    for token in (1, 2, 1):
        (part,) = engine.plan().parts
        steps.append((part.first, part.count, len(part.blocks[0])))
        given = engine.answer({0: [token]} if part.first + part.count >= 7 else {}, {})
    assert steps == [(0, 6, 2), (6, 1, 2), (7, 1, 2)]
    assert given == [(0, [1], True)]
    assert (engine.num_free(), engine.unfinished()) == (9, [])


def test_who_gives_way_is_told(tmp_path):
    engine = toy(tmp_path).make(4, True)
    for number in range(2):
        engine.submit(number, [1] * 8, max_new_tokens=4)
    engine.plan()
    engine.answer({0: [1], 1: [1]}, {})
    plan = engine.plan()
    assert ([part.request_id for part in plan.parts], plan.preempted) == ([0], (1,))


def test_an_engine_without_work_is_not_stepped(tmp_path):
    engine = toy(tmp_path).make(4, True)
    assert engine.plan().parts == ()
    assert engine.answer({}, {}) == []


def test_tokens_under_a_salt_are_others_to_the_engine_and_the_same_to_users(tmp_path):
    engine = toy(tmp_path).make(9, True)
    told = []
    add = engine._scheduler.add
    engine._scheduler.add = lambda seq: (told.append(seq), add(seq))
    engine.submit(0, [1, 2], max_new_tokens=2, extra_keys=(("salt", "salt", 0, None),))
    engine.plan()
    assert engine.answer({0: [2]}, {}) == [(0, [2], False)]
    engine.plan()
    assert engine.answer({0: [0]}, {}) == [(0, [0], True)]
    (sequence,) = told
    assert sequence.token_ids[1] == sequence.token_ids[2] != 2
    assert sequence.token_ids[3] == 0


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        (("            if token == self.eos or num_new", "            if num_new"), "OUT"),
        (("self.block_manager.deallocate(seq)\n", "pass\n"), "LEAK"),
        (("left -= count", "pass"), "PLAN"),
        (("seq.num_cached_tokens = 0\n", "pass\n"), "DATA"),
    ],
    ids=["stop token", "leak", "budget", "resumed"],
)
def test_a_wrong_scheduler_is_found(tmp_path, change, invariant):
    assert invariant in findings(toy(tmp_path, change))


def test_a_decode_writes_into_the_last_block_of_its_table(tmp_path):
    """The model runner does so, whatever the position is."""
    extra = (
        "            else:\n",
        "            else:\n                seq.block_table.append(0)\n",
    )
    layout = toy(tmp_path, extra).layout("fcfs")
    traces = [campaign(layout).run(number).trace for number in range(20)]
    sentences = {trace.violation.sentence for trace in traces if trace is not None}
    assert any("blocks: the model runner writes position" in each for each in sentences)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("return step, True", "return step"), "`schedule` answered .* knows a list of sequences"),
        (("def add(self, seq)", "def put(self, seq)"), "Scheduler of .* lacks add()"),
        (("def schedule(self)", "def schedule(self, now)"), "`schedule` takes"),
        (("self.running", "self.active"), "running"),
        (("max_tokens=64", "limit=64"), "max_tokens"),
        (("class SamplingParams", "class Parameters"), "cannot be imported"),
        (("class Config", "class Settings"), "cannot be imported"),
        (("self.most = config.max_num_seqs", "assert config.eos == 2"), "AssertionError"),
        (("def hash_blocks", "def publish"), "throws away the first token"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(tmp_path, change, said):
    with pytest.raises(TargetError, match=said) as refused:
        toy(tmp_path, change)
    assert "\n" not in str(refused.value)


def test_rows_in_brackets_are_refused(tmp_path):
    with pytest.raises(TargetError, match="choose one with --layout, one of fcfs, chunks"):
        load_target(f"nano-engine:{written(tmp_path)}[max_running=2]")


def test_a_folder_without_a_scheduler_is_named(tmp_path):
    with pytest.raises(TargetError, match=r"holds no package with engine/scheduler\.py"):
        load_target(f"nano-engine:{tmp_path}")


def test_what_was_not_fetched_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match="run `poolproof engines nano-engine`"):
        load_target("nano-engine")


@pytest.mark.vllm
def test_nano_vllm_itself_holds():
    try:
        target = load_target("nano-engine")
    except TargetError as error:
        pytest.skip(str(error))
    assert findings(target) == set()
