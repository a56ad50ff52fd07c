"""PLAN, of recurrent states: what a step needs, what it must say, what it can leave behind."""

from __future__ import annotations

import pytest

from poolproof.contract.engine_plan import PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.state_use import StateCopy, StateUse
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.engine_plans import (
    part_can_leave_states,
    part_has_blocks,
    part_tells_states,
)

GROUPS = (CacheGroup(), CacheGroup("state"))
BY_TABLE = EngineProfile(groups=GROUPS)
TOLD = EngineProfile(groups=GROUPS, state_moves="told")
SIZES = (4, 4)


def part(first: int, count: int, num_drafts: int = 0) -> PlannedPart:
    return PlannedPart(0, first, count, num_drafts, ((0, 1, 2, 3), (0, 1, 2, 3)))


def said(violation: Violation | None) -> str:
    assert violation is not None
    assert (violation.invariant, violation.severity) == ("PLAN", Severity.CRASH)
    return violation.sentence


# Blocks for states.


def needed(states: str, table: tuple[int, ...], *, moves: str = "by-table") -> Violation | None:
    """What is said of a table of states, of six blocks, for positions 3 to 14: state 2 is read."""
    profile = EngineProfile(groups=(CacheGroup("state"),), states=states, state_moves=moves)
    return part_has_blocks(PlannedPart(0, 3, 12, 0, (table,)), profile, (4,), 6)


@pytest.mark.parametrize(
    ("states", "table"),
    [("every-block", (0, 1, 2, 3)), ("step-end", (0, 9, 9, 3)), ("every-token", (0, 9, 9, 3))],
)
def test_a_table_with_the_blocks_of_the_states_is_accepted(
    states: str, table: tuple[int, ...]
) -> None:
    assert needed(states, table) is None


@pytest.mark.parametrize(
    ("states", "table", "position"),
    [
        ("every-block", (0, 9, 2, 3), 4),
        ("every-block", (0, 1, 9, 3), 8),
        ("step-end", (9, 1, 2, 3), 0),
        ("step-end", (0, 1, 2, 9), 12),
        ("every-token", (0, 1, 2, 9), 12),
    ],
)
def test_a_block_of_a_state_that_is_missing_is_named(
    states: str, table: tuple[int, ...], position: int
) -> None:
    assert said(needed(states, table)) == (
        f"request A has block 9 for position {position} in group 0, of blocks 0 to 5"
    )


def test_the_first_end_of_a_step_is_named_before_the_last() -> None:
    assert "for position 0 in group 0" in said(needed("step-end", (9, 1, 2, 9)))


def test_where_states_are_told_their_table_is_not_asked() -> None:
    assert needed("every-block", (), moves="told") is None


# What a step says of states.


def told(*uses: StateUse, profile: EngineProfile = TOLD) -> Violation | None:
    return part_tells_states(part(4, 4), uses, profile, 6)


@pytest.mark.parametrize(
    "uses",
    [
        (StateUse(1, None),),
        (StateUse(1, (0, 0), leaves=((8, (5, 0)),)),),
        (StateUse(1, None, parts=("temporal",)), StateUse(1, (2, 0), parts=("window",))),
    ],
)
def test_a_start_for_each_part_of_a_state_is_accepted(uses: tuple[StateUse, ...]) -> None:
    assert told(*uses) is None


def test_groups_without_states_need_no_start() -> None:
    assert told(profile=EngineProfile(state_moves="told")) is None


@pytest.mark.parametrize(
    ("uses", "times", "kind"),
    [
        ((), 0, "temporal"),
        ((StateUse(1, None, parts=("temporal",)),), 0, "window"),
        ((StateUse(1, None), StateUse(1, (2, 0), parts=("window",))), 2, "window"),
        ((StateUse(1, None), StateUse(1, None)), 2, "temporal"),
    ],
)
def test_a_start_that_is_not_told_once_is_named(
    uses: tuple[StateUse, ...], times: int, kind: str
) -> None:
    assert said(told(*uses)) == (
        f"the step says {times} times where the {kind} state of request A in group 1 starts; it "
        "must say it once"
    )


def test_a_state_that_the_tables_already_tell_is_named() -> None:
    assert told(profile=BY_TABLE) is None
    assert said(told(StateUse(1, None), profile=BY_TABLE)) == (
        "the step says what becomes of the states of request A; state_moves is by-table"
    )


