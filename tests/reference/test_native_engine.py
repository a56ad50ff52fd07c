"""The plainest engine keeps to the specification under every profile, and shares nothing."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.reference.native_engine import NativePlainEngine

PROFILES: dict[str, dict[str, Any]] = {
    "plain": {},
    "null block": {"null_block": 0},
    "chunks": {"max_batch_tokens": 3, "max_running": 2},
    "async": {"steps_in_flight": 3},
    "drafts": {"draft_tokens": 3, "spare_tokens": 1},
    "async drafts in chunks": {"steps_in_flight": 2, "draft_tokens": 2, "max_batch_tokens": 4},
    "two groups": {"groups": "full+sliding:6", "policy": "priority"},
    "images": {"image_tokens": 6, "encoder_cache_tokens": 7, "max_batch_tokens": 9},
    "async images": {"image_tokens": 6, "encoder_cache_tokens": 12, "steps_in_flight": 2},
    "few encoded": {"image_tokens": 9, "encoder_cache_tokens": 9, "max_encoder_tokens": 5},
    "images with drafts": {"image_tokens": 5, "encoder_cache_tokens": 5, "draft_tokens": 2},
    "adapters": {"max_adapters": 1},
    "few tokens": {"max_request_tokens": 5},
}


def build(profile: EngineProfile, num_blocks: int, enable_caching: bool) -> NativePlainEngine:
    return NativePlainEngine(num_blocks, 4, enable_caching=enable_caching, profile=profile)


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", PROFILES.values(), ids=PROFILES)
def test_the_plainest_engine_holds(rows: dict[str, Any]) -> None:
    profile = EngineProfile.from_mapping(rows)
    campaign = EngineCampaign("plain", partial(build, profile), profile, 4)
    for number in range(25):
        trace = campaign.run(number).trace
        assert trace is None, trace


def plain(num_blocks: int = 4, **rows: Any) -> NativePlainEngine:
    return NativePlainEngine(num_blocks, 4, profile=EngineProfile(**rows))


def test_a_request_gets_blocks_for_all_that_it_will_have() -> None:
    engine = plain()
    engine.submit(0, [1, 2, 3], max_new_tokens=2)
    assert engine.plan() == {
        "compute": [{"request": 0, "first": 0, "count": 3, "drafts": 0, "blocks": [[0, 1]]}]
    }
    assert engine.num_free() == 2


def test_who_does_not_fit_waits_and_whoever_came_later_as_well() -> None:
    engine = plain()
    engine.submit(0, [1] * 8, max_new_tokens=1)
    engine.submit(1, [1] * 8, max_new_tokens=1)
    engine.submit(2, [1], max_new_tokens=1)
    assert [part["request"] for part in engine.plan()["compute"]] == [0]
    assert engine.unfinished() == [1, 2, 0]


def test_a_request_gives_its_blocks_back_when_it_ends() -> None:
    engine = plain()
    engine.submit(0, [1], max_new_tokens=1)
    engine.plan()
    assert engine.answer({0: [5]}, {}) == [(0, [5], True)]
    assert engine.num_free() == 4
    assert engine.unfinished() == []


def test_blocks_of_a_cancelled_request_stay_while_a_step_names_them() -> None:
    engine = plain()
    engine.submit(0, [1], max_new_tokens=1)
    engine.plan()
    engine.cancel(0)
    assert engine.num_free() == 3
    assert engine.answer({0: [5]}, {}) == []
    assert engine.num_free() == 4


def test_the_null_block_is_never_handed_out() -> None:
    engine = plain(null_block=1)
    engine.submit(0, [1] * 8, max_new_tokens=1)
    assert engine.plan()["compute"][0]["blocks"] == [[0, 2, 3]]


def test_a_step_ends_before_an_image_that_it_cannot_encode_as_well() -> None:
    engine = plain(image_tokens=4, encoder_cache_tokens=4)
    images = [("image", "a", 1, 5), ("image", "b", 6, 9)]
    engine.submit(0, [1] * 10, max_new_tokens=2, extra_keys=images)
    plan = engine.plan()
    assert plan["encodes"] == ["a"]
    assert [(part["first"], part["count"]) for part in plan["compute"]] == [(0, 6)]
    engine.answer({}, {})
    plan = engine.plan()
    assert (plan["forgets"], plan["encodes"]) == (["a"], ["b"])
    assert [(part["first"], part["count"]) for part in plan["compute"]] == [(6, 4)]


def test_an_image_behind_the_step_is_not_encoded_yet() -> None:
    engine = plain(image_tokens=4, encoder_cache_tokens=4, max_batch_tokens=2)
    engine.submit(0, [1] * 4, max_new_tokens=1, extra_keys=[("image", "a", 2, 4)])
    plan = engine.plan()
    assert (plan["forgets"], plan["encodes"]) == ([], [])


def test_who_waits_for_the_encoder_holds_up_nobody_else() -> None:
    engine = plain(image_tokens=4, encoder_cache_tokens=4)
    for number, images in enumerate([[("image", "a", 0, 4)], [("image", "b", 0, 4)], None]):
        engine.submit(number, [1] * 4, max_new_tokens=0, extra_keys=images)
    assert [part["request"] for part in engine.plan()["compute"]] == [0, 2]


def test_who_is_in_flight_holds_up_nobody_else() -> None:
    engine = plain(steps_in_flight=2, max_batch_tokens=2)
    engine.submit(0, [1, 2], max_new_tokens=1)
    engine.submit(1, [3], max_new_tokens=1)
    assert [part["request"] for part in engine.plan()["compute"]] == [0]
    assert [part["request"] for part in engine.plan()["compute"]] == [1]


def test_what_was_sampled_is_computed_next() -> None:
    engine = plain()
    engine.submit(0, [1, 2, 3], max_new_tokens=3)
    engine.plan()
    engine.answer({0: [5]}, {})
    (part,) = engine.plan()["compute"]
    assert (part["first"], part["count"], part["drafts"]) == (3, 1, 0)


# Drafts.


def drafting(**rows: Any) -> NativePlainEngine:
    """Request 0 has computed its 3 tokens, was given a fourth and has two drafts."""
    engine = plain(draft_tokens=2, **rows)
    engine.submit(0, [1, 2, 3], max_new_tokens=5)
    engine.plan()
    engine.answer({0: [5]}, {0: [6, 7]})
    return engine


def test_drafts_are_tried_with_the_token_before_them() -> None:
    (part,) = drafting().plan()["compute"]
    assert (part["first"], part["count"], part["drafts"]) == (3, 3, 2)


@pytest.mark.parametrize(("got", "first"), [([8], 4), ([6, 8], 5), ([6, 7, 8], 6)])
def test_a_request_goes_on_behind_the_drafts_that_were_right(got: list[int], first: int) -> None:
    engine = drafting()
    engine.plan()
    assert engine.answer({0: got}, {}) == [(0, got, False)]
    assert engine.plan()["compute"][0]["first"] == first


def test_drafts_that_the_step_has_no_room_for_are_not_tried() -> None:
    engine = plain(draft_tokens=2, max_batch_tokens=2)
    engine.submit(0, [1, 2], max_new_tokens=5)
    engine.plan()
    engine.answer({0: [5]}, {0: [6, 7]})
    (part,) = engine.plan()["compute"]
    assert (part["first"], part["count"], part["drafts"]) == (2, 1, 0)


def test_blocks_are_taken_for_drafts_and_spare_slots_too() -> None:
    engine = plain(draft_tokens=2, spare_tokens=2)
    engine.submit(0, [1, 2, 3, 4], max_new_tokens=1)
    assert engine.plan()["compute"][0]["blocks"] == [[0, 1, 2]]


# Recurrent states.

STATES = (CacheGroup(), CacheGroup("state", block_size=2))


def test_a_state_stands_in_the_block_of_its_last_position() -> None:
    engine = plain(8, groups=STATES, state_moves="told", max_batch_tokens=2)
    engine.submit(0, [1, 2, 3, 4], max_new_tokens=1)
    (part,) = engine.plan()["compute"]
    assert part["blocks"] == [[0, 1], [2, 3, 4]]
    assert part["states"] == [{"group": 1, "starts": None, "leaves": [(2, 2)]}]
    engine.answer({}, {})
    (part,) = engine.plan()["compute"]
    assert part["states"] == [{"group": 1, "starts": 2, "leaves": [(4, 3)]}]


def test_a_state_in_the_middle_of_a_block_is_found_there_again() -> None:
    engine = plain(8, groups=STATES, state_moves="told", max_batch_tokens=3)
    engine.submit(0, [1, 2, 3, 4, 5], max_new_tokens=1)
    assert engine.plan()["compute"][0]["states"][0]["leaves"] == [(3, 3)]
    engine.answer({}, {})
    (use,) = engine.plan()["compute"][0]["states"]
    assert (use["starts"], use["leaves"]) == (3, [(5, 4)])


def test_a_state_is_told_only_where_there_is_one_and_tables_do_not_tell_it() -> None:
    for rows in ({"groups": STATES}, {"state_moves": "told"}):
        engine = plain(8, **rows)
        engine.submit(0, [1], max_new_tokens=1)
        assert "states" not in engine.plan()["compute"][0]


def test_with_states_no_drafts_are_tried() -> None:
    engine = plain(8, groups=STATES, draft_tokens=2)
    engine.submit(0, [1], max_new_tokens=3)
    engine.plan()
    engine.answer({0: [5]}, {0: [6, 7]})
    assert engine.plan()["compute"][0]["drafts"] == 0


def test_blocks_have_four_slots_unless_stated() -> None:
    engine = NativePlainEngine(4)
    engine.submit(0, [1] * 4, max_new_tokens=1)
    assert engine.plan()["compute"][0]["blocks"] == [[0, 1]]


def test_who_has_another_adapter_waits() -> None:
    engine = plain(8, max_adapters=1)
    for number, adapter in enumerate(["x", "x", "y"]):
        keys = [("lora", (adapter, "path"), 0, None)]
        engine.submit(number, [1], max_new_tokens=1, extra_keys=keys)
    assert [part["request"] for part in engine.plan()["compute"]] == [0, 1]
