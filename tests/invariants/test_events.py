"""EVT over events one by one, and what a "stored" event tells beside its hashes.

That is its parent, the size of its blocks, their tokens and their extra keys.
"""

import pytest

from poolproof.contract.content import ContentKey, Image, TokenChain
from poolproof.contract.violation import Severity
from poolproof.invariants.events import (
    is_list_of_events,
    malformed_event,
    recaching_removes_nothing,
    stored_tells_content,
)

CHAIN = TokenChain((1, 2, 3, 4, 5, 6), ("cat", "/a"), "salt", (Image("image", 1, 4),))
FIRST, SECOND, THIRD = (CHAIN.prefix(length, 0) for length in (2, 4, 6))
LORA, SALT, IMAGE = ("lora", "cat"), ("salt", "salt"), ("image", "image", 1)
FIRST_TOLD = {
    "parent": None,
    "tokens": [1, 2],
    "block_size": 2,
    "extra_keys": [[LORA, SALT, IMAGE]],
}
REST_TOLD = {
    "parent": FIRST,
    "tokens": [3, 4, 5, 6],
    "block_size": 2,
    "extra_keys": [[LORA, IMAGE], [LORA]],
}


def told(event, *hashes, skips_blocks=False):
    found = stored_tells_content(event, hashes, skips_blocks=skips_blocks)
    return None if found is None else found.sentence


def test_the_truth_passes():
    assert told(FIRST_TOLD, FIRST) is None
    assert told(REST_TOLD, SECOND, THIRD) is None


@pytest.mark.parametrize("entry", sorted(REST_TOLD))
def test_what_is_not_told_is_not_compared(entry):
    event = {key: value for key, value in REST_TOLD.items() if key != entry}
    if entry == "parent":
        event["tokens"] = [1, 2, 3, 4, 5, 6]
    assert told(event, SECOND, THIRD) is None
    assert told({}, SECOND, THIRD) is None


@pytest.mark.parametrize(
    "parent",
    [
        None,
        THIRD,
        SECOND,
        b"never given",
        TokenChain((1, 2)).prefix(2, 0),
        CHAIN.prefix(2, 1),
        CHAIN.prefix(1, 0),
        TokenChain((1, 9), ("cat", "/a"), "salt", (Image("image", 1, 4),)).prefix(2, 0),
    ],
    ids=["none", "a child", "itself", "unknown", "other extras", "other group", "part", "other"],
)
def test_a_parent_is_what_stands_right_before(parent):
    assert "its block of 2 tokens begins at token 2" in told(
        {**REST_TOLD, "parent": parent}, SECOND
    )


def test_a_first_block_has_no_parent():
    event = {**FIRST_TOLD, "parent": ContentKey((), ("cat", "/a"), "salt", (), 0)}
    assert told(event, FIRST) is None
    assert "begins at token 0" in told({**FIRST_TOLD, "parent": FIRST}, FIRST)


@pytest.mark.parametrize(
    "tokens",
    [[], [3, 4], [3, 4, 5], [4, 3, 5, 6], [1, 2, 3, 4], [3, 4, 5, 6, 0], [1, 2, 3, 4, 5, 6]],
)
def test_tokens_go_from_the_parent_to_the_last_hash(tokens):
    assert "[3, 4, 5, 6]" in told({**REST_TOLD, "tokens": tokens}, SECOND, THIRD)


@pytest.mark.parametrize("size", [0, -2, 5, 2.0, None, True])
def test_a_block_has_a_size_that_its_prefix_can_have(size):
    assert "for a block of" in told({**REST_TOLD, "block_size": size}, SECOND, THIRD)


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_block_of_another_size_does_not_begin_behind_its_parent(size):
    assert f"block of {size} tokens" in told({**REST_TOLD, "block_size": size}, SECOND, THIRD)


@pytest.mark.parametrize(
    "extra_keys",
    [
        [[LORA, SALT]],
        [[LORA, SALT, IMAGE], [LORA]],
        [[LORA, IMAGE]],
        [[SALT, IMAGE]],
        [[]],
        [[LORA, SALT, ("image", "image", 0)]],
        [[LORA, SALT, IMAGE, ("unknown", "x")]],
        [],
    ],
)
def test_extra_keys_are_those_of_each_block(extra_keys):
    assert "extra keys" in told({**FIRST_TOLD, "extra_keys": extra_keys}, FIRST)


def test_a_salt_belongs_to_the_first_block_alone():
    event = {**REST_TOLD, "extra_keys": [[LORA, SALT], [LORA]]}
    assert "extra keys" in told(event, SECOND, THIRD)


