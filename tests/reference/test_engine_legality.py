"""Which commands mean anything to an engine, and why not."""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.contract.commands import Allocate, Command, Reset
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.reference.engine_legality import undefined_for_engine
from poolproof.reference.engine_model import NUM_REPEATED, EngineModel

ENDED, LIVE = 0, 1


@pytest.fixture
def model() -> EngineModel:
    """4 blocks of 4 tokens: a request has ended, one is live, nothing is in flight."""
    model = EngineModel(4, 4, EngineProfile())
    for number in (ENDED, LIVE):
        model.submit(Submit(number, TokenChain((1, 2)), 3, 0))
    model.end(model.requests[ENDED])
    return model


@pytest.fixture
def busy(model: EngineModel) -> EngineModel:
    """The same with a step and a transfer in flight."""
    transfer = Transfer(5, is_load=True, waits=False, blocks=(1,), places=(0,))
    parts = (PlannedPart(LIVE, 0, 2, 0, ((1,),)),)
    model.planned(EnginePlan(parts, transfers=(transfer,)))
    return model


def submit(*tokens: int, number: int = 2, most: int = 1) -> Submit:
    return Submit(number, TokenChain(tokens), most, 0)


@pytest.mark.parametrize(
    "command",
    [submit(1), submit(*[1] * 13, most=3), Cancel(LIVE), PlanStep(), RunStep(0, 0, 0), Reset()],
)
def test_these_are_legal(model: EngineModel, command: Command) -> None:
    assert undefined_for_engine(model, command) is None


@pytest.mark.parametrize(
    "command",
    [
        submit(1),
        Cancel(LIVE),
        AnswerStep(0, 0, 0),
        AnswerStep(9, 9, 9),
        Arrive(0, 0),
        Arrive(0, 1),
        Arrive(0, 1, 1),
    ],
)
def test_these_are_legal_with_a_step_in_flight(busy: EngineModel, command: Command) -> None:
    assert undefined_for_engine(busy, command) is None


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (submit(1, number=LIVE), "the number was given to another request"),
        (submit(1, number=ENDED), "the number was given to another request"),
        (submit(1, number=-1), "the number was given to another request"),
        (submit(), "a prompt has at least one token, and none that stops it"),
        (submit(1, STOP_TOKEN), "a prompt has at least one token, and none that stops it"),
        (submit(1, -1), "a prompt has at least one token, and none that stops it"),
        (submit(1, most=0), "a request wants at least one token"),
        (submit(*[1] * 13, most=4), "a request may have 16 tokens"),
        (Cancel(ENDED), "the request is not there"),
        (Cancel(7), "the request is not there"),
        (AnswerStep(1, 0, 0), "no step is in flight"),
        (RunStep(-1, 0, 0), "a number is negative"),
        (RunStep(1, -1, 0), "a number is negative"),
        (RunStep(1, 0, -1), "a number is negative"),
        (Arrive(0, 0), "no such transfer is in flight"),
        (Repeat(0), "the engine is told once of what has ended"),
        (Allocate(1), "it is not a command of engines"),
    ],
)
def test_these_mean_nothing(model: EngineModel, command: Command, why: str) -> None:
    assert undefined_for_engine(model, command) == why


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (PlanStep(), "as many steps are in flight as may be"),
        (RunStep(1, 0, 0), "as many steps are in flight as may be"),
        (AnswerStep(-1, 0, 0), "a number is negative"),
        (Arrive(-1, 0), "no such transfer is in flight"),
        (Arrive(1, 0), "no such transfer is in flight"),
        (Arrive(0, 2), "is_lost is 0 or 1"),
        (Arrive(0, 0, 1), "what is not lost moves all of its blocks"),
        (Arrive(0, 1, 2), "the transfer has fewer blocks"),
        (Arrive(0, 1, -1), "the transfer has fewer blocks"),
    ],
)
def test_these_mean_nothing_with_a_step_in_flight(
    busy: EngineModel, command: Command, why: str
) -> None:
    assert undefined_for_engine(busy, command) == why


def test_a_second_step_is_planned_where_two_may_be_in_flight() -> None:
    model = EngineModel(4, 4, EngineProfile(steps_in_flight=2))
    model.planned(EnginePlan())
    assert undefined_for_engine(model, PlanStep()) is None
    model.planned(EnginePlan())
    assert undefined_for_engine(model, PlanStep()) is not None


def with_images(*images: Image, length: int = 10) -> Submit:
    return Submit(2, TokenChain((1,) * length, images=images), 1, 0)


def test_requests_are_numbered_from_zero() -> None:
    empty = EngineModel(4, 4, EngineProfile())
    assert undefined_for_engine(empty, submit(1, number=0)) is None


@pytest.fixture
def seeing() -> EngineModel:
    """8 blocks of 4 tokens; images have up to 5 positions, and image "a" has 3."""
    model = EngineModel(8, 4, EngineProfile(image_tokens=6, encoder_cache_tokens=5))
    chain = TokenChain((1,) * 4, images=(Image("a", 0, 3),))
    model.submit(Submit(0, chain, 1, 0))
    return model


@pytest.mark.parametrize(
    "images",
    [
        (Image("a", 0, 3), Image("b", 3, 5)),
        (Image("b", 5, 5),),
        (Image("b", 0, 1),),
        (Image("a", 1, 3), Image("a", 5, 3)),
    ],
)
def test_images_stand_one_after_the_other(seeing: EngineModel, images: Any) -> None:
    assert undefined_for_engine(seeing, with_images(*images)) is None


