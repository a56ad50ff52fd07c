"""Campaigns on engines: what counts as a new state, and that a mistake is found."""

from __future__ import annotations

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import Submit
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.fuzz.engine_runs import engine_state
from poolproof.reference.engine_model import EngineModel


def model_of(*requests: Submit) -> EngineModel:
    model = EngineModel(8, 4, EngineProfile(steps_in_flight=2))
    for request in requests:
        model.submit(request)
    return model


def submit(number: int, *tokens: int, priority: int = 0) -> Submit:
    return Submit(number, TokenChain(tokens), 4, priority)


def test_tokens_numbers_and_equal_requests_do_not_make_a_state() -> None:
    one = engine_state(model_of(submit(0, 1, 1)))
    assert one == engine_state(model_of(submit(5, 2, 1)))
    assert one == engine_state(model_of(submit(0, 1, 1), submit(1, 1, 2)))


def test_where_tokens_end_in_a_block_and_who_is_urgent_make_a_state() -> None:
    models = [
        model_of(),
        model_of(submit(0, 1)),
        model_of(submit(0, 1, 1, 1)),
        model_of(submit(0, 1, 1, 1, 1)),
        model_of(submit(0, 1, 1, 1, 1, 1)),
        model_of(submit(0, 1, priority=1)),
    ]
    assert len(set(map(engine_state, models))) == len(models)


def test_steps_in_flight_and_preemption_make_a_state() -> None:
    model = model_of(submit(0, 1, 1))
    seen = {engine_state(model)}
    part = PlannedPart(0, 0, 2, 0, ((0,),))
    for plan in (EnginePlan((part,)), EnginePlan(preempted=(0,))):
        model.planned(plan)
        seen.add(engine_state(model))
    assert len(seen) == 3
