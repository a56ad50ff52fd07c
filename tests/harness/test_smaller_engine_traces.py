"""Smaller variants of engine traces: steps that go together with what they were needed for."""

from __future__ import annotations

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN, RunStep, Submit
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.smaller_engine_traces import several_steps_traded, stopped_early


def submit(number: int, tokens: tuple[int, ...], most: int) -> Submit:
    return Submit(number, TokenChain(tokens), most, 0)


def variants(generate, commands: list[Command], *more: int) -> list[list[Command]]:
    relative = [RelativeCommand(command) for command in commands]
    return [[item.command for item in variant] for variant in generate(relative, *more)]


TWO = [submit(0, (1,), 5), submit(1, (2,), 5), *(RunStep(2, 0, 0) for _ in range(4))]


def test_several_steps_go_and_all_prompts_have_what_they_sampled() -> None:
    found = variants(several_steps_traded, TWO, 4)
    assert [submit(0, (1, 2, 2), 3), submit(1, (2, 2, 2), 3), *TWO[4:]] in found


def test_several_steps_go_and_one_prompt_is_longer() -> None:
    found = variants(several_steps_traded, TWO, 4)
    assert [TWO[0], submit(1, (2, 1, 1, 1), 2), TWO[5]] in found


def test_several_steps_go_and_so_many_fewer_tokens_are_wanted() -> None:
    found = variants(several_steps_traded, TWO, 4)
    assert [submit(0, (1,), 2), submit(1, (2,), 2), TWO[5]] in found


def test_the_most_steps_are_tried_first_and_one_is_kept() -> None:
    lengths = [len(variant) for variant in variants(several_steps_traded, TWO, 4)]
    assert lengths[0] == 3
    assert lengths == sorted(lengths)


def test_steps_behind_a_stop_token_go() -> None:
    found = variants(stopped_early, TWO)
    assert [*TWO[:2], RunStep(STOP_TOKEN, 0, 0)] in found
    assert [*TWO[:3], RunStep(STOP_TOKEN, 0, 0), TWO[5]] in found
    assert all(len(variant) < len(TWO) for variant in found)