def test_an_image_may_reach_into_later_blocks():
    assert told({**REST_TOLD, "extra_keys": [[LORA], [LORA, IMAGE]]}, SECOND, THIRD) is None


def test_skipped_blocks_leave_gaps_only_where_lists_may_skip():
    before = {"parent": FIRST, "tokens": [3, 4, 5, 6], "block_size": 2}
    behind = {**before, "tokens": [3, 4, 5, 6]}
    for event, hashes in ((before, [THIRD]), (behind, [SECOND])):
        assert told(event, *hashes) is not None
        assert told(event, *hashes, skips_blocks=True) is None
    odd = {**before, "parent": CHAIN.prefix(3, 0), "tokens": [4, 5, 6]}
    assert told(odd, THIRD, skips_blocks=True) is not None


def test_a_block_of_one_token_is_a_block():
    chain = TokenChain((1, 2))
    event = {"parent": chain.prefix(1, 0), "tokens": [2], "block_size": 1, "extra_keys": [[]]}
    assert told(event, chain.prefix(2, 0)) is None


def test_an_image_that_begins_with_the_block_is_told():
    chain = TokenChain((1, 2, 3, 4), images=(Image("cat", 2, 2),))
    event = {"parent": chain.prefix(2, 0), "block_size": 2}
    assert told({**event, "extra_keys": [[("image", "cat", 2)]]}, chain.prefix(4, 0)) is None
    assert told({**event, "extra_keys": [[]]}, chain.prefix(4, 0)) == (
        "an event stores the key of <1 2 3 4, image cat at token 2> in group 0 with the extra keys "
        "[]; its block of 2 tokens has [('image', 'cat', 2)]"
    )


def test_a_parent_has_the_images_that_begin_in_it_alone():
    chain = TokenChain((1, 2, 3, 4), images=(Image("cat", 2, 2),))
    assert told({"parent": chain.prefix(2, 0), "block_size": 2}, chain.prefix(4, 0)) is None


PLAIN = TokenChain((1, 2, 3, 4))
LAST = PLAIN.prefix(4, 0)


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (
            {"block_size": 2.0},
            "an event stores the key of <1 2 3 4> in group 0 for a block of 2.0 tokens",
        ),
        (
            {"block_size": 2, "parent": None},
            (
                "an event gives the key of <1 2 3 4> in group 0 no parent, but its block of 2 "
                "tokens begins at token 2"
            ),
        ),
        (
            {"block_size": 2, "parent": PLAIN.prefix(1, 0)},
            (
                "an event gives the key of <1 2 3 4> in group 0 as parent the key of <1> in group "
                "0, but its block of 2 tokens begins at token 2"
            ),
        ),
        (
            {"tokens": [1, 2]},
            (
                "an event that stores the key of <1 2 3 4> in group 0 tells the tokens [1, 2] from "
                "position 0 on, which are [1, 2, 3, 4]"
            ),
        ),
        (
            {"block_size": 2, "extra_keys": [[], []]},
            "an event stores 1 hashes and tells the extra keys of 2",
        ),
        (
            {"block_size": 2, "extra_keys": [[SALT]]},
            (
                "an event stores the key of <1 2 3 4> in group 0 with the extra keys [('salt', "
                "'salt')]; its block of 2 tokens has []"
            ),
        ),
    ],
)
def test_what_is_told_wrongly_is_named(event, sentence):
    found = stored_tells_content(event, [LAST], skips_blocks=False)
    assert (found.invariant, found.severity, found.sentence) == ("EVT", Severity.EVENTS, sentence)


def test_events_come_in_a_list():
    assert is_list_of_events([]) is None
    assert is_list_of_events(()) is None
    assert is_list_of_events(7).sentence == (
        "take_events() answered 7; it must answer a list of events"
    )


def test_an_event_is_a_mapping_with_a_type():
    assert malformed_event(7).sentence == (
        "take_events() gave 7; an event is a mapping with an entry 'type', and for \"stored\" and "
        "\"removed\" with 'hashes', a list of hashes"
    )


def test_to_cache_again_removes_nothing():
    again = {"type": "stored", "hashes": [FIRST]}
    assert recaching_removes_nothing([]) is None
    assert recaching_removes_nothing([again]) is None
    removed = {"type": "removed", "hashes": [LAST, PLAIN.prefix(2, 0)]}
    assert recaching_removes_nothing([again, removed]).sentence == (
        "an event tells that the key of <1 2 3 4> in group 0 and the key of <1 2> in group 0 was "
        "removed, although each block was cached again under the one hash that it had"
    )
