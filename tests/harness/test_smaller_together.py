"""The pool and the texts that fill it shrink together, where neither can shrink alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from poolproof.contract.commands import Command
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.engine_commands import RunStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_commands import Admit, AppendTokens, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.smaller_together import (
    longest_shorter,
    shorter_by_as_many,
    shorter_in_proportion,
)
from poolproof.reference.native_engine import NativePlainEngine
from poolproof.reference.native_manager import NativeSequenceManager

BLOCK_SIZE = 4


def lengths(variant: Any) -> list[int]:
    """How many tokens each command of a variant has."""
    commands = [item.command for item in variant]
    return [len(getattr(c, "tokens", ()) or c.chain.tokens) for c in commands]


def relative(*commands: Command) -> list[RelativeCommand]:
    return [RelativeCommand(command) for command in commands]


def admit(number: int, length: int, scheduled: int = 0) -> Admit:
    return Admit(number, TokenChain(tuple(range(length))), scheduled)


TWO = relative(admit(0, 41), admit(1, 18), AppendTokens(0, (1, 2)))


def test_in_proportion_every_length_loses_its_share_in_whole_blocks() -> None:
    assert lengths(shorter_in_proportion(TWO, BLOCK_SIZE, 16, 8)) == [21, 10, 2]
    assert lengths(shorter_in_proportion(TWO, BLOCK_SIZE, 16, 4)) == [29, 14, 2]


def test_by_as_many_what_is_longer_loses_so_many_blocks() -> None:
    assert lengths(shorter_by_as_many(TWO, BLOCK_SIZE, 2)) == [33, 10, 2]
    assert lengths(shorter_by_as_many(TWO, BLOCK_SIZE, 5)) == [21, 18, 2]
    assert shorter_by_as_many(TWO, BLOCK_SIZE, 11) is None


def test_only_the_longest_gets_shorter() -> None:
    assert lengths(longest_shorter(TWO, BLOCK_SIZE, 2)) == [33, 18, 2]
    assert longest_shorter(TWO, BLOCK_SIZE, 11) is None


def test_lengths_that_commands_speak_of_shrink_as_well() -> None:
    whole = relative(admit(0, 40, 32), Submit(1, TokenChain((1,) * 9), 20, 3))
    first, second = (i.command for i in shorter_in_proportion(whole, BLOCK_SIZE, 10, 5))
    assert first == admit(0, 20, 16)
    assert second == Submit(1, TokenChain((1,) * 5), 8, 3)


def test_a_text_keeps_a_token_and_images_that_it_still_has() -> None:
    chain = TokenChain((1,) * 8, images=(Image("a", 0, 2), Image("b", 5, 2)))
    (item,) = shorter_in_proportion(relative(Admit(0, chain, 0)), BLOCK_SIZE, 2, 1)
    assert item.command == Admit(0, TokenChain((1,) * 4, images=(Image("a", 0, 2),)), 0)
    (item,) = shorter_in_proportion(relative(admit(0, 4)), BLOCK_SIZE, 2, 1)
    assert len(item.command.chain.tokens) == 1


# What needs the whole pool, however many blocks that is.


class WholeEngine(NativePlainEngine):
    """Who goes on reads another block first, once no block is free."""

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        for part in plan["compute"] if self.num_free() == 0 else ():
            table = part["blocks"][0]
            if part["first"] > 0 and len(table) > 1:
                table[0] = table[-1]
        return plan


class WholeManager(NativeSequenceManager):
    """A table names a block twice, once no block is free."""

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        table = list(super().block_table(seq_id, group))
        if self.num_free() == 0 and len(table) > 1:
            table[-1] = table[0]
        return table


def tokens(length: int) -> TokenChain:
    drawn = random.Random(length)
    return TokenChain(tuple(drawn.randrange(1, 1 << 31) for _ in range(length)))


def of_engine(num_blocks: int, *requests: tuple[int, int]) -> tuple[Trace, Any]:
    profile = EngineProfile(max_batch_tokens=512)
    commands = (
        *(Submit(n, tokens(length), most, 0) for n, (length, most) in enumerate(requests)),
        *[RunStep(1_527_229_865, 0, 0)] * 20,
    )
    trace = Trace("", "engine", profile, num_blocks, True, commands, options={"block_size": 4})
    return trace, lambda number, _: WholeEngine(number, BLOCK_SIZE, profile=profile)


def of_manager(num_blocks: int, *prompts: int) -> tuple[Trace, Any]:
    profile = ManagerProfile()
    admitted = [(Admit(n, tokens(length), length), Step()) for n, length in enumerate(prompts)]
    commands = tuple(command for pair in admitted for command in pair)
    trace = Trace("", "manager", profile, num_blocks, True, commands, options={"block_size": 4})
    return trace, lambda number, caching: WholeManager(
        number, BLOCK_SIZE, enable_caching=caching, profile=profile
    )


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("made", "num_blocks", "longest"),
    [
        (of_engine(400, (1_557, 40)), 2, 4),
        (of_engine(100, (300, 2), (92, 4)), 2, 4),
        (of_manager(400, 1_000, 600), 2, 5),
        (of_manager(300, 500, 401, 296), 2, 5),
    ],
    ids=["engine-of-400", "two-requests", "manager-of-400", "three-sequences"],
)
def test_a_bug_that_needs_the_whole_pool_is_shown_in_a_small_one(
    made: tuple[Trace, Any], num_blocks: int, longest: int
) -> None:
    trace, make = made
    minimal = minimise(trace, execute_in_process(make))
    assert minimal.violation is not None
    assert minimal.num_blocks <= num_blocks
    chains = [c.chain.tokens for c in minimal.commands if isinstance(c, Admit | Submit)]
    assert max(map(len, chains)) <= longest
    assert max(max(chain) for chain in chains) <= 1


def test_what_needs_so_many_blocks_keeps_them() -> None:
    class Beyond100(WholeEngine):
        def num_free(self) -> int:
            free = super().num_free()
            return free if sum(len(r.tables[0]) for r in self._running) >= 100 else max(free, 1)

    trace, _ = of_engine(400, (1_557, 40))
    profile = EngineProfile(max_batch_tokens=512)
    make = execute_in_process(lambda number, _: Beyond100(number, BLOCK_SIZE, profile=profile))
    minimal = minimise(trace, make)
    assert minimal.violation is not None
    assert 100 <= minimal.num_blocks <= 130
