"""What an engine says of recurrent states: by its tables, in its plan, or once drafts are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import AnswerStep, PlanStep, RunStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.violation import Violation
from poolproof.harness.engine_session import EngineSession

STEP = RunStep(5, 0, 0)


class Scripted:
    """Plans what stands in `plans`; answers what is due."""

    def __init__(self, plans: Sequence[Any]) -> None:
        self.plans = list(plans)

    def submit(self, *arguments: Any, **named: Any) -> None:
        """It comes."""

    def plan(self) -> Any:
        return self.plans.pop(0)

    def answer(self, tokens: dict[int, list[int]], drafts: dict[int, list[int]], /) -> Any:
        del drafts
        return [(number, sampled, False) for number, sampled in tokens.items()]


class TellsLate(Scripted):
    """Says what becomes of states when a step is carried out; an exception is raised."""

    def __init__(self, plans: Sequence[Any], told: Sequence[Any]) -> None:
        super().__init__(plans)
        self.told = list(told)
        self.asked: list[Mapping[int, int]] = []

    def states(self, accepted: Mapping[int, int]) -> Any:
        self.asked.append(accepted)
        told = self.told.pop(0)
        if isinstance(told, Exception):
            raise told
        return told


def part(first: int, count: int, blocks: Sequence[int] = (), **more: Any) -> dict[str, Any]:
    return {"request": 0, "first": first, "count": count, "blocks": [list(blocks)], **more}


def computing(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"compute": list(parts), **more}


def played(
    engine: Any, *commands: Command, tokens: Sequence[int] = (1, 2, 3), **rows: Any
) -> Violation | None:
    """What is wrong after a prompt and these commands, in blocks of 2 tokens."""
    profile = EngineProfile.from_mapping({"groups": "state", **rows})
    session = EngineSession(engine, profile, 8, 2)
    for command in (Submit(0, TokenChain(tuple(tokens)), 5, 0), *commands):
        violation = session.step(command)
        if violation is not None:
            return violation
    return None


def sentence(engine: Any, *commands: Command, **rows: Any) -> str:
    violation = played(engine, *commands, **rows)
    assert violation is not None
    return f"{violation.invariant}: {violation.sentence}"


def use(**more: Any) -> list[dict[str, Any]]:
    return [{"group": 0, **more}]


TOLD = {"state_moves": "told"}
LATE = {**TOLD, "draft_tokens": 2, "state_blocks": 3}


def test_by_the_table_nothing_is_said_of_states() -> None:
    plans = [computing(part(0, 3, [4, 5])), computing(part(3, 1, [4, 5]))]
    assert played(Scripted(plans), STEP, STEP) is None
    assert "state_moves is by-table" in sentence(
        Scripted([computing(part(0, 3, [4, 5], states=use(leaves=[[3, 5]])))]), STEP
    )


def test_by_the_table_a_state_needs_the_block_of_its_position() -> None:
    assert "PLAN: request A has no block for position 2 in group 0" in sentence(
        Scripted([computing(part(0, 3, [4]))]), STEP
    )
    lonely = computing(part(0, 3, [0, 5]))
    assert "the null block, 0, for position 0" in sentence(Scripted([lonely]), STEP, null_block=0)
    aligned = {"null_block": 0, "states": "step-end"}
    assert "the null block, 0, for position 0" in sentence(Scripted([lonely]), STEP, **aligned)
    gap = computing(part(0, 5, [4, 0, 5]))
    assert played(Scripted([gap]), STEP, tokens=(1, 2, 3, 1, 2), **aligned) is None


def test_where_only_the_end_is_left_a_block_in_between_keeps_no_state() -> None:
    rows = {"states": "step-end", "max_running": 2}
    plans = [computing(part(0, 3, [4, 5])), computing(part(2, 1, [4, 5]))]
    assert "starts at position 2 (group 0, block 4) from zero" in sentence(
        Scripted(plans), STEP, STEP, **rows
    )


def test_a_plan_tells_where_a_step_starts_and_what_it_leaves() -> None:
    plans = [
        computing(part(0, 3, states=use(leaves=[[2, 4], [3, 5]]))),
        computing(part(3, 1, states=use(starts=5, leaves=[[4, 6]]))),
    ]
    assert played(Scripted(plans), STEP, STEP, **TOLD) is None
    plans = [
        computing(part(0, 3, states=use(leaves=[[2, 4], [3, 5]]))),
        computing(part(3, 1, states=use(starts=4, leaves=[[4, 6]]))),
    ]
    assert sentence(Scripted(plans), STEP, STEP, **TOLD) == (
        "DATA: step 2: request A starts at position 3 (group 0, block 4) from a state that "
        "request A left in step 1; wanted that of <1 2 3>, found that of <1 2>"
    )


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ([], "says 0 times where the temporal state of request A in group 0 starts"),
        ([*use(part="window"), *use()], "says 2 times where the window"),
        (use(part="window"), "says 0 times where the temporal"),
        ([{"group": 1}, *use()], "in group 1, which has none"),
        (use(leaves=[[3, 8]]), "uses block 8 for a state of request A in group 0"),
        (use(starts=0), "uses the null block, 0, for a state of request A"),
        (use(before=[[1, 9]]), "uses block 9"),
        (use(leaves=[[4, 5]]), "a state of request A after position 3 in group 0; it computes"),
        (use(leaves=[[0, 5]]), "after position -1"),
        (use(leaves=[[1, 5]]), "which is not its own end, or of a block of 2; states is every"),
        (use(leaves=[[3, [5, 1]]]), "as state 1 of a block; there is one for each of 0 drafts"),
    ],
)
def test_what_cannot_be_done_with_states_is_named(states: Any, words: str) -> None:
    found = sentence(Scripted([computing(part(0, 3, states=states))]), STEP, null_block=0, **TOLD)
    assert found.startswith("PLAN: ")
    assert words in found


def test_a_step_that_leaves_one_state_leaves_it_at_its_end() -> None:
    plan = computing(part(0, 3, states=use(leaves=[[2, 4]])))
    found = sentence(Scripted([plan]), STEP, states="step-end", **TOLD)
    assert "which is not its own end; states is step-end" in found


def test_states_that_cannot_be_read_are_named() -> None:
    plan = computing(part(0, 3, states=use(starts="here")))
    assert "CRASH" in sentence(Scripted([plan]), STEP, **TOLD)


def test_what_is_zeroed_has_to_exist() -> None:
    plan = computing(part(0, 3, [4, 5]), zeroes=[8])
    assert "PLAN: the step zeroes block 8 of 8 blocks" in sentence(Scripted([plan]), STEP)


def test_an_engine_is_asked_once_it_is_known_which_drafts_were_right() -> None:
    behind_each = use(starts=3, leaves=[[4, 4], [5, 5], [6, 6]])
    engine = TellsLate(
        [
            computing(part(0, 3)),
            computing(part(3, 3, drafts=2)),
            computing(part(5, 1)),
        ],
        [{0: use(leaves=[[3, 3]])}, {0: behind_each}, {0: use(starts=5, leaves=[[6, 3]])}],
    )
    commands = (RunStep(5, 0, 2), RunStep(5, 1, 0), STEP)
    assert played(engine, *commands, **LATE) is None
    assert engine.asked == [{0: 1}, {0: 2}, {0: 1}]


def test_whoever_starts_behind_a_rejected_draft_is_accused() -> None:
    behind_each = use(starts=3, leaves=[[4, 4], [5, 5], [6, 6]])
    engine = TellsLate(
        [
            computing(part(0, 3)),
            computing(part(3, 3, drafts=2)),
            computing(part(5, 1)),
        ],
        [{0: use(leaves=[[3, 3]])}, {0: behind_each}, {0: use(starts=6, leaves=[[6, 3]])}],
    )
    found = sentence(engine, RunStep(5, 0, 2), RunStep(5, 1, 0), STEP, **LATE)
    assert found.startswith("DATA: step 3: request A starts at position 5 (group 0, block 6)")


def test_where_only_the_last_draft_leaves_a_state_no_other_does() -> None:
    engine = TellsLate(
        [computing(part(0, 3)), computing(part(3, 3, drafts=2))],
        [{0: use(leaves=[[3, 3]])}, {0: use(starts=3, leaves=[[5, 5]])}],
    )
    found = sentence(engine, RunStep(5, 0, 2), RunStep(5, 1, 0), **LATE, draft_states="last")
    assert "draft_states is last" in found


def test_a_plan_that_is_older_than_the_acceptance_moves_back_with_it() -> None:
    plans = [
        computing(part(0, 3, states=use(leaves=[[3, 3]]))),
        computing(part(3, 3, drafts=2, states=use(starts=3, leaves=[[4, 4], [5, 5], [6, 6]]))),
        # Counts both drafts as right; none is, so that the state behind position 3 is wanted.
        computing(part(6, 1, states=use(starts=4, leaves=[[7, 3]]))),
    ]
    rows = {**LATE, "steps_in_flight": 2}
    commands = (RunStep(5, 0, 2), PlanStep(), PlanStep(), AnswerStep(5, 0, 0), AnswerStep(5, 0, 0))
    assert played(Scripted(plans), *commands, **rows) is None


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (ValueError("no"), "CRASH: states({0: 1}) is legal here but raised ValueError: no"),
        (7, "CRASH: states({0: 1}) answered what cannot be read: states must answer a mapping"),
        ({}, "PLAN: the step says 0 times"),
    ],
)
def test_an_engine_that_says_nothing_of_states_is_named(told: Any, words: str) -> None:
    found = sentence(TellsLate([computing(part(0, 3))], [told]), STEP, **LATE)
    assert found.startswith(words)
