"""Events replay to the index, as a multiset or as a set; what is no event is named."""

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.contract.violation import ViolationError
from poolproof.harness.event_mirror import EventMirror
from poolproof.reference.dict_pool import DictPool

A, B = b"a", b"b"


def event(kind, *hashes, group=0):
    return {"type": kind, "hashes": list(hashes), "group": group}


def index_of(*keys):
    pool = DictPool(len(keys) + 1)
    pool.allocate(len(keys))
    pool.cache(range(len(keys)), keys)
    return pool


def agrees(events, kind, *keys):
    mirror = EventMirror(Profile(events=kind))
    mirror.replay(events)
    return mirror.differs_from(index_of(*keys)) is None


@pytest.mark.parametrize(
    ("kind", "events", "keys", "expected"),
    [
        ("per-copy", [event("stored", A, A)], [A, A], True),
        ("per-copy", [event("stored", A)], [A, A], False),
        ("per-copy", [event("stored", A), event("stored", A), event("removed", A)], [A], True),
        ("per-hash", [event("stored", A)], [A, A], True),
        ("per-hash", [event("stored", A), event("stored", A)], [A, A], True),
        ("per-hash", [event("stored", A), event("removed", A)], [A], False),
        ("per-hash", [event("stored", A), event("removed", A)], [], True),
        ("per-copy", [event("removed", A)], [], False),
        ("per-copy", [event("stored", A), event("cleared"), event("stored", B)], [B], True),
        ("per-copy", [event("stored", A), {"type": "cleared"}, event("stored", B)], [B], True),
        ("per-hash", [event("stored", A), {"type": "cleared"}], [], True),
        ("per-copy", [event("stored", A), {"type": "cleared", "group": 1}], [], True),
        ("per-copy", [{"type": "stored", "hashes": [A, B]}], [A, B], True),
        ("per-copy", [{"type": "stored", "hashes": [A]}, {"type": "announced again"}], [A], True),
        ("per-copy", [event("stored", A), event("announced again", A)], [A], True),
        ("per-copy", [event("stored", A, group=1)], [A], False),
        ("per-copy", [], [], True),
    ],
)
def test_events_replay_to_the_index(kind, events, keys, expected):
    assert agrees(events, kind, *keys) == expected
    assert agrees(tuple(events), kind, *keys) == expected


def test_a_content_key_names_its_group():
    key = TokenChain((1,)).prefix(1, 2)
    assert agrees([event("stored", key, group=2)], "per-copy", key)
    assert not agrees([event("stored", key, group=0)], "per-copy", key)


def test_the_difference_is_told_by_copies():
    mirror = EventMirror(Profile(events="per-copy"))
    mirror.replay([event("stored", A, A, B)])
    found = mirror.differs_from(index_of(A, B))
    assert found.invariant == "EVT"
    assert found.sentence == "the event stream leaves 2 copies of hash 61, the index has 1"


@pytest.mark.parametrize("events", [None, 3, {"type": "stored"}, "stored"])
def test_what_is_no_list_of_events_is_named(events):
    with pytest.raises(ViolationError, match=r"EVT: take_events\(\) answered .*; it must answer"):
        EventMirror(Profile(events="per-copy")).replay(events)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "stored",
        {},
        {"hashes": [A], "group": 0},
        {"type": "stored", "group": 0},
        {"type": "removed"},
        {"type": "stored", "hashes": A, "group": 0},
        {"type": "stored", "hashes": None, "group": 0},
        {"type": "stored", "hashes": [[A]], "group": 0},
    ],
)
def test_what_is_no_event_is_named(wrong):
    with pytest.raises(ViolationError) as caught:
        EventMirror(Profile(events="per-copy")).replay([event("stored", A), wrong])
    assert caught.value.violation.invariant == "EVT"
    assert f"take_events() gave {wrong!r}; an event is a mapping" in str(caught.value)


CHAIN = TokenChain((1, 2, 3, 4))


def test_what_an_event_tells_of_its_content_is_compared():
    told = {"parent": None, "tokens": [1, 2, 3, 4], "block_size": 2, "extra_keys": [[], []]}
    keys = [CHAIN.prefix(2, 0), CHAIN.prefix(4, 0)]
    EventMirror(Profile(events="per-copy")).replay([{**event("stored", *keys), **told}])
    with pytest.raises(ViolationError, match=r"tells the tokens \[4, 3, 2, 1\] from position 0 on"):
        EventMirror(Profile(events="per-copy")).replay(
            [{**event("stored", *keys), **told, "tokens": [4, 3, 2, 1]}]
        )


def test_nothing_is_compared_beside_opaque_hashes():
    EventMirror(Profile(events="per-copy")).replay(
        [{**event("stored", A), "parent": B, "tokens": [], "block_size": 0}]
    )


@pytest.mark.parametrize("told", [{"tokens": 5}, {"extra_keys": None}, {"extra_keys": [[[]]]}])
def test_what_cannot_be_read_is_named(told):
    stored = {**event("stored", CHAIN.prefix(2, 0)), "parent": None, "block_size": 2, **told}
    with pytest.raises(ViolationError, match=r"an event is a mapping"):
        EventMirror(Profile(events="per-copy")).replay([stored])
