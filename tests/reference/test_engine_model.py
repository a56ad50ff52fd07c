"""The model of an engine: what a step computes, who samples, what users are due."""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN, AnswerStep, Submit
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
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
    _, (executed,) = model.execute(AnswerStep(5, num_accepted, 2))
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


def test_drafts_that_were_right_still_count_in_the_steps_behind_them() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    plan(model, 7, 3, 2)
    answer(model, 1)
    assert model.num_tokens_assumed(model.requests[0]) == 10


def test_what_is_sampled_for_nobody_is_due_to_nobody() -> None:
    """One instance computes the prompt, and another samples behind it."""
    model = EngineModel(16, 4, EngineProfile(instances=2))
    model.submit(Submit(0, TokenChain((1, 2, 3, 4)), 2, 0))
    model.planned(EnginePlan((PlannedPart(0, 0, 4, 0, ((1,),), discards=True),)))
    assert model.num_tokens_assumed(model.requests[0]) == 4
    thrown_away = answer(model, 0)
    assert (thrown_away.sampled, thrown_away.due, thrown_away.is_read) == ((), (), True)
    model.planned(EnginePlan((PlannedPart(0, 3, 1, 0, ((9,),)),)))
    assert answer(model, 0).due == (5,)


def test_a_stale_step_takes_nothing_from_the_run_that_came_after_it() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    model.planned(
        EnginePlan((PlannedPart(0, 0, 5, 0, ((1, 2, 3, 4),)),), preempted=(0,)),
    )
    assert model.num_tokens_assumed(model.requests[0]) == 6
    model.execute(AnswerStep(5, 0, 2))
    assert model.num_tokens_assumed(model.requests[0]) == 6


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


# One request, step by step.


def small_model(**rows: Any) -> EngineModel:
    """An engine of 16 blocks of 4 tokens whose requests are given no drafts unless stated."""
    return EngineModel(16, 4, EngineProfile(**rows))


def submit(model: EngineModel, *tokens: int, most: int = 12, request_id: int = 0) -> None:
    model.submit(Submit(request_id, TokenChain(tokens), most, 0))


def step(
    model: EngineModel,
    first: int,
    count: int,
    *,
    token: int = 5,
    drafts: int = 0,
    accepted: int = 0,
) -> Executed:
    """Plan a step of request 0, carry it out, and give the user what is due."""
    plan(model, first, count, drafts)
    _, (executed,) = model.execute(AnswerStep(token, accepted, 0))
    model.deliver(executed, executed.due, model.profile.draft_tokens)
    return executed


def test_a_request_has_the_tokens_of_its_prompt_first() -> None:
    model = small_model()
    submit(model, 3, 4)
    request = model.requests[0]
    assert (request.tokens, request.num_prompt_tokens, request.num_left) == ([3, 4], 2, 12)
    assert model.num_tokens_assumed(request) == 2
    assert not request.began


def test_part_of_a_prompt_samples_nothing() -> None:
    model = small_model()
    submit(model, 1, 2, 3)
    executed = step(model, 0, 2)
    assert (executed.tokens, executed.sampled, executed.due) == ((1, 2), (), ())
    assert (executed.ends, executed.num_accepted) == (False, 0)
    assert (executed.is_read, executed.is_stale) == (True, False)
    assert model.requests[0].began
    assert model.requests[0].tokens == [1, 2, 3]


def test_the_last_token_of_a_prompt_samples_the_first_new_one() -> None:
    model = small_model()
    submit(model, 1, 2, 3)
    executed = step(model, 0, 3)
    assert (executed.sampled, executed.due, executed.ends) == ((5,), (5,), False)
    assert model.requests[0].tokens == [1, 2, 3, 5]


def test_what_was_sampled_is_computed_next() -> None:
    model = small_model()
    submit(model, 1, 2)
    step(model, 0, 2, token=5)
    assert step(model, 2, 1, token=6).tokens == (1, 2, 5)


