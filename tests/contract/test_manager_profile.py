"""Profiles of managers: rows, defaults, groups, and what is said of wrong ones."""

import pytest

from poolproof.contract.manager_profile import FULL, CacheGroup, ManagerProfile
from poolproof.contract.profile import ProfileError


def test_a_missing_row_takes_its_first_value_and_is_reported_as_assumed():
    profile = ManagerProfile.from_mapping({"publishes": "scheduled"})
    assert profile.publishes == "scheduled"
    assert profile.hits == "exact"
    assert profile.groups == FULL
    assert "hits" in profile.assumed
    assert "publishes" not in profile.assumed


def test_rows_of_the_pool_are_rows_of_the_manager():
    profile = ManagerProfile.from_mapping({"eviction": "lifo", "null_block": 0})
    assert (profile.eviction, profile.null_block) == ("lifo", 0)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        ("publishes", "sometimes"),
        ("eviction", "random"),
        ("watermark_blocks", -1),
        ("watermark_blocks", True),
        ("host_blocks", "4"),
        ("groups", []),
        ("groups", "round"),
        ("groups", "sliding:x"),
        ("groups", "sliding:4:2:1"),
        ("groups", [{"kind": "full", "size": 3}]),
        ("groups", [{"kind": "round"}]),
        ("groups", [{"kind": "sliding"}]),
        ("groups", [{"kind": "sliding", "window": True}]),
        ("groups", ["sliding"]),
    ],
)
def test_a_wrong_value_is_refused_by_name(row, value):
    with pytest.raises(ProfileError) as refusal:
        ManagerProfile.from_mapping({row: value})
    assert row in str(refusal.value) or "group" in str(refusal.value)


def test_a_manager_makes_its_hashes_itself_so_their_length_is_no_row_of_it():
    with pytest.raises(ProfileError) as refusal:
        ManagerProfile.from_mapping({"hash_bytes": 32})
    assert str(refusal.value) == (
        "profile key 'hash_bytes' is one of pools and indexes: a manager makes its hashes itself, "
        "from tokens; leave 32 out"
    )
    assert ManagerProfile.from_mapping({"hash_bytes": "any"}).hash_bytes == "any"


def test_an_unknown_row_is_named_beside_the_known_ones():
    with pytest.raises(ProfileError, match="unknown profile key 'publish'") as refusal:
        ManagerProfile.from_mapping({"publish": "never"})
    assert "publishes" in str(refusal.value)


def test_what_is_written_is_read_back():
    groups = ({"kind": "full"}, {"kind": "sliding", "window": 6, "block_size": 2})
    profile = ManagerProfile.from_mapping({"groups": groups, "lookahead_tokens": 3})
    again = ManagerProfile.from_mapping(profile.to_json())
    assert again.to_json() == profile.to_json()
    assert again.groups == (CacheGroup(), CacheGroup("sliding", 2, 6))
    assert ManagerProfile.from_mapping({"groups": again.groups}).groups == again.groups


@pytest.mark.parametrize("kind", ["full", "state"])
@pytest.mark.parametrize("window", [1, 8, 4096])
@pytest.mark.parametrize("form", ["text", "mapping", "group"])
def test_a_window_of_a_group_that_has_none_is_refused(kind, window, form):
    groups = {
        "text": f"sliding:4+{kind}:{window}",
        "mapping": [{"kind": kind, "window": window}],
        "group": (CacheGroup(kind, 0, window),),
    }[form]
    with pytest.raises(ProfileError, match=f"a {kind} group reads .* written {kind}:0:{window}$"):
        ManagerProfile.from_mapping({"groups": groups})


def test_a_full_group_may_have_a_block_size_of_its_own():
    assert ManagerProfile.from_mapping({"groups": "full:0:8"}).groups == (CacheGroup("full", 8),)


def test_groups_can_be_written_as_text():
    profile = ManagerProfile.from_mapping({"groups": "full+sliding:6:2"})
    assert profile.groups == (CacheGroup(), CacheGroup("sliding", 2, 6))
    assert profile.layout_name == "full+sliding"


@pytest.mark.parametrize(
    ("group", "position", "first"),
    [
        (CacheGroup(), 9, 0),
        (CacheGroup("state"), 9, 8),
        (CacheGroup("sliding", 0, 4), 9, 6),
        (CacheGroup("sliding", 0, 4), 3, 0),
        (CacheGroup("chunked", 0, 4), 9, 8),
        (CacheGroup("chunked", 0, 4), 8, 8),
    ],
)
def test_what_a_query_reads_begins_where_its_kind_says(group, position, first):
    assert group.first_read(position) == first


@pytest.mark.parametrize(
    ("rows", "has_hits"),
    [
        ({}, True),
        ({"publishes": "never"}, False),
        ({"publishes": "finish"}, True),
        ({"retention": "while-held"}, True),
        # The parent of a fork publishes at its end what the child still holds.
        ({"retention": "while-held", "publishes": "finish"}, True),
        ({"held_blocks": "exclusive", "null_block": 0}, True),
        ({"held_blocks": "exclusive", "null_block": 0, "retention": "while-held"}, False),
    ],
)
def test_who_forgets_each_block_before_another_may_find_it_has_no_hits(rows, has_hits):
    assert ManagerProfile.from_mapping(rows).has_hits is has_hits
