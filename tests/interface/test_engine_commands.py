"""new, certify, replay, show, shrink, explore and fuzz of engines on the command line."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from poolproof import certify
from poolproof.certification.certificate import Verdict
from poolproof.certification.depths import BUDGETS
from poolproof.certification.engine_exploration import ExploringEngine
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import (
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.shown_state import ShownState
from poolproof.contract.trace import Trace, read_trace, write_trace
from poolproof.contract.violation import Severity, Violation
from poolproof.report.engine_drawing import draw_engine, engine_command_words
from poolproof.stateful_tests.settings import EXAMPLES

HOSTILE = Path(__file__).parents[1] / "certification" / "hostile_engines.py"
HOSTILE_PROGRAM = Path(__file__).parents[1] / "targets" / "hostile_engine.py"
TWICE = Violation("OUT", Severity.WRONG_DATA_OF_ONES_OWN, "request A is given <1 1>", (), 3)
COMMANDS = (
    Submit(0, TokenChain((1, 2)), 1, 0), PlanStep(), Submit(1, TokenChain((1,)), 2, 1),
    AnswerStep(1, 0, 0),
)  # fmt: skip

Run = Callable[..., Result]


def trace_of(target: str = "GivesTwice", **changes: Any) -> Trace:
    return Trace(
        target=f"{HOSTILE}:{target}",
        level="engine",
        profile=EngineProfile(),
        num_blocks=3,
        enable_caching=True,
        commands=changes.get("commands", COMMANDS),
        violation=TWICE,
        options={"block_size": 4, "layout": "fcfs"},
    )


@pytest.fixture
def stored(folder: Path) -> Path:
    path = folder / "t.jsonl"
    write_trace(trace_of(), path)
    return path


def test_a_skeleton_is_written_and_says_what_to_write(poolproof: Run) -> None:
    assert "poolproof certify mine.py:Engine" in poolproof("new", "--engine", "mine.py").output
    result = poolproof("certify", "mine.py:Engine", "--depth", "quick", "--in-process")
    assert result.exit_code == 1
    assert "next          write submit(request_id, tokens, *, max_new_tokens" in result.output
    said = " ".join(result.output.split())
    assert "NotImplementedError: write submit(): a request waits for its turn" in said


@pytest.fixture
def _few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certification of seconds; workers are forked, and know of it."""
    monkeypatch.setitem(BUDGETS, "quick", replace(BUDGETS["quick"], engine_chunks=1))
    monkeypatch.setitem(EXAMPLES, "quick", 10)
    monkeypatch.setattr("poolproof.certification.driving.RUNS_PER_CHUNK", 60)


@pytest.mark.some(0)
@pytest.mark.usefixtures("_few_runs")
def test_a_right_engine_holds() -> None:
    certificate = certify("impl-engine", depth="quick", layouts=["chunks"], workers=1)
    assert certificate.verdict is Verdict.HOLDS, certificate.to_json()
    assert not certificate.findings


@pytest.mark.some(0)
@pytest.mark.usefixtures("_few_runs")
def test_a_wrong_engine_is_refused_with_a_trace_that_can_be_run_again(poolproof: Run) -> None:
    refused = poolproof("certify", f"{HOSTILE}:GivesTwice", "--depth", "quick")
    assert refused.exit_code == 1, refused.output
    (path,) = Path(".poolproof/findings").glob("f-*.jsonl")
    trace = read_trace(path)
    assert trace.violation is not None
    replayed = poolproof("replay", path)
    assert replayed.exit_code == 1
    assert trace.violation.sentence in " ".join(replayed.output.split())
    shrunk = poolproof("shrink", path, "--output", "small.jsonl")
    assert shrunk.exit_code == 1, shrunk.output
    small = read_trace(Path("small.jsonl"))
    assert (small.commands, small.violation) == (trace.commands, trace.violation)


def test_an_engine_skeleton_is_one_of_several(poolproof: Run) -> None:
    result = poolproof("new", "--engine", "--manager", "mine.py")
    assert result.exit_code == 2
    assert "--manager and --engine are skeletons; leave one" in result.output


def test_a_trace_is_replayed(poolproof: Run, stored: Path) -> None:
    result = poolproof("replay", stored)
    assert result.exit_code == 1
    assert "request A is given <1 1> and ends; it was to be given <1> and to end" in result.output


def test_a_trace_is_made_smaller(poolproof: Run, stored: Path) -> None:
    result = poolproof("shrink", stored, "--output", "small.jsonl")
    assert result.exit_code in (0, 1), result.output
    small = read_trace(Path("small.jsonl"))
    assert small.commands == (Submit(0, TokenChain((1,)), 1, 0), RunStep(1, 0, 0))