def test_a_request_ends_at_its_limit() -> None:
    model = small_model()
    submit(model, 1, most=1)
    executed = step(model, 0, 1)
    assert executed.ends
    assert model.requests[0].has_ended
    assert not model.live
    assert model.is_idle


def test_a_request_ends_with_the_stop_token_which_its_user_is_given() -> None:
    model = small_model()
    submit(model, 1)
    executed = step(model, 0, 1, token=STOP_TOKEN)
    assert (executed.due, executed.ends) == ((STOP_TOKEN,), True)


def test_an_engine_is_idle_once_every_step_and_transfer_is_over() -> None:
    model = small_model(steps_in_flight=2)
    assert model.is_idle
    transfer = Transfer(1, is_load=False, waits=False, blocks=(1,), places=(0,))
    model.planned(EnginePlan(transfers=(transfer,)))
    assert not model.is_idle
    model.execute(AnswerStep(1, 0, 0))
    assert list(model.transfers) == [1]
    assert not model.is_idle
    model.transfers.clear()
    assert model.is_idle


def test_a_transfer_that_the_step_waits_for_is_never_in_flight() -> None:
    model = small_model()
    transfer = Transfer(1, is_load=True, waits=True, blocks=(1,), places=(0,))
    model.planned(EnginePlan(transfers=(transfer,)))
    assert not model.transfers


# Drafts.


def with_drafts(tokens: int = 3, most: int = 12) -> EngineModel:
    """Request 0 has computed its prompt and has 2 drafts."""
    model = small_model(draft_tokens=2)
    submit(model, *range(1, tokens + 1), most=most)
    step(model, 0, tokens)
    assert len(model.requests[0].drafts) == 2
    return model


def test_drafts_follow_from_the_last_token_and_the_length() -> None:
    request = with_drafts().requests[0]
    assert request.drafts == EngineModel.drafts_after(request, (), 2)
    assert request.tokens == [1, 2, 3, 5]
    assert request.drafts == (3, 1)  # 5 + 4 tokens
    assert EngineModel.drafts_after(request, (6,), 2) == (2, 3)  # 6 + 5 tokens
    assert EngineModel.drafts_after(request, (6,), 0) == ()


def test_some_drafts_stop_their_request() -> None:
    request = with_drafts().requests[0]
    drafts = [EngineModel.drafts_after(request, (last,), 4) for last in range(7)]
    assert sum(STOP_TOKEN in some for some in drafts) == 4


def test_nothing_is_due_behind_a_draft_that_stops_its_request() -> None:
    model = with_drafts(3)
    request = model.requests[0]
    request.drafts = (1, STOP_TOKEN)
    model.planned(EnginePlan((PlannedPart(0, 3, 3, 2, ((0, 1),)),)))
    _, (executed,) = model.execute(AnswerStep(5, 2, 0))
    assert executed.sampled == (1, STOP_TOKEN, 5)
    assert (executed.due, executed.ends) == ((1, STOP_TOKEN), True)


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_drafts_that_are_right_are_sampled_before_the_token(accepted: int) -> None:
    model = with_drafts()
    drafts = model.requests[0].drafts
    executed = step(model, 3, 3, drafts=2, accepted=accepted)
    assert executed.num_accepted == accepted
    assert executed.sampled == (*drafts[:accepted], 5)
    assert executed.tokens == (1, 2, 3, 5, *drafts)


def test_no_more_drafts_are_accepted_than_were_tried() -> None:
    executed = step(with_drafts(), 3, 2, drafts=1, accepted=9)
    assert (executed.num_accepted, len(executed.sampled)) == (1, 2)


def test_drafts_beyond_the_limit_are_not_given_to_the_user() -> None:
    model = with_drafts(most=3)
    executed = step(model, 3, 3, drafts=2, accepted=2)
    assert len(executed.sampled) == 3
    assert executed.due == executed.sampled[:2]
    assert executed.ends


