"""Plainer variants of manager commands that the minimiser tries."""

from __future__ import annotations

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Load,
    Loaded,
    Preempt,
    Schedule,
    Step,
    SwapOut,
)
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.smaller_manager_traces import (
    fewer_tokens,
    lowered_manager_command,
    smaller_everywhere,
    weight_of,
)

CHAIN = TokenChain((1, 0))


def relative(*commands):
    return [RelativeCommand(command) for command in commands]


def test_a_familiar_verb_is_tried_first_and_weighs_less():
    plainer = {
        Abort(0): Finish(0),
        Preempt(0): Finish(0),
        SwapOut(0): Finish(0),
        Load(0, CHAIN, 1): Admit(0, CHAIN, 0),
        Draft(0, (1,)): AppendTokens(0, (1,)),
        Loaded(0): Step(),
        Schedule(0, 2): Step(),
    }
    for command, simpler in plainer.items():
        assert next(lowered_manager_command(command)) == simpler
        assert weight_of(simpler) < weight_of(command)
    assert list(lowered_manager_command(Finish(0))) == []


def test_each_command_is_tried_with_fewer_tokens():
    tried = list(fewer_tokens(relative(Admit(0, TokenChain((0, 1, 2)), 0), Step())))
    assert tried == [
        relative(Admit(0, TokenChain((0,)), 0), Step()),
        relative(Admit(0, TokenChain((0, 1)), 0), Step()),
    ]


def test_a_transfer_is_tried_as_a_computation():
    commands = relative(Load(0, CHAIN, 1), Loaded(0), Loaded(1))
    wanted = relative(Admit(0, CHAIN, 1), Step(), Loaded(1))
    assert wanted in list(smaller_everywhere(commands, 4))