@pytest.mark.parametrize(
    ("images", "why"),
    [
        ((Image("a", 0, 3), Image("b", 2, 3)), "images overlap, or leave the prompt"),
        ((Image("b", 6, 5),), "images overlap, or leave the prompt"),
        ((Image("b", -1, 3),), "images overlap, or leave the prompt"),
        ((Image("b", 0, 6),), "an image has 1 to 5 positions"),
        ((Image("b", 0, 0),), "an image has 1 to 5 positions"),
        ((Image("a", 0, 4),), "image 'a' had another number of positions"),
    ],
)
def test_these_images_mean_nothing(seeing: EngineModel, images: Any, why: str) -> None:
    said = undefined_for_engine(seeing, with_images(*images))
    assert said is not None
    assert said.startswith(why)


def test_an_engine_without_images_is_sent_none(model: EngineModel) -> None:
    assert undefined_for_engine(model, with_images(Image("a", 0, 1))) == "there are no images"


def test_transfers_end_in_order_where_the_profile_says_so() -> None:
    model = EngineModel(4, 4, EngineProfile(transfer_order="fifo", transfers="never-fail"))
    kinds = (True, False, True)
    moves = [Transfer(n, is_load, False, (1,), (n,)) for n, is_load in enumerate(kinds)]
    model.planned(EnginePlan(transfers=tuple(moves)))
    why = [undefined_for_engine(model, Arrive(place, 0)) for place in range(3)]
    assert why == [None, None, "one of its kind that began before it is still in flight"]
    assert undefined_for_engine(model, Arrive(0, 1)) == "no transfer fails"


def test_an_end_is_not_told_again_where_another_transfer_has_its_number() -> None:
    model = EngineModel(4, 4, EngineProfile(notices="may-repeat", steps_in_flight=2))
    moves = [Transfer(number, True, False, (1,), (0,)) for number in (7, 8, 9)]
    model.planned(EnginePlan(transfers=tuple(moves)))
    for _ in moves:
        model.end_transfer(0, is_done=True)
    assert [undefined_for_engine(model, Repeat(n)) for n in range(3)] == [None] * 3
    model.planned(EnginePlan(transfers=(moves[1],)))
    reused = "another transfer has its number by now"
    assert [undefined_for_engine(model, Repeat(n)) for n in range(3)] == [None, reused, None]


@pytest.mark.parametrize("ranks", [(None, 0), (0, None)])
def test_what_moves_all_ranks_is_in_the_order_of_each(ranks: tuple[int | None, ...]) -> None:
    model = EngineModel(4, 4, EngineProfile(transfer_order="fifo", ranks=2))
    moves = [Transfer(n, True, False, (1,), (n,), rank=rank) for n, rank in enumerate(ranks)]
    model.planned(EnginePlan(transfers=tuple(moves)))
    assert model.places_to_arrive() == [0]


def test_each_rank_has_an_order_of_its_own() -> None:
    model = EngineModel(4, 4, EngineProfile(transfer_order="fifo", ranks=2))
    moves = [Transfer(n, True, False, (1,), (n,), rank=rank) for n, rank in enumerate((0, 0, 1))]
    model.planned(EnginePlan(transfers=tuple(moves)))
    assert model.places_to_arrive() == [0, 2]


def test_what_is_lost_moves_nothing_where_the_profile_says_so() -> None:
    model = EngineModel(4, 4, EngineProfile(lost_transfers="move-nothing"))
    model.planned(EnginePlan(transfers=(Transfer(0, True, False, (1,), (0,)),)))
    assert undefined_for_engine(model, Arrive(0, 1)) is None
    why = "a transfer that is lost moves nothing"
    assert undefined_for_engine(model, Arrive(0, 1, 1)) == why


def test_the_last_ends_may_be_told_again_where_the_profile_says_so() -> None:
    model = EngineModel(4, 4, EngineProfile(notices="may-repeat"))
    assert undefined_for_engine(model, Repeat(0)) == "no such transfer has ended"
    moves = tuple(Transfer(n, True, False, (1,), (0,)) for n in range(NUM_REPEATED + 1))
    model.planned(EnginePlan(transfers=moves))
    for _ in moves:
        model.end_transfer(0, is_done=True)
    known = [undefined_for_engine(model, Repeat(n)) is None for n in range(NUM_REPEATED + 1)]
    assert known == [True] * NUM_REPEATED + [False]


def test_an_engine_that_plans_ahead_is_answered_only_when_it_cannot_plan_more() -> None:
    model = EngineModel(4, 4, EngineProfile(steps_in_flight=2, answers="when-full"))
    model.submit(Submit(LIVE, TokenChain((1, 2)), 3, 0))
    assert undefined_for_engine(model, RunStep(1, 0, 0)) is not None
    model.planned(EnginePlan())
    early = "no step is answered while another can be planned"
    assert undefined_for_engine(model, AnswerStep(1, 0, 0)) == early
    assert undefined_for_engine(model, RunStep(1, 0, 0)) is None
    model.planned(EnginePlan())
    assert undefined_for_engine(model, AnswerStep(1, 0, 0)) is None


def test_an_engine_that_plans_ahead_is_answered_once_nobody_waits() -> None:
    model = EngineModel(4, 4, EngineProfile(steps_in_flight=2, answers="when-full"))
    model.planned(EnginePlan())
    assert undefined_for_engine(model, AnswerStep(1, 0, 0)) is None
