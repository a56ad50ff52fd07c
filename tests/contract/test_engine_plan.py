"""What an engine says of a step, read with care: every form of nonsense has its sentence."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any

import pytest

from poolproof.contract.engine_plan import (
    EnginePlan,
    PlanError,
    PlannedPart,
    Transfer,
    outputs_from,
    plan_from,
)

PART = {"request": 3, "first": 4, "count": 2, "blocks": [[1, 2], [5]]}
LOAD = {"id": 7, "kind": "load", "blocks": [1, 2], "places": [8, 9]}


def computing(**changed: Any) -> dict[str, Any]:
    return {"compute": [{**PART, **changed}]}


def moving(**changed: Any) -> dict[str, Any]:
    return {"compute": [], "transfers": [{**LOAD, **changed}]}


def test_a_mapping_is_read_as_a_plan() -> None:
    plan = plan_from(
        {
            "compute": [{**PART, "drafts": 1}],
            "copies": [(1, 2), [3, 4]],
            "preempted": [9],
            "transfers": [LOAD, {**LOAD, "id": 8, "kind": "store", "waits": True}],
        }
    )
    assert plan == EnginePlan(
        (PlannedPart(3, 4, 2, 1, ((1, 2), (5,))),),
        ((1, 2), (3, 4)),
        (9,),
        (
            Transfer(7, is_load=True, waits=False, blocks=(1, 2), places=(8, 9)),
            Transfer(8, is_load=False, waits=True, blocks=(1, 2), places=(8, 9)),
        ),
    )


def test_a_transfer_may_be_that_of_one_rank() -> None:
    plan = plan_from({"compute": [], "transfers": [{**LOAD, "rank": 1}, {**LOAD, "rank": None}]})
    assert [transfer.rank for transfer in plan.transfers] == [1, None]


def test_what_is_left_out_is_none() -> None:
    nothing = {"compute": [], "copies": None, "preempted": None, "transfers": None}
    assert plan_from({"compute": []}) == plan_from(nothing) == EnginePlan()
    assert plan_from(computing()).parts[0].num_drafts == 0
    assert not plan_from(computing()).parts[0].discards
    assert plan_from(computing(discards=True)).parts[0].discards


def test_any_mapping_will_do_and_a_plan_stays_as_it_is() -> None:
    plan = plan_from(MappingProxyType({"compute": (MappingProxyType(PART),)}))
    assert plan.parts[0].request_id == 3
    assert plan_from(plan) is plan


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "a plan must be a mapping, not None"),
        ([], "a plan must be a mapping, not []"),
        (
            {},
            "a plan lacks compute; it may have compute, copies, encodes, flushes, forgets, preemp",
        ),
        ({"compute": [], "copy": []}, "a plan has 'copy'; it may have"),
        ({"compute": 3}, "the plan {'compute': 3} is not made of lists of numbers"),
        ({"compute": [], "copies": [(1, 2, 3)]}, "is not made of lists of numbers"),
        ({"compute": [], "copies": [(1, "a")]}, "is not made of lists of numbers"),
        ({"compute": [], "preempted": [1.5]}, "is not made of lists of numbers"),
        ({"compute": [4]}, "an entry of compute must be a mapping, not 4"),
        (
            {"compute": [{"request": 1}]},
            (
                "an entry of compute lacks blocks, count, first; it may have blocks, count, "
                "discards, drafts, first, request"
            ),
        ),
        (computing(draft=1), "an entry of compute has 'draft'"),
        (computing(first=None), "of compute must have numbers, and in blocks a list of block ids"),
        (computing(count=2.0), "of compute must have numbers"),
        (computing(drafts="1"), "of compute must have numbers"),
        (computing(blocks=[1, 2]), "of compute must have numbers"),
        (computing(blocks=[[None]]), "of compute must have numbers"),
        (moving(kind="move"), "the kind of a transfer is load or store, not 'move'"),
        (moving(blocks=[1]), "transfer 7 moves 1 blocks and names 2 places"),
        (moving(id="x"), "must have lists of numbers"),
        (moving(places=4), "must have lists of numbers"),
        (
            moving(until=4),
            "a transfer has 'until'; it may have blocks, fails, follows, id, kind, places",
        ),
    ],
)
def test_a_plan_without_sense_is_named(answer: Any, sentence: str) -> None:
    with pytest.raises(PlanError, match=re.escape(sentence)):
        plan_from(answer)


@pytest.mark.parametrize("kind", [[], {}, None])
def test_a_kind_that_is_no_text_at_all_is_named(kind: Any) -> None:
    with pytest.raises(PlanError, match="the kind of a transfer is load or store"):
        plan_from(moving(kind=kind))


def test_names_of_several_types_are_named() -> None:
    with pytest.raises(PlanError, match="a plan has "):
        plan_from({"compute": [], 3: 4, "x": 5})


def test_outputs_are_read() -> None:
    assert outputs_from([(3, [1, 2], 0), [4, (), True]]) == [(3, (1, 2), False), (4, (), True)]
    assert outputs_from(None) == []


@pytest.mark.parametrize("answer", [3, [3], [(1, 2)], [(1, 2, 3)], [("a", [], False)], {1: [2]}])
def test_outputs_without_sense_are_named(answer: Any) -> None:
    with pytest.raises(PlanError, match=r"are not a list of \(request, tokens, ended\)"):
        outputs_from(answer)


def test_a_plan_names_what_it_waits_for_and_what_follows_it() -> None:
    store = {**LOAD, "kind": "store", "follows": True}
    plan = plan_from({"compute": [], "transfers": [store], "flushes": [7]})
    assert (plan.flushes, plan.transfers[0].follows) == ((7,), True)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"waits": True, "follows": True}, "transfer 7 cannot both be waited for and follow"),
        ({"fails": True}, "transfer 7 is said to fail; only a load that the step waits for can"),
        ({"kind": "store", "waits": True, "fails": True}, "transfer 7 is said to fail"),
    ],
)
def test_a_transfer_that_contradicts_itself_is_named(
    changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PlanError, match=re.escape(sentence)):
        plan_from(moving(**changed))
