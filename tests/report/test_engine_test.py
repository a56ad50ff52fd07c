"""Tests that are written of engines' traces: they stand alone, and tell right from wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_specimen import BLOCK_SIZE
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import Arrive, Repeat, RunStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.shown_state import ShownState
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.report import engine_play
from poolproof.report.engine_test import engine_script, engine_test
from poolproof.targets.impl_engine import impl_engine_layouts

A = TokenChain((1, 2, 3))


def minimal_trace(specimen, target):
    campaign = EngineCampaign(target, specimen.make, specimen.profile, BLOCK_SIZE)
    found = next(run.trace for run in map(campaign.run, range(400)) if run.trace is not None)
    return minimise(found, lambda setup, commands: run_candidate(setup, commands, specimen.make))


# Some of each invariant, and of what a player needs beyond the plainest engine: steps in flight,
# drafts, transfers, windows.
@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("specimen_id", "said"),
    [
        ("S129", "request A reads at position"),
        ("S8", "computed for request"),
        ("S36", "reads at position"),
        ("S45", "KV that nobody has computed"),
        ("S9", "request B has no block for position 0"),
        ("S31", "has no block for position"),
        ("S12", "it was to be given"),
        ("S19", "wait forever"),
        ("S66", "wait forever"),
        ("S120", "blocks are free"),
        ("S126", "a legal call fails with MemoryError"),
        ("S92", "moves 1 blocks and has 0 places"),
        ("S193", "a legal call fails with AssertionError"),
        ("S194", "reads at position"),
        ("S168", "starts at position"),
        ("S176", "starts at position"),
        ("S178", "starts at position"),
    ],
)
def test_a_written_test_fails_on_the_planted_bug_and_passes_without_it(
    elsewhere, specimen_id, said
):
    name = f"engine_{specimen_id}.py"
    file = elsewhere.write_engine(name, specimen_id, mended=False)
    written = elsewhere.folder / f"test_{specimen_id}.py"
    trace = minimal_trace(ENGINE_SPECIMENS[specimen_id], f"{file}:Engine")
    written.write_text(engine_test(trace, written), encoding="utf-8")
    red = elsewhere.run(written)
    assert "AssertionError" in red.stderr
    assert said in red.stderr.splitlines()[-1]
    elsewhere.write_engine(name, specimen_id, mended=True)
    green = elsewhere.run(written)
    assert (green.returncode, green.stderr) == (0, "")


def test_the_process_of_these_tests_has_nothing_of_poolproof(elsewhere, tmp_path):
    written = tmp_path / "test_it.py"
    for name in ("poolproof", "contract", "harness.minimise"):
        written.write_text(f"import {name}\n")
        assert "is not here" in elsewhere.run(written).stderr


@pytest.mark.some(6)
@pytest.mark.parametrize("layout", impl_engine_layouts(), ids=lambda layout: layout.name)
def test_a_right_engine_is_accused_by_no_written_test(layout):
    campaign = EngineCampaign("impl-engine", layout.make, layout.profile, layout.block_size)
    for number in range(6):
        commands = []
        setup = campaign.setup(number)
        assert campaign.run(number, commands.append).trace is None
        options = {**setup.options, "layout": layout.name}
        trace = dataclasses.replace(setup, commands=tuple(commands), options=options)
        names = {"__file__": "test_it.py"}
        exec(compile(engine_test(trace), "test_it.py", "exec"), names)  # noqa: S102 -- what is tested
        names["test_trace"]()


def a_trace(*commands, target="mine.py:Engine", invariant="DATA"):
    violation = Violation(invariant, Severity.CRASH, "it is wrong", command_index=len(commands) - 1)
    return Trace(
        target=target,
        level=Level.ENGINE,
        profile=EngineProfile(),
        num_blocks=4,
        enable_caching=True,
        commands=commands,
        violation=violation,
        options={"block_size": 4},
    )


def test_a_test_has_only_what_its_trace_needs():
    trace = a_trace(Submit(0, A, 1, 0), RunStep(1, 0, 0))
    plain = engine_test(dataclasses.replace(trace, shown=(ShownState(None, (), "computes A 0"),)))
    for word in ("transfers", "preempted", "drafts[", "check_plan", "finish", "poolproof"):
        assert word not in plain
    moving = engine_test(a_trace(Submit(0, A, 1, 0), RunStep(1, 0, 0), Arrive(0, 1)))
    assert "play.arrive(0, is_lost=True)" in moving
    assert "self.transfers" in moving
    for word in ("repeat", "self.ended"):
        assert word not in moving


def test_a_transfer_that_was_lost_on_its_way_and_a_notice_that_came_again_are_played():
    text = engine_test(a_trace(Submit(0, A, 1, 0), RunStep(1, 0, 0), Arrive(0, 1, 2), Repeat(0)))
    assert "play.arrive(0, is_lost=True, num_moved=2)" in text
    assert "play.repeat(0)" in text


def test_a_trace_with_several_ranks_is_played_by_poolproof():
    trace = a_trace(Submit(0, A, 1, 0), RunStep(1, 0, 0))
    ranked = dataclasses.replace(trace, profile=EngineProfile(ranks=2))
    assert "poolproof.replay" in engine_test(ranked)


def test_each_condition_of_the_player_stands_where_its_block_begins():
    lines = Path(engine_play.__file__).read_text().splitlines()
    conditions = [line.strip() for line in lines if "  #: " in line]
    assert len(conditions) > 50
    assert [line for line in conditions if line[0] in ")]}"] == []


def test_many_steps_that_are_alike_are_one_loop():
    text = engine_test(a_trace(Submit(0, A, 1, 0), *[RunStep(1, 0, 0)] * 20))
    assert "    for _ in range(19):\n        play.run(1)\n    play.run(1)\n" in text


def test_a_written_test_finds_its_engine_from_where_it_lies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = engine_test(a_trace(Submit(0, A, 1, 0)), tmp_path / "tests" / "test_it.py")
    assert "FILE = Path(__file__).parent / '../mine.py'" in text


def test_nothing_of_a_trace_is_run(tmp_path):
    chain = TokenChain((1,), salt="'\"\nimport os; os.abort()\n")
    trace = a_trace(Submit(0, chain, 1, 0), target="mine.py:Engine")
    trace = dataclasses.replace(
        trace,
        violation=dataclasses.replace(trace.violation, sentence='a\n"""\nimport os; os.abort()\n'),
        fingerprint="f'\nx",
    )
    text = engine_test(trace)
    text = text.replace("spec.loader.exec_module(module)", "module.Engine = None")
    (tmp_path / "mine.py").write_text("")
    exec(compile(text, str(tmp_path / "t.py"), "exec"), {"__file__": "t.py"})  # noqa: S102 -- what is tested


@pytest.mark.parametrize("target", ["cmd:./engine", "a b.c:Engine", "mine.py:1"])
def test_what_no_file_can_import_is_tested_through_poolproof(target):
    trace = a_trace(Submit(0, A, 1, 0), target=target)
    assert "poolproof.replay(" in engine_test(trace)
    with pytest.raises(TargetError, match="use --as pytest"):
        engine_script(trace)


def test_the_script_runs_its_test():
    last = engine_script(a_trace(Submit(0, A, 1, 0))).splitlines()[-1]
    assert last == "    test_data()"


def test_a_constructor_that_raises_is_the_whole_test():
    text = engine_test(a_trace(invariant="CRASH"))
    assert "    try:\n        Play(new_engine())\n    except" in text
