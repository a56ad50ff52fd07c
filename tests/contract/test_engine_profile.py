"""The rows of an engine's profile, and how many tokens of a request fit under them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.profile import ProfileError


def test_a_profile_survives_json() -> None:
    profile = EngineProfile(
        null_block=0,
        policy="priority",
        stale_outputs="may-drop",
        cancelled_outputs="may-come",
        prefix_hits="never",
        preemptions="never",
        transfers="never-fail",
        transfer_order="fifo",
        failed_loads="may-end-requests",
        max_batch_tokens=7,
        max_running=3,
        max_request_tokens=20,
        steps_in_flight=2,
        draft_tokens=3,
        spare_tokens=1,
        headroom_percent=7,
        instances=2,
        groups=(CacheGroup(), CacheGroup("sliding", window=6)),
    )
    assert EngineProfile.from_mapping(profile.to_json()) == profile


def test_every_row_is_in_the_json() -> None:
    assert tuple(EngineProfile().to_json()) == EngineProfile.rows()


@pytest.mark.parametrize(
    ("row", "value", "sentence"),
    [
        ("policy", "lottery", "'policy' must be one of fcfs, priority, not 'lottery'"),
        ("policy", 3, "'policy' must be one of fcfs, priority, not 3"),
        ("stale_outputs", "lost", "'stale_outputs' must be one of delivered, may-drop"),
        ("cancelled_outputs", "all", "'cancelled_outputs' must be one of none, may-come, one-more"),
        ("prefix_hits", "all", "'prefix_hits' must be one of some, never"),
        ("preemptions", 0, "'preemptions' must be one of some, never, not 0"),
        ("transfers", "lost", "'transfers' must be one of may-fail, never-fail, not 'lost'"),
        ("transfer_order", "lifo", "'transfer_order' must be one of any, fifo, not 'lifo'"),
        ("failed_loads", None, "'failed_loads' must be one of recomputed, may-end-requests"),
        ("max_batch_tokens", 0, "'max_batch_tokens' must be a number from 1 on, not 0"),
        ("max_running", True, "'max_running' must be a number from 1 on, not True"),
        ("max_request_tokens", -1, "'max_request_tokens' must be a number from 0 on, not -1"),
        ("steps_in_flight", "2", "'steps_in_flight' must be a number from 1 on, not '2'"),
        ("draft_tokens", 1.5, "'draft_tokens' must be a number from 0 on, not 1.5"),
        ("spare_tokens", None, "'spare_tokens' must be a number from 0 on, not None"),
        ("headroom_percent", 100, "'headroom_percent' must be a number from 0 to 99, not 100"),
        ("reset", "never", "'reset' must be one of idle, preempts, not 'never'"),
        ("max_adapters", -1, "'max_adapters' must be a number from 0 on, not -1"),
        ("image_tokens", "many", "'image_tokens' must be a number from 0 on, not 'many'"),
        ("encoder_cache_tokens", -2, "'encoder_cache_tokens' must be a number from 0 on, not -2"),
        ("max_encoder_tokens", None, "'max_encoder_tokens' must be a number from 0 on, not None"),
        ("state_moves", "manager", "'state_moves' must be one of by-table, told, not 'manager'"),
        ("states", "all", "'states' must be one of every-block, step-end, every-token, not 'all'"),
        ("draft_states", "none", "'draft_states' must be one of each, last, not 'none'"),
        ("state_blocks", -1, "'state_blocks' must be a number from 0 on, not -1"),
        ("groups", "round", "round"),
        ("null_block", "zero", "null_block"),
        ("eviction", "lru", "eviction"),
    ],
)
def test_a_wrong_row_is_named(row: str, value: Any, sentence: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(sentence)):
        EngineProfile.from_mapping({row: value})


@pytest.mark.parametrize("value", [[], {}])
def test_a_choice_that_is_no_text_at_all_is_named(value: Any) -> None:
    with pytest.raises(ProfileError, match="policy"):
        EngineProfile.from_mapping({"policy": value})


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ({}, "fcfs"),
        ({"policy": "priority"}, "priority"),
        ({"steps_in_flight": 2, "draft_tokens": 1}, "fcfs+async+drafts"),
        ({"groups": "full+sliding:6"}, "fcfs+full+sliding"),
        ({"image_tokens": 4, "max_adapters": 1}, "fcfs+images+adapters"),
        ({"reset": "preempts"}, "fcfs+reset"),
        ({"instances": 2}, "fcfs+instances"),
    ],
)
def test_a_set_up_is_named_after_its_rows(rows: dict[str, Any], name: str) -> None:
    assert EngineProfile.from_mapping(rows).layout_name == name


@pytest.mark.parametrize(
    ("rows", "num_blocks", "most"),
    [
        ({}, 4, 16),
        ({"null_block": 0}, 4, 12),
        ({"draft_tokens": 3}, 4, 13),
        ({"spare_tokens": 1, "draft_tokens": 3}, 4, 12),
        ({"max_request_tokens": 9}, 4, 9),
        ({"max_request_tokens": 99}, 4, 16),
        ({"groups": "full+full"}, 5, 8),
        ({"headroom_percent": 10}, 20, 72),
        ({"headroom_percent": 10}, 21, 72),
        ({"headroom_percent": 10, "null_block": 0}, 21, 72),
        ({"instances": 2, "null_block": 0}, 8, 12),
        ({"instances": 2, "groups": "full+full"}, 9, 8),
        ({}, 0, 0),
    ],
)
def test_a_request_may_have_what_the_blocks_hold(
    rows: dict[str, Any], num_blocks: int, most: int
) -> None:
    assert EngineProfile.from_mapping(rows).most_request_tokens(num_blocks, 4) == most


@pytest.mark.parametrize("percent", [0, 1, 10, 33, 99])
@pytest.mark.parametrize("null", [None, 0, 3])
@pytest.mark.parametrize("usable", [1, 7, 400])
def test_beside_the_headroom_there_are_as_many_blocks_as_are_asked_for(
    percent: int, null: int | None, usable: int
) -> None:
    profile = EngineProfile(headroom_percent=percent, null_block=null)
    num_blocks = profile.num_blocks_with(usable)
    assert num_blocks > (null or 0)
    assert profile.most_request_tokens(num_blocks, 4) >= 4 * usable
    if null is None:
        assert profile.most_request_tokens(num_blocks - 1, 4) < 4 * usable


def test_a_group_has_blocks_of_its_own_size() -> None:
    groups = (CacheGroup(block_size=8), CacheGroup("chunked", block_size=4, window=8))
    assert EngineProfile(groups=groups).most_request_tokens(5, 4) == 12
