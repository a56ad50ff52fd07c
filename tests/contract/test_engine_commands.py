"""Engine commands: their JSON and what they share with each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from poolproof.contract import engine_commands
from poolproof.contract.command_json import command_from_json, command_to_json
from poolproof.contract.commands import Command
from poolproof.contract.content import Image, TokenChain
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
from poolproof.contract.level import Level
from poolproof.contract.trace import Trace, read_trace, write_trace
from poolproof.contract.violation import Severity, Violation

CHAIN = TokenChain((1, 2, 3), ("x", "0"), "s", (Image("p", 1, 2),))
COMMANDS: list[Command] = [
    AnswerStep(1, 2, 3), Arrive(1, 0), Arrive(0, 1, 2), Cancel(4), PlanStep(), Repeat(1),
    RunStep(0, 1, 2), Submit(3, CHAIN, 5, 2),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_a_command_survives_json(command: Command) -> None:
    assert command_from_json(json.loads(json.dumps(command_to_json(command)))) == command


def test_every_command_is_tried_here() -> None:
    names = set(engine_commands.__all__) - {"EngineCommand", "STOP_TOKEN"}
    assert {type(command).__name__ for command in COMMANDS} == names


@pytest.mark.parametrize(
    "record",
    [
        {"do": "submit", "request_id": 0, "chain": {}, "max_new_tokens": 1, "priority": 0},
        {"do": "submit", "request_id": 0, "max_new_tokens": 1, "priority": 0},
        {"do": "cancel"},
        {"do": "plan", "request_id": 0},
        {"do": "answer", "token": 1, "num_accepted": 0},
        {"do": "run", "token": "a", "num_accepted": 0, "num_drafts": 0},
        {"do": "arrive", "place": 0, "is_lost": None},
    ],
)
def test_a_damaged_command_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=record["do"]):
        command_from_json(record)


def test_what_is_as_assumed_is_left_out() -> None:
    record = {"do": "arrive", "place": 1, "is_lost": 1}
    assert command_to_json(Arrive(1, 1)) == record
    assert command_from_json(record) == Arrive(1, 1, 0)
    assert str(Arrive(1, 1)) == "arrive(1, 1)"
    assert str(Arrive(1, 1, 2)) == "arrive(1, 1, 2)"


def test_planning_answering_and_both_at_once_are_one_operation() -> None:
    assert {c.operation for c in (PlanStep(), AnswerStep(1, 0, 0), RunStep(1, 0, 0))} == {"step"}


def test_a_step_that_is_run_is_answered_with_its_own_numbers() -> None:
    assert RunStep(3, 1, 2).answer == AnswerStep(3, 1, 2)


def test_a_trace_of_an_engine_is_read_back(tmp_path: Path) -> None:
    trace = Trace(
        target="mine",
        level=Level.ENGINE,
        profile=EngineProfile(policy="priority", steps_in_flight=2, null_block=0),
        num_blocks=5,
        enable_caching=True,
        commands=tuple(COMMANDS),
        violation=Violation("OUT", Severity.WRONG_DATA_OF_ONES_OWN, "given twice", (), 4),
        options={"block_size": 4, "layout": "fcfs"},
    )
    write_trace(trace, tmp_path / "t.jsonl")
    assert read_trace(tmp_path / "t.jsonl") == trace
