"""mini-sglang's scheduler behind the engine shape, where `poolproof engines` has fetched it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import AnswerStep, Cancel, PlanStep, RunStep, Submit
from poolproof.contract.target import TargetError
from poolproof.harness.engine_session import EngineSession
from poolproof.targets.load import load_target
from poolproof.targets.mini_sglang_engine import MINI_SGLANG_ENGINE
from poolproof.targets.source_engines import fetched_folder

SCHEDULER = "python/minisgl/scheduler/scheduler.py"


@pytest.fixture(scope="module")
def target():
    try:
        return load_target("mini-sglang-engine")
    except TargetError as error:
        pytest.skip(str(error))


def changed(tmp_path: Path, *changes: tuple[str, str]) -> str:
    """A copy of the sources with another scheduler."""
    try:
        folder = fetched_folder(MINI_SGLANG_ENGINE)
    except TargetError as error:
        pytest.skip(str(error))
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / SCHEDULER
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return f"mini-sglang-engine:{tmp_path / 'copy'}"


def session_of(target, name, num_blocks=8):
    layout = target.layout(name)
    make = layout.make(num_blocks, True)
    return EngineSession(make, layout.profile, num_blocks, layout.block_size)


def submit(request_id, tokens, max_new_tokens=1):
    return Submit(request_id, TokenChain(tuple(tokens)), max_new_tokens, priority=0)


STEP = RunStep(1, 0, 0)


def test_both_loops_are_driven(target):
    steps = {layout.name: layout.profile.steps_in_flight for layout in target.layouts}
    assert steps == {"normal": 1, "normal+chunks": 1, "overlap": 2, "overlap+chunks": 2}


def test_a_prefix_is_found(target):
    engine = target.layout("normal").make(9, True)
    first = []
    for number, salt in enumerate((None, None, "salt")):
        keys = salt and (("salt", salt, 0, None),)
        engine.submit(number, [1] * 9, max_new_tokens=1, extra_keys=keys)
        first += [part.first for part in engine.plan().parts]
        assert engine.answer({number: [1]}, {}) == [(number, [1], True)]
    assert first == [0, 8, 0]
    assert (engine.num_free(), engine.unfinished()) == (9, [])


def test_a_long_prompt_is_computed_in_chunks(target):
    engine = target.layout("normal+chunks").make(9, True)
    engine.submit(0, [1] * 7, max_new_tokens=2)
    steps, given = [], []
    for token in (1, 2, 1):
        (part,) = engine.plan().parts
        steps.append((part.first, part.count, [len(table) for table in part.blocks]))
        given += engine.answer({0: [token]}, {})
    assert steps == [(0, 6, [2]), (6, 1, [2]), (7, 1, [2])]
    assert given == [(0, [2], False), (0, [1], True)]


def test_pages_are_freed_that_a_request_reads(target):
    """mini-sglang#142: the tree has the page, and the request keeps its own."""
    session = session_of(target, "normal+chunks", num_blocks=6)
    commands = [
        submit(0, (2, 2, 2, 1, *[1] * 13)), STEP, submit(1, (2, 2, 2, 1), 2), submit(2, (1, 1, 1)),
        STEP, STEP, submit(3, (1,)), STEP, STEP, STEP,
    ]  # fmt: skip
    found = [v for v in map(session.step, commands) if v is not None]
    assert found[0].invariant == "DATA"


def test_under_overlap_a_request_ends_a_token_early(target):
    session = session_of(target, "overlap")
    commands = [submit(0, (1, 1, 1), 2), PlanStep(), PlanStep(), AnswerStep(1, 0, 0)]
    *before, last = map(session.step, commands)
    assert before == [None] * 3
    assert last.sentence == "request A is given <1> and ends; it was to be given <1> and to go on"


def test_a_cancel_under_overlap_gives_pages_back_twice(target):
    """mini-sglang#111."""
    session = session_of(target, "overlap", num_blocks=2)
    commands = [submit(0, [2] * 4), submit(1, [2] * 5, 2), STEP, PlanStep(), Cancel(1), STEP]
    found = [v for v in map(session.step, commands) if v is not None]
    assert [v.invariant for v in found] == ["CRASH"]


def test_requests_are_let_in_by_tokens_and_take_pages(target):
    session = session_of(target, "normal", num_blocks=4)
    commands = [submit(0, [1] * 7, 3), submit(1, [1] * 3, 3), STEP, STEP, STEP]
    *before, last = map(session.step, commands)
    assert before == [None] * 4
    assert "Cannot evict 4, only 0 is evictable" in last.sentence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("def _schedule_next_batch(self)", "def _schedule_next_batch(self, now)"), "takes"),
        (("class Scheduler(", "class Other("), "has no Scheduler"),
        (("self.decode_manager", "self.decoding"), "decode_manager"),
        (("import torch\n", "import torch\nimport no_such_module\n"), "no_such_module"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, change, said):
    with pytest.raises(TargetError, match=said) as refused:
        load_target(changed(tmp_path, change))
    assert "\n" not in str(refused.value)


def test_rows_in_brackets_are_refused(target):
    with pytest.raises(TargetError, match="choose one with --layout, one of normal"):
        load_target(f"{target.name}[max_running=2]")


def test_a_folder_that_is_no_checkout_is_named(tmp_path):
    with pytest.raises(TargetError, match=r"is no checkout of .*: it has no folder python/minisgl"):
        load_target(f"mini-sglang-engine:{tmp_path}")


def test_what_was_not_fetched_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match="run `poolproof engines mini-sglang-engine`"):
        load_target("mini-sglang-engine")
