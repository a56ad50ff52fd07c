"""The small engine: order, chunks, preemption, drafts, steps in flight, and the host."""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_session import engine_capabilities_of
from poolproof.impl.engine import Engine
from poolproof.impl.kv_cache_group import FullAttention, SlidingWindow
from poolproof.targets.impl_engine import impl_engine_layouts
from poolproof.targets.target import EngineLayout

SIZE = 4
LAYOUTS = impl_engine_layouts()


def engine(num_blocks: int = 9, **arguments: Any) -> Engine:
    return Engine(num_blocks, SIZE, **arguments)


def computed(plan: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Of each part of a plan its request, first position and count."""
    return [(part["request"], part["first"], part["count"]) for part in plan["compute"]]


def run(subject: Engine, token: int = 7, drafts: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Plan and answer a step; what users got, without whether they ended."""
    parts = computed(subject.plan())
    outputs = subject.answer(
        {number: [token] for number, *_ in parts}, {number: list(drafts) for number, *_ in parts}
    )
    return [(number, *tokens) for number, tokens, _ in outputs]


def drain(subject: Engine) -> int:
    """Run steps until everybody is served; how many there were."""
    for number in range(200):
        if not subject.unfinished():
            return number
        run(subject)
    raise AssertionError("somebody is never served")


# The order of requests.


def test_first_come_is_first_served() -> None:
    subject = engine(max_running=1)
    subject.submit(4, [1, 2], max_new_tokens=1, priority=9)
    subject.submit(3, [1, 2], max_new_tokens=1, priority=0)
    assert computed(subject.plan()) == [(4, 0, 2)]


def test_the_smaller_priority_goes_first() -> None:
    subject = engine(max_running=1, policy="priority")
    subject.submit(4, [1, 2], max_new_tokens=1, priority=9)
    subject.submit(3, [1, 2], max_new_tokens=1, priority=0)
    assert computed(subject.plan()) == [(3, 0, 2)]


def test_the_last_one_gives_way() -> None:
    subject = engine(num_blocks=4)
    subject.submit(0, [1] * 4, max_new_tokens=8)
    subject.submit(1, [2] * 7, max_new_tokens=2)
    run(subject)
    plan = subject.plan()
    assert (computed(plan), plan["preempted"]) == ([(0, 4, 1)], [1])


def test_a_preempted_request_computes_the_tokens_that_it_was_given_as_well() -> None:
    subject = engine(num_blocks=4, enable_caching=False)
    subject.submit(0, [1] * 4, max_new_tokens=2)
    subject.submit(1, [2] * 7, max_new_tokens=2)
    run(subject)
    run(subject)
    assert computed(subject.plan()) == [(1, 0, 8)]


# What a step computes.


def test_a_prompt_is_cut_to_the_budget_and_samples_behind_its_last_chunk() -> None:
    subject = engine(max_batch_tokens=3)
    subject.submit(0, [1, 2, 3, 4], max_new_tokens=1)
    assert computed(subject.plan()) == [(0, 0, 3)]
    assert subject.answer({}, {}) == []
    assert computed(subject.plan()) == [(0, 3, 1)]
    assert subject.answer({0: [9]}, {}) == [(0, [9], True)]


def test_what_a_step_in_flight_computes_is_not_found() -> None:
    subject = engine()
    for number in (0, 1):
        subject.submit(number, [1] * 5, max_new_tokens=2)
    assert computed(subject.plan()) == [(0, 0, 5), (1, 0, 5)]


def test_what_was_computed_is_found() -> None:
    subject = engine()
    subject.submit(0, [1] * 5, max_new_tokens=2)
    run(subject)
    subject.submit(1, [1] * 5, max_new_tokens=2)
    assert computed(subject.plan()) == [(0, 5, 1), (1, 4, 1)]


def test_a_request_ends_at_the_stop_token_and_gives_everything_back() -> None:
    subject = engine()
    subject.submit(0, [1] * 5, max_new_tokens=9)
    subject.plan()
    assert subject.answer({0: [0]}, {}) == [(0, [0], True)]
    assert (subject.num_free(), subject.unfinished()) == (8, [])


# Drafts.


def test_rejected_drafts_are_computed_anew() -> None:
    subject = engine(draft_tokens=2)
    subject.submit(0, [1] * 3, max_new_tokens=9)
    run(subject, drafts=(5, 6))
    assert computed(subject.plan()) == [(0, 3, 3)]
    assert subject.answer({0: [5, 8]}, {0: []}) == [(0, [5, 8], False)]
    assert computed(subject.plan()) == [(0, 5, 1)]


def test_drafts_leave_room_for_the_token_behind_them() -> None:
    subject = engine(draft_tokens=2)
    subject.submit(0, [1] * 3, max_new_tokens=3)
    run(subject, drafts=(5, 6))
    assert computed(subject.plan()) == [(0, 3, 2)]


# Steps in flight.


def test_a_step_is_planned_behind_a_token_that_nobody_knows_yet() -> None:
    subject = engine()
    subject.submit(0, [1] * 3, max_new_tokens=9)
    assert computed(subject.plan()) == [(0, 0, 3)]
    assert computed(subject.plan()) == [(0, 3, 1)]
    assert subject.answer({0: [5]}, {}) == [(0, [5], False)]
    assert subject.answer({0: [6]}, {}) == [(0, [6], False)]


def test_a_request_that_has_ended_gets_nothing_from_its_step_in_flight() -> None:
    subject = engine()
    subject.submit(0, [1] * 3, max_new_tokens=9)
    subject.plan()
    subject.plan()
    subject.cancel(0)
    assert subject.answer({0: [5]}, {}) == []
    assert subject.num_free() == 8


def test_a_preempted_request_is_given_its_token_and_waits_for_it() -> None:
    subject = engine(num_blocks=4)
    subject.submit(0, [1] * 4, max_new_tokens=8)
    subject.submit(1, [2] * 7, max_new_tokens=2)
    subject.plan()
    assert subject.plan()["preempted"] == [1]
    assert subject.answer({0: [5], 1: [6]}, {}) == [(0, [5], False), (1, [6], False)]


# The host.


def begun(subject: Engine) -> list[tuple[int, str]]:
    return [(transfer["id"], transfer["kind"]) for transfer in subject.plan()["transfers"]]


def kept_on_host(num_blocks: int = 4) -> Engine:
    """An engine of which the host has one block of a prompt, and the device none any more."""
    subject = engine(num_blocks=num_blocks, host_places=1)
    subject.submit(0, [1] * 5, max_new_tokens=1)
    run(subject)
    assert begun(subject) == [(1, "store")]
    subject.answer({}, {})
    subject.arrived(1, True)
    assert subject.manager.reset_prefix_cache()
    return subject


def test_a_block_that_is_stored_is_not_free_until_the_transfer_ends() -> None:
    subject = engine(num_blocks=4, host_places=1)
    subject.submit(0, [1] * 5, max_new_tokens=1)
    run(subject)
    assert subject.num_free() == 2
    assert begun(subject) == [(1, "store")]
    subject.arrived(1, False)
    assert subject.num_free() == 3


def test_a_request_is_computed_behind_what_was_loaded() -> None:
    subject = kept_on_host()
    subject.submit(1, [1] * 5, max_new_tokens=1)
    plan = subject.plan()
    assert computed(plan) == []
    assert [transfer["kind"] for transfer in plan["transfers"]] == ["load"]
    subject.arrived(plan["transfers"][0]["id"], True)
    subject.answer({}, {})
    assert computed(subject.plan()) == [(1, 4, 1)]


def test_a_request_whose_load_is_lost_is_computed_from_the_start() -> None:
    subject = kept_on_host()
    subject.submit(1, [1] * 5, max_new_tokens=1)
    (load,) = subject.plan()["transfers"]
    subject.arrived(load["id"], False)
    subject.answer({}, {})
    assert computed(subject.plan()) == [(1, 0, 5)]


def test_a_request_that_is_cancelled_keeps_its_blocks_until_its_load_has_ended() -> None:
    subject = kept_on_host()
    subject.submit(1, [1] * 5, max_new_tokens=1)
    (load,) = subject.plan()["transfers"]
    subject.cancel(1)
    assert subject.num_free() == 2
    subject.arrived(load["id"], True)
    assert subject.num_free() == 3


def test_a_load_waits_for_the_steps_that_may_still_write_into_its_blocks() -> None:
    subject = kept_on_host()
    subject.submit(1, [2] * 2, max_new_tokens=4)
    subject.plan()
    subject.submit(2, [1] * 5, max_new_tokens=1)
    assert begun(subject) == []
    subject.answer({1: [3]}, {})
    assert begun(subject) == [(2, "load")]


def test_reset_forgets_what_the_host_has() -> None:
    subject = kept_on_host()
    assert subject.reset()
    subject.submit(1, [1] * 5, max_new_tokens=1)
    assert computed(subject.plan()) == [(1, 0, 5)]


def test_reset_is_refused_while_a_request_has_blocks() -> None:
    subject = engine()
    subject.submit(0, [1] * 5, max_new_tokens=2)
    run(subject)
    assert not subject.reset()


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"policy": "lifo"}, "policy must be one of fcfs, priority, not 'lifo'"),
        ({"max_running": 0}, "max_running must be an int of at least 1"),
        ({"host_places": 2, "groups": (SlidingWindow(window=3),)}, "one group of full attention"),
    ],
)
def test_arguments_out_of_bounds_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        engine(**arguments)


