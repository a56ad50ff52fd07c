"""The small engine: order, chunks, preemption, drafts, steps in flight, and the host."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest

from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_session import engine_capabilities_of
from poolproof.impl.engine import Engine
from poolproof.impl.kv_cache_group import (
    ChunkedLocal,
    FullAttention,
    RecurrentState,
    SlidingWindow,
)
from poolproof.impl.offloading import RankNotices, host_key
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


def test_room_is_made_for_as_many_drafts_as_a_step_in_flight_may_bring() -> None:
    subject = engine(draft_tokens=2)
    subject.submit(0, [1] * 3, max_new_tokens=9)
    subject.plan()
    assert computed(subject.plan()) == [(0, 3, 3)]


# Steps in flight.


def test_nothing_is_computed_behind_a_token_that_ends_a_request() -> None:
    subject = engine(draft_tokens=2)
    subject.submit(0, [1] * 3, max_new_tokens=1)
    assert computed(subject.plan()) == [(0, 0, 3)]
    assert computed(subject.plan()) == []


def test_a_request_that_has_nothing_to_compute_does_not_hold_up_the_next() -> None:
    subject = engine()
    subject.submit(0, [1] * 3, max_new_tokens=1)
    subject.submit(1, [2] * 3, max_new_tokens=5)
    subject.plan()
    assert computed(subject.plan()) == [(1, 3, 1)]


def test_a_user_gets_no_more_than_was_asked_for() -> None:
    subject = engine(draft_tokens=2)
    subject.submit(0, [1] * 3, max_new_tokens=3)
    run(subject, drafts=(5, 6))
    subject.plan()
    assert subject.answer({0: [5, 6, 7]}, {}) == [(0, [5, 6], True)]


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


def being_loaded_on_two_ranks() -> tuple[Engine, list[int]]:
    """The host has one block of a prompt, which two ranks load for a request; and both loads."""
    subject = engine(num_blocks=4, host_places=1, num_ranks=2)
    subject.submit(0, [1] * 5, max_new_tokens=1)
    run(subject)
    for number, _ in begun(subject):
        subject.arrived(number, True)
    subject.answer({}, {})
    assert subject.manager.reset_prefix_cache()
    subject.submit(1, [1] * 5, max_new_tokens=1)
    loads = begun(subject)
    assert [kind for _, kind in loads] == ["load", "load"]
    subject.answer({}, {})
    return subject, [number for number, _ in loads]


def test_each_rank_moves_its_part() -> None:
    subject = engine(num_blocks=4, host_places=1, num_ranks=3)
    subject.submit(0, [1] * 5, max_new_tokens=1)
    run(subject)
    stores = subject.plan()["transfers"]
    assert [store["rank"] for store in stores] == [0, 1, 2]
    assert len({store["id"] for store in stores}) == 3


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_request_is_computed_once_every_rank_has_loaded(order: tuple[int, int]) -> None:
    subject, loads = being_loaded_on_two_ranks()
    subject.arrived(loads[order[0]], True)
    assert computed(subject.plan()) == []
    subject.answer({}, {})
    subject.arrived(loads[order[1]], True)
    assert computed(subject.plan()) == [(1, 4, 1)]


@pytest.mark.parametrize("failed", range(2))
def test_what_one_rank_could_not_load_is_computed(failed: int) -> None:
    subject, loads = being_loaded_on_two_ranks()
    for rank, number in enumerate(loads):
        subject.arrived(number, rank != failed)
    assert computed(subject.plan()) == [(1, 0, 5)]


def test_what_is_told_again_is_not_that_of_another_rank() -> None:
    subject, loads = being_loaded_on_two_ranks()
    for _ in range(2):
        subject.arrived(loads[0], True)
    assert computed(subject.plan()) == []
    subject.answer({}, {})
    subject.arrived(loads[1], True)
    subject.arrived(loads[1], True)
    assert computed(subject.plan()) == [(1, 4, 1)]


def test_the_number_of_ranks_is_checked() -> None:
    with pytest.raises(ValueError, match=r"^num_ranks"):
        engine(num_blocks=4, num_ranks=0)


def test_what_failed_on_a_rank_is_known_until_the_last_one_has_ended() -> None:
    notices = RankNotices(2)
    notices.of_ranks([{"id": 5}])
    assert notices.missing_of(5) == ((0, 1), False)
    assert notices.heard(10, False) is None
    assert notices.missing_of(5) == ((1,), True)
    assert notices.heard(11, True) == (5, False)
    assert notices.missing_of(5) == ((), False)


def test_the_first_group_is_kept_under_the_hash_alone() -> None:
    assert [host_key(group, b"hash") for group in range(2)] == [b"hash", b"hash\x01"]


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
        ({"max_batch_tokens": 0}, "^max_batch_tokens must be an int of at least 1"),
        ({"draft_tokens": -1}, "^draft_tokens must be an int of at least 0"),
        ({"max_adapters": -1}, "^max_adapters must be an int of at least 0"),
        ({"encoder_cache_tokens": -1}, "^encoder_cache_tokens must be an int of at least 0"),
        ({"host_places": -1}, "^host_places must be an int of at least 0"),
        ({"host_places": 2, "groups": (SlidingWindow(window=3),)}, "^host_places are for groups"),
    ],
)
def test_arguments_out_of_bounds_are_refused(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        engine(**arguments)


def test_a_step_may_be_of_one_position() -> None:
    assert engine(max_batch_tokens=1).max_batch_tokens == 1


def test_what_is_not_said_of_an_engine() -> None:
    subject = engine()
    assert (subject.max_batch_tokens, subject.max_running) == (64, 8)


@pytest.mark.parametrize(
    ("request_id", "tokens", "most", "sentence"),
    [
        (0, [1], 1, "request 0 is here already"),
        (1, [], 1, "^submit: a request has a token at least"),
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


# Images: what workers have to encode first.


def image(name: str, first: int, end: int) -> tuple[str, str, int, int]:
    return ("image", name, first, end)


def with_images(*images: tuple[str, str, int, int], **arguments: Any) -> Engine:
    """An engine with a prompt of ten tokens that has these images."""
    subject = engine(**{"encoder_cache_tokens": 8, **arguments})
    subject.submit(0, [1] * 10, max_new_tokens=2, extra_keys=images)
    return subject


def test_an_image_is_encoded_in_the_step_that_computes_its_first_position() -> None:
    subject = with_images(image("a", 2, 5), max_batch_tokens=2)
    plans = [subject.plan() for _ in range(3)]
    assert [computed(plan) for plan in plans] == [[(0, 0, 2)], [(0, 2, 2)], [(0, 4, 2)]]
    assert [plan["encodes"] for plan in plans] == [[], ["a"], []]


def test_a_step_ends_before_an_image_that_does_not_fit_beside_the_first_one() -> None:
    subject = with_images(image("a", 0, 5), image("b", 6, 10))
    plan = subject.plan()
    assert (computed(plan), plan["encodes"]) == ([(0, 0, 6)], ["a"])


def test_an_image_that_is_computed_makes_room_for_the_next() -> None:
    subject = with_images(image("a", 0, 5), image("b", 6, 10))
    subject.plan()
    subject.answer({}, {})
    plan = subject.plan()
    assert (computed(plan), plan["encodes"], plan["forgets"]) == ([(0, 6, 4)], ["b"], ["a"])


def test_an_image_is_let_go_once_its_last_position_is_computed() -> None:
    subject = with_images(image("a", 0, 6), max_batch_tokens=6)
    subject.plan()
    subject.answer({}, {})
    subject.max_batch_tokens = 9
    subject.submit(1, [1] * 4, max_new_tokens=1, extra_keys=[image("b", 0, 4)])
    assert subject.plan()["encodes"] == ["b"]


def test_an_image_is_kept_until_all_of_it_is_computed() -> None:
    subject = with_images(image("a", 0, 7), max_batch_tokens=6)
    subject.plan()
    subject.answer({}, {})
    subject.submit(1, [1] * 4, max_new_tokens=1, extra_keys=[image("b", 0, 4)])
    assert computed(subject.plan()) == [(0, 6, 4)]


def test_a_step_encodes_no_more_than_it_may() -> None:
    subject = with_images(image("a", 0, 3), image("b", 4, 8), max_encoder_tokens=6)
    assert computed(subject.plan()) == [(0, 0, 4)]


def test_a_request_that_begins_with_an_image_for_which_there_is_no_room_waits() -> None:
    subject = with_images(image("a", 0, 8))
    subject.submit(1, [1] * 4, max_new_tokens=1, extra_keys=[image("b", 0, 4)])
    assert computed(subject.plan()) == [(0, 0, 10)]


def test_a_request_that_ends_lets_its_images_go() -> None:
    subject = with_images(image("a", 0, 8), max_batch_tokens=4)
    run(subject)
    subject.cancel(0)
    subject.submit(1, [1] * 4, max_new_tokens=1, extra_keys=[image("b", 0, 4)])
    assert computed(subject.plan()) == [(1, 0, 4)]


def test_nothing_is_said_of_images_without_a_cache_of_them() -> None:
    plan = with_images(image("a", 0, 8), encoder_cache_tokens=0).plan()
    assert (computed(plan), plan["encodes"], plan["forgets"]) == ([(0, 0, 10)], [], [])


# Adapters and salts: what makes keys differ, and how many may run.


def lora(name: str) -> tuple[str, tuple[str, str], int, None]:
    return ("lora", (name, f"/{name}"), 0, None)


def admitted(subject: Engine, *adapters: str | None) -> list[int]:
    """Which of these requests, one for each adapter, the next step computes."""
    for number, name in enumerate(adapters):
        subject.submit(
            number, [number + 1], max_new_tokens=2, extra_keys=[lora(name)] if name else []
        )
    return [number for number, *_ in computed(subject.plan())]


def test_any_number_of_adapters_runs_without_a_limit() -> None:
    assert admitted(engine(), "a", "b", None, "c") == [0, 1, 2, 3]


def test_a_request_waits_where_its_adapter_is_one_too_many() -> None:
    assert admitted(engine(max_adapters=1), "a", None, "a", "b", "a") == [0, 1, 2]


def test_as_many_adapters_run_as_workers_hold() -> None:
    assert admitted(engine(max_adapters=2), "a", "b", "c") == [0, 1]


@pytest.mark.parametrize(
    "extra_key", [("salt", "mine", 0, None), lora("a"), image("a", 0, 2)], ids=lambda key: key[0]
)
def test_a_prompt_with_another_key_is_not_found(extra_key: tuple[Any, ...]) -> None:
    subject = engine()
    subject.submit(0, [1] * 5, max_new_tokens=2, extra_keys=[extra_key])
    run(subject)
    subject.submit(1, [1] * 5, max_new_tokens=1)
    subject.submit(2, [1] * 5, max_new_tokens=1, extra_keys=[extra_key])
    assert computed(subject.plan()) == [(0, 5, 1), (1, 0, 5), (2, 4, 1)]


def test_an_image_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody knows the extra key 'image'"):
        engine().submit(0, [1], max_new_tokens=1, extra_keys=[("image", "x", 0, None)])


# Recurrent states.

HYBRID = (FullAttention(), RecurrentState())


def test_where_states_are_left_at_steps_ends_alone_a_step_ends_with_their_block() -> None:
    subject = engine(groups=HYBRID, states_in_between=False)
    subject.submit(0, [1] * 10, max_new_tokens=2)
    assert [computed(subject.plan()) for _ in range(3)] == [[(0, 0, 4)], [(0, 4, 4)], [(0, 8, 2)]]


def test_a_step_that_began_inside_a_block_of_states_ends_with_it() -> None:
    subject = engine(groups=HYBRID, states_in_between=False, max_batch_tokens=3)
    subject.submit(0, [1] * 10, max_new_tokens=2)
    assert [computed(subject.plan()) for _ in range(3)] == [[(0, 0, 3)], [(0, 3, 1)], [(0, 4, 3)]]


def test_a_step_that_samples_nothing_leaves_the_state_behind_its_last_position() -> None:
    subject = engine(groups=HYBRID, tells_states=True, max_batch_tokens=6)
    subject.submit(0, [1] * 9, max_new_tokens=2)
    subject.plan()
    (first,) = subject.states({})[0]
    subject.answer({}, {})
    subject.plan()
    (second,) = subject.states({0: 1})[0]
    assert second["starts"] == dict(first["leaves"])[6]


def test_else_a_step_passes_the_ends_of_blocks() -> None:
    subject = engine(groups=HYBRID, tells_states=True)
    subject.submit(0, [1] * 10, max_new_tokens=2)
    plan = subject.plan()
    (table,) = (part["blocks"][1] for part in plan["compute"])
    assert subject.states({0: 1}) == {
        0: [{"group": 1, "starts": None, "leaves": [(4, table[0]), (8, table[1]), (10, table[2])]}]
    }


def test_a_step_starts_from_the_state_behind_the_drafts_that_were_right() -> None:
    groups = (FullAttention(), RecurrentState(num_speculative_blocks=3))
    subject = engine(20, groups=groups, draft_tokens=2, tells_states=True)
    subject.submit(0, [1] * 4, max_new_tokens=9)
    subject.plan()
    subject.states({0: 1})
    subject.answer({0: [5]}, {0: [6, 7]})
    subject.plan()
    (first,) = subject.states({0: 2})[0]  # Of the two drafts one was right.
    subject.answer({0: [6, 8]}, {0: []})
    subject.plan()
    (second,) = subject.states({0: 1})[0]
    assert second["starts"] == dict(first["leaves"])[6]


def test_a_hit_starts_from_the_state_that_its_key_promises() -> None:
    subject = engine(groups=HYBRID, tells_states=True)
    subject.submit(0, [1] * 5, max_new_tokens=1)
    subject.plan()
    ((_, left), *_) = subject.states({0: 1})[0][0]["leaves"]
    subject.answer({0: [5]}, {})
    subject.submit(1, [1] * 5, max_new_tokens=1)
    assert computed(subject.plan()) == [(1, 4, 1)]
    assert subject.states({1: 1})[1][0]["starts"] == left


def test_states_of_drafts_need_places() -> None:
    sentence = "with 2 drafts a group of recurrent states needs tells_states and 3 speculative"
    for groups, is_told in [
        ((RecurrentState(num_speculative_blocks=3),), False),
        ((RecurrentState(num_speculative_blocks=2),), True),
    ]:
        with pytest.raises(ValueError, match=sentence):
            engine(groups=groups, draft_tokens=2, tells_states=is_told)


# Reset takes the blocks of those that run, where that is stated.


def test_a_reset_that_preempts_has_requests_computed_anew() -> None:
    subject = engine(reset_preempts=True)
    subject.submit(0, [1] * 5, max_new_tokens=3)
    subject.submit(1, [2] * 5, max_new_tokens=3)
    run(subject)
    assert subject.reset()
    assert subject.num_free() == 8
    assert computed(subject.plan()) == [(0, 0, 6), (1, 0, 6)]


def test_it_waits_for_what_is_being_stored() -> None:
    subject = engine(num_blocks=4, host_places=1, reset_preempts=True)
    subject.submit(0, [1] * 5, max_new_tokens=1)
    run(subject)
    assert not subject.reset()


def test_it_waits_for_transfers() -> None:
    subject = kept_on_host()
    subject.reset_preempts = True
    subject.submit(1, [1] * 5, max_new_tokens=1)
    (load,) = subject.plan()["transfers"]
    assert not subject.reset()
    subject.arrived(load["id"], False)
    assert subject.reset()


# A profile.

ROWS: dict[str, Any] = {
    "policy": "fcfs",
    "max_batch_tokens": 30,
    "max_running": 5,
    "draft_tokens": 0,
    "ranks": 1,
    "groups": [{"kind": "full", "block_size": 0, "window": 0}],
    "max_adapters": 0,
    "encoder_cache_tokens": 0,
    "max_encoder_tokens": 0,
    "reset": "refuses",
    "state_moves": "none",
    "states": "step-end",
}


def of_kind(kind: str, window: int = 0) -> dict[str, Any]:
    return {"groups": [{"kind": kind, "block_size": 8, "window": window}]}


def first_group(subject: Engine) -> FullAttention:
    """The only group as the manager lays it out."""
    (group,) = subject.manager._layout.groups
    return group.kind


@pytest.mark.parametrize(
    ("rows", "read", "value"),
    [
        ({}, "policy", "fcfs"),
        ({"policy": "priority"}, "policy", "priority"),
        ({}, "max_batch_tokens", 30),
        ({}, "max_running", 5),
        ({"draft_tokens": 2}, "draft_tokens", 2),
        ({"max_adapters": 3}, "max_adapters", 3),
        ({}, "encoder_cache", None),
        ({"encoder_cache_tokens": 7}, "encoder_cache.capacity", 7),
        ({"encoder_cache_tokens": 7, "max_encoder_tokens": 4}, "encoder_cache.max_per_step", 4),
        ({}, "rank_notices.num_ranks", 1),
        ({"ranks": 3}, "rank_notices.num_ranks", 3),
        ({}, "reset_preempts", False),
        ({"reset": "preempts"}, "reset_preempts", True),
        ({}, "states_in_between", False),
        ({"states": "every-block"}, "states_in_between", True),
    ],
)
def test_an_engine_keeps_to_the_rows_of_a_profile(
    rows: dict[str, Any], read: str, value: object
) -> None:
    assert attrgetter(read)(Engine.under({**ROWS, **rows}, 9, SIZE)) == value


@pytest.mark.parametrize(
    ("rows", "group"),
    [
        ({}, FullAttention()),
        (of_kind("full"), FullAttention(block_size=8)),
        (of_kind("sliding", 5), SlidingWindow(block_size=8, window=5)),
        (of_kind("chunked", 16), ChunkedLocal(block_size=8, chunk_size=16)),
        (of_kind("state"), RecurrentState(block_size=8)),
        (
            {**of_kind("state"), "state_moves": "told", "draft_tokens": 2},
            RecurrentState(block_size=8, num_speculative_blocks=3),
        ),
    ],
)
def test_a_group_is_of_the_kind_that_the_profile_states(
    rows: dict[str, Any], group: FullAttention
) -> None:
    assert first_group(Engine.under({**ROWS, **rows}, 9, SIZE)) == group


def test_an_engine_under_a_profile_caches_and_has_no_host_unless_it_is_told() -> None:
    subject = Engine.under(ROWS, 9, SIZE)
    assert (subject.manager.enable_caching, subject.offloader) == (True, None)
    subject = Engine.under(ROWS, 9, SIZE, enable_caching=False, host_places=2)
    assert (subject.manager.enable_caching, subject.offloader) == (False, None)
    assert Engine.under(ROWS, 9, SIZE, host_places=2).offloader is not None


# Runs of the grammar.


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_no_run_finds_anything(layout: EngineLayout) -> None:
    campaign = EngineCampaign("impl-engine", layout.make, layout.profile, layout.block_size)
    for number in range(5):
        assert campaign.run(number).trace is None


@pytest.mark.some(1)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_long_runs_find_nothing_and_reach_everything(layout: EngineLayout) -> None:
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


# Recurrent states on the host.


def states_on_host(prompt: list[int]) -> Engine:
    """A hybrid engine of which the host has all of a prompt, and the device nothing any more."""
    subject = engine(12, host_places=8, groups=(FullAttention(), RecurrentState()))
    subject.submit(0, prompt, max_new_tokens=1)
    run(subject)
    (store,) = subject.plan()["transfers"]
    assert (store["kind"], len(store["blocks"])) == ("store", 2 * (len(prompt) // SIZE))
    subject.answer({}, {})
    subject.arrived(store["id"], True)
    assert subject.manager.reset_prefix_cache()
    return subject


def test_a_hit_on_the_host_brings_all_of_attention_and_one_state() -> None:
    subject = states_on_host([1] * 9)
    subject.submit(1, [1] * 9, max_new_tokens=1)
    (load,) = subject.plan()["transfers"]
    attention, states = subject.manager.get_block_ids("1")
    assert load["blocks"] == [*attention[:2], states[1]]
    assert states[0] == 0


def test_a_hit_on_the_host_ends_where_there_is_a_state() -> None:
    subject = states_on_host([1] * 9)
    host = subject.offloader
    assert host is not None
    (*_, last) = (kept for key, kept in host._index.items() if key.endswith(b"\x01"))
    host._forget(last)
    subject.submit(1, [1] * 9, max_new_tokens=1)
    (load,) = subject.plan()["transfers"]
    attention, states = subject.manager.get_block_ids("1")
    assert load["blocks"] == [attention[0], states[0]]


def test_the_first_step_behind_a_load_starts_from_the_state_that_it_brought() -> None:
    subject = states_on_host([1] * 9)
    subject.submit(1, [1] * 9, max_new_tokens=1)
    (load,) = subject.plan()["transfers"]
    subject.arrived(load["id"], True)
    subject.answer({}, {})
    assert computed(subject.plan()) == [(1, 8, 1)]
    assert subject.states({1: 1})[1][0]["starts"] == load["blocks"][-1]