def test_a_draft_that_nobody_gave_is_an_unknown_token() -> None:
    model = small_model(draft_tokens=2)
    submit(model, 1, 2)
    executed = step(model, 0, 4, drafts=2, accepted=2)
    assert executed.tokens[:2] == (1, 2)
    assert len(set(executed.tokens[2:])) == 2
    assert max(executed.tokens[2:]) < -1  # what is computed over wrong KV stands as -1
    assert executed.sampled == (5,)


# Several steps in flight.


def test_a_second_step_computes_what_the_first_will_sample() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    assert model.num_tokens_assumed(model.requests[0]) == 3
    plan(model, 2, 1, 0)
    assert answer(model, 0).due == (5,)
    second = answer(model, 0)
    assert (second.tokens, second.due) == ((1, 2, 5), (5,))


def test_a_step_behind_the_last_token_samples_for_nobody() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2, most=1)
    plan(model, 0, 2, 0)
    plan(model, 2, 1, 0)
    assert answer(model, 0).ends
    second = answer(model, 0)
    assert second.sampled
    assert (second.due, second.ends, second.is_read) == ((), False, False)


def test_a_request_that_is_cancelled_in_flight_is_due_nothing() -> None:
    model = small_model()
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.end(model.requests[0])
    executed = answer(model, 0)
    assert (executed.sampled, executed.due, executed.is_read) == ((5,), (), False)
    assert not model.requests[0].drafts


# Preemption.


def test_a_preempted_request_is_counted_with_what_its_user_has() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.planned(EnginePlan(preempted=(0,)))
    assert model.requests[0].num_preempted == 1
    assert model.num_tokens_assumed(model.requests[0]) == 2


def test_what_a_step_in_flight_samples_for_a_preempted_request_is_due_all_the_same() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.planned(EnginePlan(preempted=(0,)))
    planned, (executed,) = model.execute(AnswerStep(5, 0, 0))
    assert planned.preempted == {0}
    assert executed.due == (5,)


def test_an_output_that_was_dropped_is_sampled_again() -> None:
    model = small_model(steps_in_flight=2, stale_outputs="may-drop")
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.planned(EnginePlan(preempted=(0,)))
    _, (executed,) = model.execute(AnswerStep(5, 0, 0))
    model.deliver(executed, (), 0)
    model.execute(AnswerStep(5, 0, 0))
    assert model.requests[0].tokens == [1, 2]
    again = step(model, 0, 2, token=6)
    assert (again.tokens, again.due) == ((1, 2), (6,))


def test_a_run_after_two_stale_steps_begins_from_what_its_user_has() -> None:
    model = small_model(steps_in_flight=3, stale_outputs="may-drop")
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    plan(model, 2, 1, 0)
    model.planned(EnginePlan(preempted=(0,)))
    for expected in ((1, 2), (1, 2, 5)):
        _, (executed,) = model.execute(AnswerStep(5, 0, 0))
        assert executed.tokens == expected
        model.deliver(executed, (), 0)
    model.execute(AnswerStep(5, 0, 0))
    again = step(model, 0, 2, token=6)
    assert (again.first, again.tokens, again.due) == (0, (1, 2), (6,))


def test_stale_steps_of_two_runs_go_on_each_from_its_own() -> None:
    model = small_model(steps_in_flight=4, stale_outputs="may-drop")
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.planned(EnginePlan((PlannedPart(0, 0, 2, 0, ((1, 2, 3, 4),)),), preempted=(0,)))
    plan(model, 2, 1, 0)
    model.planned(EnginePlan(preempted=(0,)))
    seen = []
    for token in (5, 6, 7):
        _, (executed,) = model.execute(AnswerStep(token, 0, 0))
        seen.append(executed.tokens)
        model.deliver(executed, (), 0)
    assert seen == [(1, 2), (1, 2), (1, 2, 6)]