@pytest.mark.parametrize(
    ("request_id", "tokens", "most", "sentence"),
    [
        (0, [1], 1, "request 0 is here already"),
        (1, [], 1, "has a token at least"),
        (1, [1] * 30, 9, "may come to have 39 tokens; the blocks hold 33"),
    ],
)
def test_requests_that_can_never_be_served_are_refused(
    request_id: int, tokens: list[int], most: int, sentence: str
) -> None:
    subject = engine()
    subject.submit(0, [1], max_new_tokens=1)
    with pytest.raises(ValueError, match=sentence):
        subject.submit(request_id, tokens, max_new_tokens=most)


def test_an_unknown_extra_key_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody knows the extra key 'mood'"):
        engine().submit(0, [1], max_new_tokens=1, extra_keys=[("mood", "x", 0, None)])


def test_the_longest_request_is_served_in_every_group() -> None:
    subject = engine(groups=(FullAttention(), SlidingWindow(window=5)))
    subject.submit(0, [1] * 10, max_new_tokens=subject.max_request_tokens - 10)
    assert drain(subject) == subject.max_request_tokens - 10


# Runs of the grammar.


@pytest.mark.some(2)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_no_run_finds_anything_and_everything_is_reached(layout: EngineLayout) -> None:
    campaign = EngineCampaign("impl-engine", layout.make, layout.profile, layout.block_size)
    facts: set[str] = set()
    for number in range(40):
        result = campaign.run(number)
        assert result.trace is None, result.trace
        facts |= result.facts
    required = required_engine_facts(
        layout.profile,
        engine_capabilities_of(layout.make(4, True)),
        layout.block_size,
    )
    assert set(required) <= facts
