"""Manager commands: their JSON and their text."""

import json

import pytest

from poolproof.contract import manager_commands
from poolproof.contract.command_json import command_from_json, command_to_json
from poolproof.contract.commands import Free
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)

CHAIN = TokenChain((1, 2, 3), ("x", "0"), "s", (Image("p", 1, 2),))
COMMANDS = [
    Abort(1), Accept(1, 0), Admit(0, CHAIN, 0), AppendTokens(2, (1, 0)), Draft(2, (1,)), Finish(3),
    Fork(0, 4), Load(5, CHAIN, 2), Loaded(5), LookupPrefix(CHAIN), Preempt(0), Resume(0, 3),
    Schedule(0, 2), Step(), SwapIn(0), SwapOut(0), Truncate(0, 1),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.verb)
def test_a_command_survives_json(command):
    assert command_from_json(json.loads(json.dumps(command_to_json(command)))) == command


def test_every_command_is_tried_here():
    names = set(manager_commands.__all__) - {"ManagerCommand"}
    assert {type(command).__name__ for command in COMMANDS} == names


@pytest.mark.parametrize(
    "record",
    [
        {"do": "fork", "seq_id": 0},
        {"do": "append_tokens", "seq_id": 0, "tokens": 3},
        {"do": "draft", "seq_id": 0, "tokens": ["a"]},
        {"do": "admit", "seq_id": 0, "chain": {}, "num_tokens": 0},
        {"do": "step", "seq_id": 1},
    ],
)
def test_a_damaged_command_is_refused(record):
    with pytest.raises(ValueError, match=record["do"]):
        command_from_json(record)


def test_a_command_reads_as_a_call():
    assert str(Admit(0, CHAIN, 2)) == "admit(0, <1 2 3 lora x salt s image p@1+2>, 2)"
    assert str(Step()) == "step()"


def test_a_long_prompt_and_a_long_list_are_shortened_in_a_command():
    many = tuple(range(4096))
    assert str(Admit(0, TokenChain(many[:32]), 0)).count(" ") == 33
    assert str(Admit(0, TokenChain(many), 0)) == (
        "admit(0, <0 1 2 3 ... (4,096 tokens) ... 4092 4093 4094 4095>, 0)"
    )
    assert str(Free(many)) == ("free([0, 1, 2, 3, ... (4,096 in all) ..., 4092, 4093, 4094, 4095])")


def test_extra_keys_are_plain_values_over_positions():
    assert CHAIN.extra_keys() == (
        ("lora", ("x", "0"), 0, None),
        ("salt", "s", 0, None),
        ("image", "p", 1, 3),
    )
    assert TokenChain((1,)).extra_keys() is None
