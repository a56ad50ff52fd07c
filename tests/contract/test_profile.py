"""Profiles are read from plain mappings; every error says which key and what is allowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolproof.contract.profile import Profile, ProfileError, joins_head

ROWS = {
    "null_block": (None, 0, 3),
    "eviction": ("lru", "unhashed-first", "unhashed-lifo", "lifo", "unspecified"),
    "duplicates": ("kept", "first", "last"),
    "recache": ("replace", "forbidden"),
    "null_in_lists": ("misuse", "ignored", "uncached"),
    "repeats_in_free": ("allowed", "forbidden"),
    "keys": ("block", "partial", 0, 4),
    "retention": ("exact", "may-drop", "while-held"),
    "events": ("none", "per-copy", "per-hash"),
    "misuse": ("raises", "ignores", "undefined"),
    "same_step_hit": ("forbidden", "allowed"),
    "hash_bytes": ("any", 1, 32, 256),
}


@given(st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in ROWS.items()}))
def test_a_declared_profile_comes_back_and_the_rest_is_assumed(declared):
    profile = Profile.from_mapping(declared)
    assert {key: getattr(profile, key) for key in declared} == declared
    assert set(profile.assumed) == set(ROWS) - set(declared)
    assert all(getattr(profile, key) == ROWS[key][0] for key in profile.assumed)
    assert Profile.from_mapping(profile.to_json()).to_json() == profile.to_json()


def test_json_has_every_row_and_nothing_else():
    assert set(Profile().to_json()) == set(ROWS)


@pytest.mark.parametrize("declared", [None, 3, [("eviction", "lru")], "lru"])
def test_a_profile_that_is_no_mapping_is_refused(declared):
    with pytest.raises(ProfileError) as caught:
        Profile.from_mapping(declared)
    assert str(caught.value) == f"profile must be a mapping of keys to values, not {declared!r}"


@pytest.mark.parametrize("key", ["evicton", "assumed", 3])
def test_an_unknown_key_is_named_beside_the_known_ones(key):
    with pytest.raises(ProfileError) as caught:
        Profile.from_mapping({key: "lru"})
    assert str(caught.value) == f"unknown profile key {key!r}; known are {', '.join(ROWS)}"


@pytest.mark.parametrize("value", ["0", True, -1, 1.0])
def test_a_null_block_must_be_a_block_id(value):
    with pytest.raises(ProfileError) as caught:
        Profile.from_mapping({"null_block": value})
    assert (
        str(caught.value) == f"profile key 'null_block' must be None or a block id, not {value!r}"
    )


@pytest.mark.parametrize("value", ["fifo", None, ["lru"], 0])
def test_an_unknown_value_is_named_beside_the_allowed_ones(value):
    with pytest.raises(ProfileError) as caught:
        Profile.from_mapping({"eviction": value})
    assert str(caught.value) == (
        "profile key 'eviction' must be one of lru, unhashed-first, unhashed-lifo, lifo, "
        f"unspecified, not {value!r}"
    )


@pytest.mark.parametrize("value", [True, -1, "blocks"])
def test_keys_may_also_be_a_number_of_lookahead_tokens(value):
    with pytest.raises(ProfileError) as caught:
        Profile.from_mapping({"keys": value})
    assert ", or a number of lookahead tokens, not" in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 257, True, "32", "all", 8.0, None, [32]])
def test_hashes_have_any_length_or_a_number_of_bytes(value):
    with pytest.raises(ProfileError) as caught:
        Profile.from_mapping({"hash_bytes": value})
    assert str(caught.value) == (
        f"profile key 'hash_bytes' must be 'any' or a number of bytes from 1 to 256, not {value!r}"
    )


def test_a_hash_has_16_bytes_where_its_length_does_not_matter():
    assert (Profile().fixed_hash_bytes, Profile().usual_hash_bytes) == (None, 16)
    fixed = Profile(hash_bytes=32)
    assert (fixed.fixed_hash_bytes, fixed.usual_hash_bytes) == (32, 32)


def test_a_null_block_that_no_pool_should_need_is_refused_at_once():
    with pytest.raises(ProfileError, match="must be at most 4,095, not 1000000000: every pool"):
        Profile.from_mapping({"null_block": 10**9})
    assert Profile.from_mapping({"null_block": 4095}).null_block == 4095


def test_what_is_declared_may_be_too_long_to_write_out():
    with pytest.raises(ProfileError, match="an int of 33,220 bits"):
        Profile.from_mapping({"null_block": 10**10_000})
    with pytest.raises(ProfileError, match="unknown profile key"):
        Profile.from_mapping({"\ud83d" * 10**6: 1})


@pytest.mark.parametrize(
    ("eviction", "hashed", "unhashed"),
    [
        ("lru", False, False),
        ("lifo", True, True),
        ("unhashed-first", False, True),
        ("unhashed-lifo", False, True),
    ],
)
def test_which_freed_blocks_join_the_head(eviction, hashed, unhashed):
    assert joins_head(eviction, has_hash=True) is hashed
    assert joins_head(eviction, has_hash=False) is unhashed