def test_a_step_behind_a_cancel_computes_what_the_step_before_it_has_sampled() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    plan(model, 2, 1, 0)
    model.end(model.requests[0])
    for expected in ((0, (1, 2)), (2, (1, 2, 5))):
        _, (executed,) = model.execute(AnswerStep(5, 0, 0))
        assert (executed.first, executed.tokens) == expected
        model.deliver(executed, (), 0)


def test_the_last_output_that_was_dropped_ends_nothing() -> None:
    model = small_model(steps_in_flight=2, stale_outputs="may-drop")
    submit(model, 1, 2, most=1)
    plan(model, 0, 2, 0)
    model.planned(EnginePlan(preempted=(0,)))
    _, (executed,) = model.execute(AnswerStep(5, 0, 0))
    assert executed.ends
    model.deliver(executed, (), 0)
    assert 0 in model.live
    model.execute(AnswerStep(5, 0, 0))
    assert step(model, 0, 2).ends


def test_what_follows_a_step_begins_when_it_is_computed() -> None:
    model = EngineModel(4, 4, EngineProfile())
    store = Transfer(3, is_load=False, waits=False, blocks=(1,), places=(0,), follows=True)
    step = model.planned(EnginePlan(transfers=(store,)))
    assert (list(model.transfers), model.transfer_ids()) == ([], {3})
    model.execute(AnswerStep(1, 0, 0))
    model.computed(step)
    assert list(model.transfers) == [3]


def test_what_the_step_waits_for_does_not_begin_when_it_is_computed() -> None:
    model = small_model()
    begun = Transfer(3, is_load=False, waits=False, blocks=(1,), places=(0,))
    follows = Transfer(4, is_load=False, waits=False, blocks=(2,), places=(1,), follows=True)
    step = model.planned(EnginePlan(transfers=(begun, follows), flushes=(4,)))
    model.transfers.clear()  # it arrived
    model.execute(AnswerStep(1, 0, 0))
    model.computed(step)
    assert not model.transfers


@pytest.mark.parametrize(("order", "places"), [("any", [0, 1, 2]), ("fifo", [0, 1])])
def test_transfers_end_in_the_order_that_the_profile_says(order: str, places: list[int]) -> None:
    model = small_model(transfer_order=order)
    kinds = (True, False, True)
    transfers = tuple(
        Transfer(number, is_load, waits=False, blocks=(1,), places=(0,))
        for number, is_load in enumerate(kinds)
    )
    model.planned(EnginePlan(transfers=transfers))
    assert model.places_to_arrive() == places


# Who is gone, and what is void.


def test_what_was_in_flight_at_a_cancel_comes_late() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.cancel(model.requests[0])
    _, (executed,) = model.execute(AnswerStep(5, 0, 0))
    assert executed.due == ()
    assert model.late(executed) == (5,)


def test_nothing_comes_late_for_a_request_that_ended_by_itself() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.end(model.requests[0])
    _, (executed,) = model.execute(AnswerStep(5, 0, 0))
    assert executed.sampled
    assert model.late(executed) == ()


def test_a_request_that_has_ended_may_be_ended_again() -> None:
    model = small_model()
    submit(model, 1)
    model.end(model.requests[0])
    model.end(model.requests[0])
    assert model.is_idle


def test_a_step_of_a_preempted_request_that_samples_nothing_is_stale() -> None:
    model = small_model(steps_in_flight=2)
    submit(model, 1, 2, 3)
    plan(model, 0, 2, 0)
    model.planned(EnginePlan(preempted=(0,)))
    _, (executed,) = model.execute(AnswerStep(5, 0, 0))
    assert (executed.sampled, executed.is_stale) == ((), True)


def test_each_preemption_is_counted() -> None:
    model = small_model()
    submit(model, 1, 2)
    for _ in range(2):
        model.planned(EnginePlan(preempted=(0,)))
    assert model.requests[0].num_preempted == 2