def test_a_trace_is_shown_without_its_target(poolproof: Run, stored: Path) -> None:
    result = poolproof("show", stored)
    assert result.exit_code == 0, result.output
    assert "A comes: <1 2> + 1" in result.output
    assert "B comes: <1> + 2" in result.output
    assert "the steps are those of the plainest engine" in result.output


EXPLORE = ("explore", "--in-process", "--commands", 3)


@pytest.mark.some(0)
def test_an_engine_is_explored_and_what_was_covered_is_said(poolproof: Run) -> None:
    result = poolproof(*EXPLORE, "impl-engine", "--layout", "fcfs")
    assert result.exit_code == 0, result.output
    assert "fcfs, every sequence: holds" in result.output
    assert "every sequence of up to 3 commands" in result.output
    assert "2 requests at once" in result.output
    assert "states merged as the engine tells them" in result.output


def test_the_first_failure_of_an_engine_is_a_shortest_one(poolproof: Run) -> None:
    result = poolproof(*EXPLORE, f"{HOSTILE}:GivesTwice")
    assert result.exit_code == 1, result.output
    assert "every sequence: refused" in result.output
    assert "no shorter trace fails in this way" in " ".join(result.output.split())
    assert "every sequence of up to 1 command," in result.output


@pytest.mark.parametrize(
    ("limit", "says"),
    [(("--states", 5), "by the limit of states"), (("--seconds", 1e-6), "by the limit in time")],
)
def test_a_limit_ends_an_exploration_of_an_engine(
    poolproof: Run, limit: tuple[Any, ...], says: str
) -> None:
    result = poolproof(*EXPLORE, f"{HOSTILE}:Right", *limit)
    assert result.exit_code == 0, result.output
    assert f"truncated there {says}" in result.output


def test_an_interruption_says_how_far_every_set_up_was_explored(
    poolproof: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_to = ExploringEngine._go_to

    def interrupted(self: Any, depth: int, *others: Any) -> None:
        if depth == 3:
            raise KeyboardInterrupt
        go_to(self, depth, *others)

    monkeypatch.setattr(ExploringEngine, "_go_to", interrupted)
    result = poolproof(*EXPLORE, "impl-engine", "--layout", "fcfs")
    assert result.exit_code == 2, result.output
    assert "interrupted: fcfs: every sequence of up to 2 commands" in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("impl", "--requests", 2), "--requests, --states and --seconds are for engines"),
        (("impl-nano", "--states", 9), "--requests, --states and --seconds are for engines"),
        (("impl-engine", "--pairs"), "have no --hashes, --references, --pairs"),
        (("impl-engine", "--layout", "fcfs", "--blocks", 1), "no request fits into 2 blocks"),
        (("specification", "--requests", 2), "are for allocators"),
    ],
)
def test_bounds_that_mean_nothing_are_refused(
    poolproof: Run, arguments: tuple[Any, ...], says: str
) -> None:
    result = poolproof("explore", *arguments)
    assert result.exit_code == 2
    assert says in " ".join(result.output.split())
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("target", "status", "says"), [("Right", 2, "not concluded"), ("GivesTwice", 1, "OUT")]
)
def test_an_engine_is_fuzzed(poolproof: Run, target: str, status: int, says: str) -> None:
    result = poolproof("fuzz", f"{HOSTILE}:{target}", "--steps", "1500", "--in-process")
    assert result.exit_code == status, result.output
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_target_that_lacks_a_method_is_named(poolproof: Run) -> None:
    result = poolproof("certify", f"{HOSTILE}:Half", "--depth", "quick", "--in-process")
    assert result.exit_code == 2
    assert "lacks answer(), which an engine target needs" in result.output


def test_the_steps_of_the_plainest_engine_are_drawn() -> None:
    drawing = draw_engine(trace_of())
    assert [row[2:5] for row in map(cells, drawing.rows)] == [
        ("", "", ""),
        ("", "", ""),
        ("computes A 0-1", "A 0", ""),
        ("", "", ""),
        ("", "", "A gets 1 and ends"),
    ]


IDLE, WORK = "computes nothing", "computes A 0"
DROWSY = "computes nothing; preempts A"


@pytest.mark.parametrize(
    ("answers", "drawn"),
    [
        ([WORK, *[IDLE] * 8], [WORK, IDLE, "6 more", f"> {IDLE}"]),
        ([*[IDLE] * 4, WORK, *[IDLE] * 4], [IDLE, "3 more", WORK, IDLE, "2 more", f"> {IDLE}"]),
        # What does anything, or is shown in two rows, stays.
        ([IDLE, IDLE, IDLE], [IDLE, IDLE, f"> {IDLE}"]),
        ([IDLE, DROWSY, IDLE, DROWSY, IDLE], [IDLE, DROWSY, IDLE, DROWSY, f"> {IDLE}"]),
        ([*[IDLE] * 4, "computes nothing; A gets 1"], [IDLE, "3 more", "> computes nothing"]),
        ([*[WORK] * 5], [*[WORK] * 4, f"> {WORK}"]),
    ],
)
def test_idle_steps_are_counted_and_not_each_drawn(answers: list[str], drawn: list[str]) -> None:
    assert _drawn([(RunStep(1, 0, 0), answer) for answer in answers]) == drawn


