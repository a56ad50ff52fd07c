"""vLLM V0's scheduler behind the engine shape, where `make engine-sources` has unpacked it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.targets import v0_engine
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.load import load_target
from poolproof.targets.v0_manager import VLLM_V0


@pytest.fixture(scope="module")
def layouts():
    try:
        return {layout.name: layout for layout in load_target("vllm-v0-engine").layouts}
    except TargetError as error:
        pytest.skip(str(error))


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """Makes a copy of the sources with another scheduler the one that is loaded."""
    v0_engine._parts.cache_clear()
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    yield tmp_path / VLLM_V0
    v0_engine._parts.cache_clear()


def copied(folder: Path, monkeypatch, *changes: tuple[str, str]) -> None:
    with monkeypatch.context() as before:
        before.delenv("POOLPROOF_ENGINES")
        try:
            shutil.copytree(engine_folder(VLLM_V0), folder)
        except TargetError as error:
            pytest.skip(str(error))
    path = folder / "vllm" / "core" / "scheduler.py"
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def step(engine, token=1):
    plan = engine.plan()
    return plan, engine.answer({part.request_id: [token] for part in plan.parts}, {})


def parts_of(plan):
    return [(part.request_id, part.first, part.count) for part in plan.parts]


@pytest.mark.parametrize("name", ["recompute", "recompute+small-steps", "swap", "swap+small-steps"])
def test_the_scheduler_holds(layouts, name):
    layout = layouts[name]
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    results = [campaign.run(number) for number in range(25)]
    assert [result.trace for result in results if result.trace is not None] == []
    assert "a preempted request came back" in set().union(*(r.facts for r in results))


def test_who_gives_way_is_computed_anew(layouts):
    engine = layouts["recompute"].make(5, True)
    for number in range(2):
        engine.submit(number, [1] * 8, max_new_tokens=3)
    assert parts_of(step(engine)[0]) == [(0, 0, 8), (1, 0, 8)]
    plan, given = step(engine)
    assert (parts_of(plan), plan.preempted) == ([(0, 8, 1)], (1,))
    assert given == [(0, [1], False)]
    assert step(engine)[1] == [(0, [1], True)]
    assert parts_of(step(engine)[0]) == [(1, 0, 9)]


def test_who_asks_for_beams_is_swapped(layouts):
    """Blocks go out before anything is computed, and come back before that."""
    engine = layouts["swap"].make(5, True)
    for number in range(2):
        engine.submit(number, [1] * 8, max_new_tokens=3)
    first, _ = step(engine)
    out, given = step(engine)
    assert (out.parts, out.preempted, given) == ((), (1,), [])
    (store,) = out.transfers
    assert (store.is_load, store.waits) == (False, True)
    assert set(store.blocks) == set(first.parts[1].blocks[0])
    assert parts_of(step(engine)[0]) == [(0, 8, 1)]
    step(engine)
    back, _ = step(engine)
    (load,) = back.transfers
    assert (load.is_load, load.waits, set(load.places)) == (True, True, set(store.places))
    assert parts_of(back) == [(1, 8, 1)]


def test_a_cancel_is_heard_before_the_next_step(layouts):
    engine = layouts["recompute"].make(5, True)
    engine.submit(0, [1] * 8, max_new_tokens=3)
    engine.plan()
    engine.cancel(0)
    assert engine.answer({0: [1]}, {}) == []
    assert engine.plan().parts == ()
    assert (engine.num_free(), engine.unfinished()) == (5, [])


def test_who_is_cancelled_while_blocks_are_swapped_out_is_gone(layouts):
    engine = layouts["swap"].make(5, True)
    for number in range(2):
        engine.submit(number, [1] * 8, max_new_tokens=3)
    step(engine)
    step(engine)
    engine.cancel(0)
    engine.cancel(1)
    assert parts_of(step(engine)[0]) == []
    assert (engine.num_free(), engine.unfinished()) == (5, [])


@pytest.mark.parametrize(
    ("change", "invariant"),
    [
        (("            self.block_manager.free(seq)\n", "            pass\n"), "LIVE"),
        (("blocks_to_swap_out.update(mapping)", "pass"), "DATA"),
        (("blocks_to_swap_in.update(mapping)", "pass"), "DATA"),
    ],
    ids=["recompute without free", "nothing is moved out", "nothing is moved in"],
)
def test_a_wrong_scheduler_is_found(changed, monkeypatch, change, invariant):
    copied(changed, monkeypatch, change)
    found = set()
    for layout in load_target("vllm-v0-engine").layouts:
        campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
        traces = [campaign.run(number).trace for number in range(10)]
        found |= {trace.violation.invariant for trace in traces if trace is not None}
    assert invariant in found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("def schedule(self)", "def schedule(self, now)"), "`schedule` takes"),
        (("return seq_group_metadata_list, ", "return "), "`schedule` answered"),
        (("self.running", "self.active"), "running"),
        (("import time\n", "import time\nimport no_such_module\n"), "no_such_module"),
    ],
)
def test_what_does_not_fit_is_one_line(changed, monkeypatch, change, said):
    copied(changed, monkeypatch, change)
    with pytest.raises(TargetError, match=said) as refused:
        load_target("vllm-v0-engine")
    assert "\n" not in str(refused.value)


def test_a_folder_without_the_scheduler_says_what_to_do(changed, monkeypatch):
    copied(changed, monkeypatch)
    (changed / "vllm" / "core" / "scheduler.py").unlink()
    with pytest.raises(TargetError, match="run `make engine-sources`"):
        load_target("vllm-v0-engine")


def test_rows_in_brackets_are_refused(layouts):
    with pytest.raises(TargetError, match="choose one with --layout, one of recompute"):
        load_target("vllm-v0-engine[max_running=2]")