@pytest.mark.parametrize(("row", "may_drop"), [("delivered", set()), ("may-drop", {0})])
def test_the_profile_says_whether_stale_outputs_may_be_dropped(
    row: str, may_drop: set[int]
) -> None:
    model = small_model(steps_in_flight=2, stale_outputs=row)
    submit(model, 1, 2)
    plan(model, 0, 2, 0)
    model.planned(EnginePlan(preempted=(0,)))
    assert model.in_flight[0].may_drop == may_drop


def two_requests(reset: str) -> EngineModel:
    """A step of request 0 is in flight; request 1 waits."""
    model = small_model(steps_in_flight=2, reset=reset)
    submit(model, 1, 2)
    submit(model, 3, request_id=1)
    plan(model, 0, 2, 0)
    return model


def test_what_a_step_in_flight_writes_counts_as_nothing_after_a_reset() -> None:
    model = two_requests("idle")
    assert not model.in_flight[0].is_void
    model.reset()
    assert model.in_flight[0].is_void
    assert model.in_flight[0].preempted == set()


def test_a_reset_that_preempts_takes_the_blocks_of_those_that_have_begun() -> None:
    model = two_requests("preempts")
    model.reset()
    assert (model.in_flight[0].preempted, model.in_flight[0].may_drop) == ({0}, {0})
    assert [model.requests[number].num_preempted for number in (0, 1)] == [1, 0]


def test_what_is_computed_over_wrong_kv_is_due_to_nobody() -> None:
    model = small_model()
    submit(model, 1, 2, 3, 4, most=1)
    plan(model, 0, 4, 0)
    _, (executed,) = model.execute(AnswerStep(5, 0, 0))
    assert executed.ends
    spoilt = executed.spoilt(1)
    assert spoilt.tokens == (1, -1, 3, 4)
    assert (spoilt.due, spoilt.ends, spoilt.is_read, spoilt.is_spoilt) == ((), False, False, True)
    assert (spoilt.part, spoilt.sampled) == (executed.part, executed.sampled)


# Bounds and books that other levels read.


def test_an_image_is_no_longer_than_the_least_of_all_limits() -> None:
    limits = {"encoder_cache_tokens": 9, "max_encoder_tokens": 8}
    assert small_model(image_tokens=4, **limits).most_image_tokens == 4
    assert small_model(image_tokens=12, **limits).most_image_tokens == 8


def test_an_engine_with_a_request_or_a_step_alone_is_not_idle() -> None:
    model = small_model()
    assert model.is_idle
    submit(model, 1, 2)
    assert not model.is_idle
    model.cancel(model.requests[0])
    assert model.is_idle
    model.planned(EnginePlan())
    assert not model.is_idle


def test_what_was_encoded_stays_until_it_is_forgotten() -> None:
    model = small_model(image_tokens=4, encoder_cache_tokens=9)
    model.planned(EnginePlan(encodes=("a", "b")))
    model.planned(EnginePlan(encodes=("c",), forgets=("a",)))
    assert model.encoded == {"b", "c"}


def test_a_chunk_that_samples_nothing_begins_where_it_was_planned() -> None:
    model = small_model()
    submit(model, 1, 2, 3, 4, 5, 6)
    plan(model, 0, 2, 0)
    model.execute(AnswerStep(5, 0, 0))
    plan(model, 2, 2, 0)
    _, (executed,) = model.execute(AnswerStep(5, 0, 0))
    assert (executed.first, executed.sampled) == (2, ())


def test_drafts_are_rejected_past_a_step_that_has_nothing_of_their_request() -> None:
    model = model_in_flight()
    plan(model, 4, 3, 2)
    model.planned(EnginePlan())
    assert answer(model, 0).num_accepted == 0
    assert model.num_tokens_assumed(model.requests[0]) == 6
