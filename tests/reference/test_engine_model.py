"""The model of an engine: what steps in flight sample, and what becomes of rejected drafts."""

from __future__ import annotations

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import Answer, Submit
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.reference.engine_model import EngineModel, Executed


def model_in_flight() -> EngineModel:
    """Request 0, of 4 prompt tokens, has 2 drafts for its next step."""
    profile = EngineProfile(steps_in_flight=2, draft_tokens=2)
    model = EngineModel(16, 4, profile)
    model.submit(Submit(0, TokenChain((1, 2, 3, 4)), 12, 0))
    plan(model, 0, 4, 0)
    answer(model, 0)
    return model


def plan(model: EngineModel, first: int, count: int, num_drafts: int) -> None:
    model.planned(EnginePlan((PlannedPart(0, first, count, num_drafts, ((1, 2, 3, 4),)),)))


def answer(model: EngineModel, num_accepted: int) -> Executed:
    _, (executed,) = model.execute(Answer(5, num_accepted, 2))
    model.deliver(executed, executed.due, 2)
    return executed


def test_a_step_in_flight_counts_with_its_drafts() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    assert model.num_tokens_assumed(model.requests[0]) == 8


def test_rejected_drafts_no_longer_count_in_the_steps_that_were_planned_behind_them() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    plan(model, 7, 3, 2)
    answer(model, 0)
    assert model.num_tokens_assumed(model.requests[0]) == 9


def test_a_step_computes_as_much_earlier_as_drafts_before_it_were_rejected() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    plan(model, 7, 3, 2)
    answer(model, 1)
    assert answer(model, 0).first == 6


def test_a_third_step_behind_rejected_drafts_samples_as_well() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    plan(model, 7, 3, 2)
    answer(model, 0)
    plan(model, 8, 3, 2)
    answer(model, 0)
    assert answer(model, 0).sampled


def test_a_step_in_flight_of_a_preempted_request_tries_its_drafts_all_the_same() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    model.planned(EnginePlan(preempted=(0,)))
    assert answer(model, 2).num_accepted == 2
