"""gLLM's scheduler behind the engine shape, where `poolproof engines` has fetched it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import Cancel, RunStep, Submit
from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_session import EngineSession
from poolproof.targets.gllm_engine import GLLM_ENGINE
from poolproof.targets.load import load_target
from poolproof.targets.source_engines import fetched_folder

SET_UPS = ["chunked_prefill", "chunked_prefill+small-steps", "split_pd", "token_throttling"]


@pytest.fixture(scope="module")
def target():
    try:
        return load_target("gllm-engine")
    except TargetError as error:
        pytest.skip(str(error))


def changed(tmp_path: Path, *changes: tuple[str, str], file: str = "scheduler.py") -> Path:
    """A copy of the sources in which a file is another."""
    try:
        folder = fetched_folder(GLLM_ENGINE)
    except TargetError as error:
        pytest.skip(str(error))
    copy = tmp_path / "copy"
    if not copy.exists():
        shutil.copytree(folder, copy)
    path = copy / "gllm" / file
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return copy


def step(engine, token=1):
    plan = engine.plan()
    return plan, engine.answer({part.request_id: [token] for part in plan.parts}, {})


def parts_of(plan):
    return [(part.request_id, part.first, part.count) for part in plan.parts]


def session_of(target, name, num_blocks):
    layout = target.layout(name)
    make = layout.make(num_blocks, True)
    return EngineSession(make, layout.profile, num_blocks, layout.block_size)


def submit(request_id, tokens, max_new_tokens=1):
    return Submit(request_id, TokenChain(tuple(tokens)), max_new_tokens, priority=0)


STEP = RunStep(1, 0, 0)


def test_each_method_is_a_set_up(target):
    assert [layout.name for layout in target.layouts] == SET_UPS


def test_a_prefix_is_found(target):
    engine = target.layout("chunked_prefill").make(9, True)
    first = []
    for number, salt in enumerate((None, None, "salt")):
        keys = salt and (("salt", salt, 0, None),)
        engine.submit(number, [1] * 9, max_new_tokens=1, extra_keys=keys)
        plan, given = step(engine)
        first += [part.first for part in plan.parts]
        assert given == [(number, [1], True)]
    assert first == [0, 8, 0]
    assert (engine.num_free(), engine.unfinished()) == (9, [])


def test_without_caching_nothing_is_found(target):
    engine = target.layout("chunked_prefill").make(9, False)
    for number in range(2):
        engine.submit(number, [1] * 9, max_new_tokens=1)
        assert parts_of(step(engine)[0]) == [(number, 0, 9)]


def test_what_is_sampled_behind_a_chunk_is_given_to_nobody(target):
    engine = target.layout("chunked_prefill+small-steps").make(9, True)
    engine.submit(0, [1] * 7, max_new_tokens=2)
    steps, given = [], []
    for token in (2, 2, 0):
        plan, outputs = step(engine, token)
        steps += parts_of(plan)
        given += outputs
    assert steps == [(0, 0, 6), (0, 6, 1), (0, 7, 1)]
    assert given == [(0, [2], False), (0, [0], True)]


def test_who_gives_way_is_told_and_computed_anew(target):
    engine = target.layout("chunked_prefill").make(4, True)
    for number in range(2):
        engine.submit(number, [number + 1] * 4, max_new_tokens=5)
    preempted, firsts = [], []
    for _ in range(16):
        plan, _given = step(engine)
        preempted += plan.preempted
        firsts += [part.first for part in plan.parts if part.request_id in preempted]
    assert preempted
    assert firsts
    assert (engine.num_free(), engine.unfinished()) == (4, [])


def test_a_cancel_is_heard_before_the_next_step(target):
    engine = target.layout("chunked_prefill").make(9, True)
    engine.submit(0, [1] * 9, max_new_tokens=4)
    plan = engine.plan()
    engine.cancel(0)
    assert engine.answer({part.request_id: [1] for part in plan.parts}, {}) == [(0, [1], False)]
    assert parts_of(step(engine)[0]) == []
    assert (engine.num_free(), engine.unfinished()) == (9, [])


def test_a_page_is_found_of_which_a_slot_is_not_computed(target):
    """The request that filled the page ended with the token that is in its last slot."""
    session = session_of(target, "chunked_prefill", num_blocks=8)
    commands = [submit(0, [2] * 11), STEP, submit(1, [*[2] * 11, 1, 2]), STEP]
    found = [v for v in map(session.step, commands) if v is not None]
    assert [v.invariant for v in found] == ["DATA"]
    assert "at position 11 " in found[0].sentence


def test_a_page_is_found_that_a_cancelled_chunk_has_begun(target):
    session = session_of(target, "chunked_prefill+small-steps", num_blocks=8)
    commands = [submit(0, [2] * 9), STEP, Cancel(0), submit(1, [2] * 9), STEP]
    found = [v for v in map(session.step, commands) if v is not None]
    assert [v.invariant for v in found] == ["DATA"]
    assert "at position 6 " in found[0].sentence


def test_requests_wait_for_pages_that_waiting_requests_hold(target):
    session = session_of(target, "chunked_prefill", num_blocks=8)
    commands = [submit(0, [1] * 20, 3), submit(1, [2] * 11)] + [STEP] * 13
    found = [v for v in map(session.step, commands) if v is not None]
    assert found[0].invariant == "LIVE"
    assert found[0].sentence.startswith("requests A, B are waiting, nothing is in flight")


def test_with_both_faults_repaired_it_holds(tmp_path):
    """So nothing else is found, and neither is a fault of the adapter."""
    chunk = f"if (i + 1) * self.page_size <= len(seq):\n{' ' * 20}page_num = self.segment.a"
    sampled = "n = pos + 1\n        if n % self.page_size != 0:"
    changed(
        tmp_path,
        (chunk, chunk.replace("len(seq)", "seq.seq_len")),
        (sampled, "n = pos + 1\n        if True:"),
        file="memory_manager.py",
    )
    copy = changed(tmp_path, ("            schedule_seqs = self.schedule()\n", _GIVES_WAY))
    for layout in load_target(f"gllm-engine:{copy}").layouts:
        campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
        results = [campaign.run(number) for number in range(20)]
        assert [result.trace for result in results if result.trace is not None] == []
        assert "a preempted request came back" in set().union(*(r.facts for r in results))


_GIVES_WAY = """\
            schedule_seqs = self.schedule()
            while not schedule_seqs and not self.batch_running:
                holders = [seq for seq in self.seqs_to_prefill if seq.page_table]
                if len(holders) < 2:
                    break
                self.model_runner.free(holders[-1])
                holders[-1].preempt()
                schedule_seqs = self.schedule()
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("def schedule_once(self)", "def schedule_once(self, now)"), "takes"),
        (("Scheduler", "Planner"), "has no Scheduler"),
        (("self.model_runner.free(seq)", "self.model_runner.release(seq)"), "release"),
        (("return schedule_seqs\n", "return None\n"), "answered None"),
        (("import copy\n", "import copy\nimport no_such_module\n"), "no_such_module"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, change, said):
    with pytest.raises(TargetError, match=said) as refused:
        load_target(f"gllm-engine:{changed(tmp_path, change)}")
    assert "\n" not in str(refused.value)


def test_rows_in_brackets_are_refused(target):
    with pytest.raises(TargetError, match="choose one with --layout, one of chunked_prefill"):
        load_target(f"{target.name}[max_running=2]")


def test_a_folder_that_is_no_checkout_is_named(tmp_path):
    with pytest.raises(TargetError, match=r"is no checkout of .*/gLLM: it has no folder gllm"):
        load_target(f"gllm-engine:{tmp_path}")


def test_what_was_not_fetched_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match="run `poolproof engines gllm-engine`"):
        load_target("gllm-engine")
