"""Smaller variants of engine traces: steps go with what they were needed for, tokens get small."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN, RunStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.trace import Trace
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.smaller_engine_traces import (
    large_tokens_lowered,
    several_steps_traded,
    shorter_requests,
    stopped_early,
    tokens_lowered,
)
from poolproof.reference.native_engine import NativePlainEngine


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


LARGE = 1_527_229_865
MIXED = [submit(0, (LARGE, 7, LARGE), 3), RunStep(LARGE + 1, 0, 0), RunStep(STOP_TOKEN, 0, 0)]


def test_large_tokens_become_their_places_wherever_they_stand() -> None:
    (lowered,) = variants(large_tokens_lowered, MIXED)
    assert lowered == [submit(0, (2, 1, 2), 3), RunStep(3, 0, 0), RunStep(STOP_TOKEN, 0, 0)]


def test_small_tokens_are_left_to_a_later_pass() -> None:
    assert variants(large_tokens_lowered, [submit(0, (5, 9), 3), RunStep(3, 0, 0)]) == []


def test_a_token_becomes_any_smaller_one_and_never_the_one_that_stops() -> None:
    found = variants(tokens_lowered, [submit(0, (2, 5), 3), RunStep(2, 0, 0)])
    assert [submit(0, (1, 5), 3), RunStep(1, 0, 0)] in found
    assert [submit(0, (2, 2), 3), RunStep(2, 0, 0)] in found
    assert all(STOP_TOKEN not in variant[0].chain.tokens for variant in found)  # type: ignore[attr-defined]  # a submit
    assert all(isinstance(step, RunStep) and step.token != STOP_TOKEN for _, step in found)


def test_two_tokens_keep_their_distance() -> None:
    found = variants(tokens_lowered, [submit(0, (LARGE, LARGE + 256), 3)])
    assert [submit(0, (1, 257), 3)] in found


def test_long_prompts_lose_much_at_once_first() -> None:
    lengths = [
        len(one.chain.tokens)  # type: ignore[attr-defined]  # a submit
        for (one,) in variants(shorter_requests, [submit(0, (1,) * 100, 1)], 4)
    ]
    assert lengths[0] == 52
    assert lengths.index(96) > lengths.index(76)


class Confuses(NativePlainEngine):
    """Takes two requests whose first tokens are equal modulo 1,000 for one prompt."""

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        for one, other in combinations(self._running, 2):
            first, second = one.tokens[0], other.tokens[0]
            if first != second and first % 1_000 == second % 1_000:
                for part in plan["compute"]:
                    if part["request"] == other.number and part["first"] > 0:
                        part["blocks"][0][0] = one.tables[0][0]
        return plan


def test_tokens_that_only_have_to_be_alike_become_small() -> None:
    first, second = LARGE, LARGE + 5_000
    commands = (
        submit(0, (first, *range(40, 49)), 3), submit(1, (second, *range(90, 96)), 3),
        *[RunStep(LARGE, 0, 0)] * 3,
    )  # fmt: skip
    profile = EngineProfile()
    trace = Trace("", "engine", profile, 20, True, commands, options={"block_size": 4})
    make = execute_in_process(lambda number, _: Confuses(number, 4, profile=profile))
    minimal = minimise(trace, make)
    assert minimal.violation is not None
    tokens = {t for c in minimal.commands if isinstance(c, Submit) for t in c.chain.tokens}
    assert max(tokens) <= 5_001
    assert all(c.token <= 1 for c in minimal.commands if isinstance(c, RunStep))