@pytest.mark.parametrize("group", [-1, 0, 2])
def test_a_state_of_a_group_that_has_none_is_named(group: int) -> None:
    assert said(told(StateUse(1, None), StateUse(group, None))) == (
        f"the step uses states of request A in group {group}, which has none"
    )


def test_a_state_in_the_first_group_is_accepted() -> None:
    profile = EngineProfile(groups=(CacheGroup("state"),), state_moves="told")
    assert told(StateUse(0, None), profile=profile) is None


@pytest.mark.parametrize(
    ("use", "block"),
    [
        (StateUse(1, (6, 0)), 6),
        (StateUse(1, (-1, 0)), -1),
        (StateUse(1, None, leaves=((8, (7, 0)),)), 7),
        (StateUse(1, None, before=(StateCopy(0, 8),)), 8),
    ],
)
def test_a_block_that_does_not_exist_is_named(use: StateUse, block: int) -> None:
    assert said(told(use)) == (
        f"the step uses block {block} for a state of request A in group 1, of blocks 0 to 5"
    )


def test_the_null_block_holds_no_state() -> None:
    profile = EngineProfile(groups=GROUPS, state_moves="told", null_block=0)
    assert told(StateUse(1, (1, 0)), profile=profile) is None
    assert said(told(StateUse(1, (0, 0)), profile=profile)) == (
        "the step uses the null block, 0, for a state of request A in group 1, which needs a block "
        "of its own"
    )


# What a step can leave. It computes positions 4 to 11, the last two of them drafts.


def left(
    *leaves: tuple[int, tuple[int, int]], num_drafts: int = 2, first: int = 4, **rows: str
) -> Violation | None:
    profile = EngineProfile(groups=GROUPS, state_moves="told", draft_tokens=2, **rows)
    uses = (StateUse(1, None, leaves=leaves),)
    # Its own first position counts drafts as accepted that were not.
    return part_can_leave_states(part(6, 8, num_drafts), first, uses, profile, (3, 4))


@pytest.mark.parametrize(
    ("until", "rows"),
    [
        (12, {}),
        (12, {"states": "step-end", "draft_states": "last"}),
        (8, {}),
        (5, {"states": "every-token"}),
        # Behind the last token before the drafts, and behind the first draft.
        (10, {}),
        (11, {}),
        (10, {"states": "step-end"}),
    ],
)
def test_states_that_a_step_can_leave_are_accepted(until: int, rows: dict[str, str]) -> None:
    assert left((until, (2, 0)), **rows) is None


@pytest.mark.parametrize("until", [4, 13])
def test_a_state_outside_the_step_is_named(until: int) -> None:
    assert said(left((until, (2, 0)))) == (
        f"the step leaves a state of request A after position {until - 1} in group 1; it computes "
        "positions 4 to 11"
    )


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_block_holds_a_state_for_each_draft(at: int) -> None:
    assert left((12, (2, at))) is None


@pytest.mark.parametrize("at", [-1, 3])
def test_a_state_beyond_those_of_a_block_is_named(at: int) -> None:
    assert said(left((12, (2, at)))) == (
        f"the step leaves a state of request A after position 11 in group 1 as state {at} of a "
        "block; there is one for each of 2 drafts behind the first"
    )


@pytest.mark.parametrize(
    ("until", "num_drafts", "rows"),
    [
        (9, 2, {}),
        (10, 0, {}),
        (11, 2, {"draft_states": "last"}),
    ],
)
def test_a_state_inside_a_block_is_named(until: int, num_drafts: int, rows: dict[str, str]) -> None:
    assert said(left((until, (2, 0)), num_drafts=num_drafts, **rows)) == (
        f"the step leaves a state of request A after position {until - 1} in group 1, which is not "
        "its own end, or of a block of 4; states is every-block, draft_states is "
        f"{rows.get('draft_states', 'each')}"
    )


def test_a_state_at_the_end_of_a_block_is_named_where_a_step_leaves_its_own_end_only() -> None:
    assert said(left((8, (2, 0)), states="step-end")) == (
        "the step leaves a state of request A after position 7 in group 1, which is not its own "
        "end; states is step-end, draft_states is each"
    )


def test_every_state_that_a_step_leaves_is_judged() -> None:
    for accepted in (12, 11, 8):
        assert "after position 12" in said(left((accepted, (2, 0)), (13, (2, 0))))
    profile = EngineProfile(groups=GROUPS, state_moves="told")
    uses = (StateUse(1, None), StateUse(1, None, leaves=((13, (2, 0)),)))
    assert said(part_can_leave_states(part(4, 8), 4, uses, profile, SIZES))