def test_answers_to_idle_steps_go_with_them_and_those_to_others_stay() -> None:
    plans = [(PlanStep(), WORK), (PlanStep(), WORK), *[(AnswerStep(1, 0, 0), "")] * 2]
    idle = [(PlanStep(), IDLE), (AnswerStep(1, 0, 0), "")] * 4
    drawn = _drawn([*plans, *idle, (PlanStep(), IDLE)])
    assert drawn == [WORK, WORK, "", "", IDLE, "3 more", f"> {IDLE}"]


def test_what_comes_between_idle_steps_is_drawn() -> None:
    idle = [(RunStep(1, 0, 0), IDLE)] * 3
    drawn = _drawn([*idle, (Arrive(0, 0), ""), *idle, (RunStep(1, 0, 0), IDLE)])
    assert drawn == [IDLE, "2 more", "", IDLE, "2 more", f"> {IDLE}"]


def _drawn(steps: list[tuple[Any, str]]) -> list[str]:
    """What is drawn of a trace with these commands and answers: "n more", "> " for what broke."""
    shown = tuple(ShownState(None, (), answer) for _, answer in steps)
    broken = replace(TWICE, command_index=len(steps) - 1)
    trace = replace(
        trace_of(commands=tuple(command for command, _ in steps)),
        violation=broken,
        shown=(ShownState(None, ()), *shown),
    )
    return [
        re.sub(r"\.\. (\d+) steps more that compute nothing \.\.", r"\1 more", row.command)
        if row.command.startswith("..")
        else "> " * row.violating + row.free_queue
        for row in draw_engine(trace).rows[1:]
    ]


def test_of_a_long_trace_the_middle_is_left_out() -> None:
    states = (ShownState(None, ()), *[ShownState(None, (), WORK)] * 300)
    late = replace(TWICE, command_index=299)
    trace = replace(trace_of(commands=[PlanStep()] * 300), violation=late, shown=states)
    rows = draw_engine(trace).rows
    assert [row.number for row in rows] == [*range(25), *range(261, 301)]
    assert rows[24].command == ".. 237 commands .."
    assert rows[-1].violating


def cells(row: Any) -> tuple[str, ...]:
    return tuple(str(getattr(row, name)) for name in list(row.__dataclass_fields__)[:5])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (Cancel(1), "B is cancelled"),
        (PlanStep(), "plan"),
        (AnswerStep(3, 0, 0), "answer samples 3"),
        (RunStep(3, 1, 2), "step samples 3, accepts 1, drafts 2"),
        (Arrive(0, 0), "transfer 1 arrives"),
        (Arrive(2, 1), "transfer 3 is lost"),
        (Arrive(2, 1, 1), "transfer 3 is lost after 1 block"),
        (Arrive(0, 1, 2), "transfer 1 is lost after 2 blocks"),
        (Repeat(0), "the last end is told again"),
        (Repeat(2), "the end before the last 2 is told again"),
    ],
)
def test_commands_are_told_in_words(command: Any, words: str) -> None:
    assert engine_command_words(command) == words


@pytest.mark.some(1)
@pytest.mark.usefixtures("_few_runs")
@pytest.mark.parametrize(
    ("how", "status", "says"),
    [
        pytest.param("block-beyond", 1, "PLAN", marks=pytest.mark.deep),
        ("dies-in-plan", 1, "it ended with exit status 3; its last words: no free block"),
        ("version-2", 2, "an engine that speaks version 2 of the protocol"),
        ("no-answer", 2, 'its "verbs" lack answer, which an engine needs'),
        pytest.param("needs-caching", 2, "it skips this run: caching", marks=pytest.mark.deep),
    ],
)
def test_what_a_program_does_wrong_is_a_finding_or_one_line(
    poolproof: Run, how: str, status: int, says: str
) -> None:
    program = f"cmd:{shlex.join([sys.executable, str(HOSTILE_PROGRAM), how])}"
    result = poolproof("certify", program, "--depth", "quick", "--workers", "1")
    assert result.exit_code == status, result.output
    assert says in " ".join(result.output.split())
    assert "Traceback" not in result.output


@pytest.mark.deep
@pytest.mark.usefixtures("_few_runs")
def test_a_program_that_does_not_answer_in_time_is_a_finding(poolproof: Run) -> None:
    program = f"cmd:{shlex.join([sys.executable, str(HOSTILE_PROGRAM), 'hangs-in-plan'])}"
    result = poolproof("certify", program, "--depth", "quick", "--call-timeout", "2")
    assert result.exit_code == 1, result.output
    assert "did not return within 2 s" in " ".join(result.output.split())
