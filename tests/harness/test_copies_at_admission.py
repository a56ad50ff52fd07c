"""Contract 2: an admission may copy the heads of blocks; the reads judge what it copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Finish, Step
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.targets.load import load_target

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "simple_manager.py"
SIMPLE: Any = load_target(f"{EXAMPLE}:Manager").real_class
COPIED = "a part of a block was copied at admission"
SIZE = 4


class Copying(SIMPLE):
    """Where a prompt parts from a cached block within it, the common tokens are copied."""

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> Any:
        similar = None if extra_keys or not self.caching else self.most_similar(tokens)
        cached = super().admit(seq_id, tokens, extra_keys=extra_keys)
        if isinstance(cached, str) or similar is None:
            return cached
        source, count = similar
        sequence = self.sequences[seq_id]
        sequence.computed += count
        destination = sequence.table[cached // self.block_size]
        return self.answer(cached, source, destination, count)

    def answer(self, cached: int, source: int, destination: int, count: int) -> Any:
        return cached + count, [(source, destination, count)]

    def most_similar(self, tokens: list[int]) -> tuple[int, int] | None:
        """The cached block that has most tokens in common behind the hit, and how many."""
        size, before, first = self.block_size, None, 0
        contents = {name: content for content, name in self.names.items()}
        while first + size < len(tokens):
            name = self.names.get((before, *tokens[first : first + size]))
            if name not in self.block_of:
                break
            before, first = name, first + size
        best = None
        for name, block in self.block_of.items():
            content = contents[name]
            if content[0] != before or len(content) != size + 1:
                continue  # another prefix, or one with extra keys
            wanted = tokens[first : len(tokens) - 1]
            pairs = list(zip(content[1:], wanted, strict=False))
            same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
            if same and (best is None or same > best[1]):
                best = block, same
        return best


def campaign(cls: type, **rows: Any) -> ManagerCampaign:
    target = load_target(f"{EXAMPLE}:Manager")
    profile = type(target.profile).from_mapping({**SIMPLE.profile, **rows})

    def make(num_blocks: int, enable_caching: bool) -> Any:
        return cls(num_blocks, SIZE, enable_caching=enable_caching)

    return ManagerCampaign(cls.__name__, make, profile, SIZE)


def first_failure(cls: type) -> Any:
    """The violation of the first run that fails, or None; and all that happened."""
    facts: set[str] = set()
    for number in range(120):
        result = campaign(cls).run(number)
        facts |= result.facts
        if result.trace is not None:
            return result.trace.violation, facts
    return None, facts


def test_right_copies_are_not_accused() -> None:
    violation, facts = first_failure(Copying)
    assert violation is None, violation
    assert COPIED in facts


class WithoutCopies(Copying):
    def answer(self, cached: int, source: int, destination: int, count: int) -> Any:
        del source, destination
        return cached + count, []


class TooManyTokens(Copying):
    def answer(self, cached: int, source: int, destination: int, count: int) -> Any:
        count = min(count + 1, self.block_size - 1)
        return cached + count, [(source, destination, count)]


class FromAnotherBlock(Copying):
    def answer(self, cached: int, source: int, destination: int, count: int) -> Any:
        return cached + count, [((source + 1) % self.num_blocks, destination, count)]


class TooFewCopied(Copying):
    def answer(self, cached: int, source: int, destination: int, count: int) -> Any:
        return cached + count, [(source, destination, count - 1)]


class IntoAnotherBlock(Copying):
    def answer(self, cached: int, source: int, destination: int, count: int) -> Any:
        return cached + count, [(source, (destination + 1) % self.num_blocks, count)]


@pytest.mark.parametrize(
    "cls", [WithoutCopies, TooManyTokens, FromAnotherBlock, TooFewCopied, IntoAnotherBlock]
)
def test_wrong_copies_are_read(cls: type) -> None:
    violation, _ = first_failure(cls)
    # One token too many may be the last of a prompt; a new block may hold them by chance.
    others = {TooManyTokens: "ADM", WithoutCopies: "IDX"}
    assert violation.invariant in {"DATA", others.get(cls)}


def session(cls: type = Copying) -> ManagerSession:
    of = campaign(cls)
    return ManagerSession(of.make(8, True), of.profile, 8, SIZE)


def commands(*later: int) -> list[Any]:
    """A prompt is computed and ends; one that begins with the same six tokens comes."""
    first = TokenChain((1, 2, 3, 4, 5, 6, 7, 8, 9))
    return [Admit(0, first, 0), Step(), Finish(0), Admit(1, TokenChain(later), 0), Step()]


def test_what_is_copied_need_not_be_computed() -> None:
    driven = session()
    assert [driven.step(c) for c in commands(1, 2, 3, 4, 5, 6, 0)[:4]] == [None] * 4
    assert driven.model.sequences[1].num_computed == 6
    assert driven.model.sequences[1].num_scheduled == 1
    assert driven.step(Step()) is None
    # The block that it was copied from is as it was.
    assert driven.step(Admit(2, TokenChain((1, 2, 3, 4, 5, 6, 7, 8, 9)), 0)) is None
    assert driven.model.sequences[2].num_computed == 8


def test_too_many_copied_tokens_are_data_of_another() -> None:
    driven = session(TooManyTokens)
    for command in commands(1, 2, 3, 4, 5, 6, 0, 0)[:3]:
        assert driven.step(command) is None
    violation = driven.step(commands(1, 2, 3, 4, 5, 6, 0, 0)[3])
    assert violation is not None
    assert violation.invariant == "DATA"
    assert "reads at position 6" in violation.sentence


@pytest.mark.parametrize(
    "answer",
    [
        (6,),
        (6, 7),
        (6, [(0, 1)]),
        (6, [(0, 1, 9)]),
        (6, [(0, 1, -1)]),
        (6, [(0, "x", 1)]),
        ("later", []),
        (6, [(0, 99, 1)]),
        (None, [], 3),
    ],
)
def test_an_answer_of_neither_form_is_named(answer: Any) -> None:
    class Odd(SIMPLE):
        def admit(self, *arguments: Any, **named: Any) -> Any:
            super().admit(*arguments, **named)
            return answer

    violation = session(Odd).step(Admit(0, TokenChain((1, 2, 3, 4, 5, 6, 7)), 0))
    assert violation is not None
    assert violation.invariant in {"CRASH", "I2"}


def test_no_copies_may_be_told_as_none() -> None:
    class Plain(SIMPLE):
        def admit(self, *arguments: Any, **named: Any) -> Any:
            found = super().admit(*arguments, **named)
            return found if isinstance(found, str) else (found, None)

    violation, facts = first_failure(Plain)
    assert violation is None, violation
    assert COPIED not in facts
