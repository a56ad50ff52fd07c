"""What an engine is in: all that decides on what it does is told, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from poolproof.impl.encoder_cache import EncoderCache
from poolproof.impl.engine import Engine
from poolproof.impl.engine_state import state_of
from poolproof.impl.kv_cache_group import FullAttention, RecurrentState
from poolproof.impl.offloading import Offloader
from poolproof.impl.running_states import RunningStates

SIZE = 4


def busy(cls: type[Engine] = Engine, **names: int) -> Engine:
    """One request runs with a step in flight, one is loaded from the host, and one waits.

    A block of the first one waits to be stored.
    """
    runs, loads, waits = names.get("runs", 5), names.get("loads", 6), names.get("waits", 7)
    subject = cls(12, SIZE, host_places=4, max_running=2, policy="priority", draft_tokens=1)
    subject.submit(90, [1] * 5, max_new_tokens=1)
    subject.plan()
    subject.answer({90: [2]}, {})
    (store,) = subject.plan()["transfers"]
    subject.answer({}, {})
    subject.arrived(store["id"], True)
    assert subject.manager.reset_prefix_cache()
    subject.submit(runs, [3] * 5, max_new_tokens=6, priority=1)
    subject.submit(loads, [1] * 5, max_new_tokens=3, priority=2)
    subject.plan()
    subject.submit(waits, [8] * 2, max_new_tokens=2, priority=3)
    subject.plan()
    subject.answer({runs: [4]}, {runs: [9]})
    return subject


def hybrid(number: int = 5) -> Engine:
    """A request with an image and a recurrent state, and a step of it in flight."""
    subject = Engine(
        9,
        SIZE,
        groups=(FullAttention(), RecurrentState()),
        tells_states=True,
        encoder_cache_tokens=8,
    )
    image = ("image", "a", 1, 3)
    subject.submit(number, [1] * 6, max_new_tokens=3, extra_keys=[image])
    subject.plan()
    subject.states({number: 1})
    subject.answer({number: [4]}, {})
    subject.plan()
    return subject


def names_in(state: Any) -> Iterator[tuple[str, int]]:
    """Every pair of a kind and a number."""
    if isinstance(state, tuple):
        if len(state) == 2 and isinstance(state[0], str) and isinstance(state[1], int):
            yield state
        for part in state:
            yield from names_in(part)


def renamed(state: Any, kind: str, others: dict[int, int]) -> Any:
    """The state with other numbers for things of a kind."""
    if not isinstance(state, tuple):
        return state
    if state[:1] == (kind,) and len(state) == 2:
        return (kind, others.get(state[1], state[1]))
    return tuple(renamed(part, kind, others) for part in state)


# The same histories give the same state.


@pytest.mark.parametrize("make", [busy, hybrid])
def test_engines_with_one_history_are_in_one_state(make: Callable[[], Engine]) -> None:
    assert state_of(make()) == state_of(make()) is not None


def test_a_state_can_be_kept_in_a_set() -> None:
    assert len({state_of(busy()), state_of(hybrid()), state_of(busy())}) == 2


def test_an_engine_answers_with_its_state() -> None:
    subject = busy()
    assert subject.poolproof_state() == state_of(subject)


def test_how_many_requests_and_steps_there_were_is_not_told() -> None:
    subject = Engine(9, SIZE)
    before = state_of(subject)
    for number in range(3):
        subject.submit(number, [1], max_new_tokens=1)
        subject.cancel(number)
        subject.plan()
        subject.answer({}, {})
    assert state_of(subject) == before


def test_a_step_in_flight_is_told_by_how_many_were_planned_since() -> None:
    def planned(number: int) -> Any:
        subject = Engine(9, SIZE)
        for _ in range(number):
            subject.plan()
            subject.answer({}, {})
        subject.plan()
        return state_of(subject)

    assert planned(0) == planned(5)


# Names.


def test_everything_that_has_a_name_is_told_as_a_pair() -> None:
    names = set(names_in(state_of(busy())))
    assert {name for kind, name in names if kind == "request"} == {5, 6, 7}
    assert {name for kind, name in names if kind == "block"} == set(range(12))
    assert {name for kind, name in names if kind == "place"} == {0, 1, 2, 3}
    assert {name for kind, name in names if kind == "transfer"} == {2, 3}
    assert {kind for kind, _ in names} == {"request", "block", "place", "transfer"}


def test_other_names_of_requests_are_all_that_changes() -> None:
    others = {"runs": 15, "loads": 2, "waits": 40}
    expected = renamed(state_of(busy()), "request", {5: 15, 6: 2, 7: 40})
    assert state_of(busy(**others)) == expected != state_of(busy())


def test_those_of_recurrent_states_and_images_as_well() -> None:
    assert state_of(hybrid(8)) == renamed(state_of(hybrid()), "request", {5: 8})


def test_a_block_of_recurrent_states_has_its_name_where_the_next_step_starts() -> None:
    subject = hybrid()
    (places,) = subject._requests[5].states.places
    block = places[subject._requests[5].states.num_computed]
    part = state_of(subject)[6][0][1][0]
    assert part[-1] == (6, (("block", block),))


def test_states_behind_which_nothing_is_known_are_told_as_none() -> None:
    subject = hybrid()
    subject._requests[5].states.num_computed = 5
    assert state_of(subject)[1][0][3] == (5, (None,))


# Everything that decides is told.


def request(subject: Engine, number: int = 5) -> Any:
    return subject._requests[number]


def part(subject: Engine) -> Any:
    return subject._steps[0].parts[0]


def kept(subject: Engine) -> Any:
    assert subject.offloader is not None
    return next(iter(subject.offloader._index.values()))


def move(subject: Engine, transfer_id: int) -> Any:
    host = subject.offloader
    assert host is not None
    (found,) = (
        m for m in [*host._waiting, *host._under_way.values()] if m.transfer_id == transfer_id
    )
    return found


def pool(subject: Engine) -> Any:
    return subject.manager.block_pool


def table(subject: Engine, number: int = 5) -> Any:
    return subject.manager._tables.requests[str(number)]


def changed(place: Any, name: str, value: Any) -> None:
    assert getattr(place, name) != value, "this changes nothing"
    setattr(place, name, value)


CHANGES: dict[str, Callable[[Engine], object]] = {
    "most running": lambda e: changed(e, "max_running", 9),
    "most positions": lambda e: changed(e, "max_batch_tokens", 9),
    "most drafts": lambda e: changed(e, "draft_tokens", 9),
    "most adapters": lambda e: changed(e, "max_adapters", 9),
    "tokens": lambda e: request(e).token_ids.append(1),
    "number of hashes": lambda e: request(e)._hashes.append(b""),
    "priority": lambda e: changed(request(e), "rank", (9, request(e).rank[1])),
    "limit": lambda e: changed(request(e), "max_tokens", 9),
    "drafts": lambda e: request(e).drafts.append(1),
    "tokens in flight": lambda e: changed(request(e), "num_expected", 9),
    "parts in flight": lambda e: changed(request(e), "num_parts", 9),
    "blocks offered": lambda e: changed(request(e), "num_offered", 9),
    "computed": lambda e: changed(request(e), "num_computed_tokens", 9),
    "run": lambda e: changed(request(e), "num_preemptions", 9),
    "whether it runs": lambda e: changed(request(e), "is_running", False),
    "whether it is loaded": lambda e: changed(request(e), "is_loading", True),
    "whether it has ended": lambda e: changed(request(e), "has_ended", True),
    "the running ones": lambda e: e._running.pop(),
    "their order": lambda e: e._running.reverse(),
    "the waiting ones": lambda e: e._waiting.pop(),
    "who is here": lambda e: e._requests.pop(7),
    "what is loaded": lambda e: e._loading.clear(),
    "for whom it is loaded": lambda e: e._loading.update({2: request(e)}),
    "its transfer": lambda e: e._loading.update({4: e._loading.pop(2)}),
    "steps in flight": lambda e: e._steps.pop(),
    "age of a step": lambda e: changed(e._steps[0], "number", 0),
    "parts of a step": lambda e: e._steps[0].parts.pop(),
    "request of a part": lambda e: changed(part(e), "request", request(e, 6)),
    "first of a part": lambda e: changed(part(e), "first", 9),
    "count of a part": lambda e: changed(part(e), "count", 9),
    "drafts of a part": lambda e: changed(part(e), "num_drafts", 9),
    "whether a part samples": lambda e: changed(part(e), "samples", not part(e).samples),
    "run of a part": lambda e: changed(part(e), "run", 9),
    "blocks of a table": lambda e: table(e).tables[0].reverse(),
    "cached in a table": lambda e: changed(table(e), "num_cached", [9]),
    "skipped in a table": lambda e: changed(table(e), "num_skipped", [9]),
    "references": lambda e: pool(e)._ref_counts.__setitem__(1, 9),
    "free blocks": lambda e: pool(e).allocate(1),
    "order of free blocks": lambda e: pool(e).free(
        list(reversed(pool(e).allocate(pool(e).num_free())))
    ),
    "free places": lambda e: e.offloader._free_places.reverse(),  # type: ignore[union-attr]  # busy() has a host
    "what the host has": lambda e: e.offloader._index.popitem(),  # type: ignore[union-attr]  # the same
    "which goes first": lambda e: e.offloader._index.update(  # type: ignore[union-attr]  # the same
        {key: e.offloader._index.pop(key) for key in list(e.offloader._index)[:1]}  # type: ignore[union-attr]  # the same
    ),
    "key of a place": lambda e: changed(kept(e), "key", b""),
    "place": lambda e: changed(kept(e), "place", 9),
    "whether it has come": lambda e: changed(kept(e), "is_ready", not kept(e).is_ready),
    "users of a place": lambda e: changed(kept(e), "num_users", 9),
    "transfer that waits": lambda e: e.offloader._waiting.clear(),  # type: ignore[union-attr]  # the same
    "transfer under way": lambda e: e.offloader._under_way.clear(),  # type: ignore[union-attr]  # the same
    "direction": lambda e: changed(move(e, 2), "is_load", False),
    "its name": lambda e: changed(move(e, 2), "transfer_id", 9),
    "its blocks": lambda e: move(e, 2).blocks.append(3),
    "its places": lambda e: move(e, 2).kept.pop(),
    "what it waits for": lambda e: changed(move(e, 3), "after", e._num_planned),
    "whether its place is found": lambda e: e.offloader._index.update(  # type: ignore[union-attr]  # the same
        {move(e, 3).kept[0].key: kept(e)}
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_decides_is_told(name: str) -> None:
    subject = busy()
    before = state_of(subject)
    CHANGES[name](subject)
    assert state_of(subject) != before


def test_the_key_of_a_block_and_whom_it_leads_to_are_told() -> None:
    subject = busy()
    index = pool(subject)._cached.index
    ((key, block), *_) = index.first.items()
    assert (block, (key,)) in {(b[1], keys) for b, _, keys in state_of(subject)[9 + 1][1]}
    before = state_of(subject)
    index.first[key] = block + 1
    told = state_of(subject)
    assert told != before
    index.first[key] = block
    index.copies[key] = {block + 1: None}
    assert ("block", block + 1) in state_of(subject)[10][2][0][2]
    assert state_of(subject) not in (before, told)


STATES: dict[str, Callable[[Engine], object]] = {
    "tokens of the states": lambda e: changed(request(e).states, "num_computed", 4),
    "their places": lambda e: changed(request(e).states, "places", [{6: 3}]),
    "blocks of a part": lambda e: part(e).tables[0].reverse(),
    "states of a part": lambda e: changed(part(e), "states", RunningStates(6, [{6: 3}])),
    "equal states of another run": lambda e: setattr(
        part(e), "states", RunningStates(part(e).states.num_computed, part(e).states.places)
    ),
    "image": lambda e: changed(request(e), "images", ()),
    "room for images": lambda e: changed(e.encoder_cache, "capacity", 9),
    "images that workers have": lambda e: (
        e.encoder_cache._sizes.update(b=1)  # type: ignore[union-attr]  # hybrid() has one
        or e.encoder_cache._users.update(b=set())
    ),  # type: ignore[union-attr]  # the same
    "who needs an image": lambda e: e.encoder_cache._users["a"].add(5),  # type: ignore[union-attr]  # the same
    "what will be encoded": lambda e: e.encoder_cache._encodes.append("a"),  # type: ignore[union-attr]  # the same
    "what will be forgotten": lambda e: e.encoder_cache._forgets.append("a"),  # type: ignore[union-attr]  # the same
    "positions that are encoded": lambda e: changed(e.encoder_cache, "_num_encoded", 9),
}


@pytest.mark.parametrize("name", STATES)
def test_what_decides_on_states_and_images_is_told(name: str) -> None:
    subject = hybrid()
    before = state_of(subject)
    STATES[name](subject)
    assert state_of(subject) != before


def test_users_of_an_image_are_told_by_name() -> None:
    subject = hybrid()
    assert subject.encoder_cache is not None
    subject.encoder_cache._users["a"] |= {5, 3}
    assert state_of(subject)[9][2] == ((("request", 3), ("request", 5)),)


def test_a_request_that_only_a_step_knows_is_told() -> None:
    subject = busy()
    subject.cancel(5)
    assert ("request", 5) in {told[0] for told in state_of(subject)[1]}
    subject.answer({}, {})
    assert ("request", 5) not in set(names_in(state_of(subject)))


def test_requests_are_told_in_the_order_in_which_they_came() -> None:
    assert [told[0][1] for told in state_of(busy(runs=15, loads=2))[1]] == [15, 2, 7]


def test_a_table_of_a_request_that_is_gone_comes_last() -> None:
    subject = busy()
    requests = subject.manager._tables.requests
    requests.update({"4": requests["5"], "3": requests["5"]})
    assert [told[0][1] for told in state_of(subject)[7]] == [5, 6, 3, 4]


def test_transfers_that_nothing_holds_up_are_alike() -> None:
    def after(number: int) -> Any:
        subject = busy()
        move(subject, 3).after = number
        return state_of(subject)

    assert after(0) == after(1)
    assert after(0) != after(busy()._num_planned)


# Subclasses.


class Remembers(Engine):
    """Keeps whatever a test gives it."""

    memory: Any


def remembering(memory: Any) -> Engine:
    subject = Engine.__new__(Remembers)
    Engine.__init__(subject, 9, SIZE)
    subject.submit(7, [1], max_new_tokens=1)
    subject.memory = memory  # type: ignore[attr-defined]  # that of the subclass
    return subject


@dataclass
class Note:
    text: str


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        (None, None),
        ("x", "x"),
        (b"x", b"x"),
        ([1, [2]], (1, (2,))),
        ({"a": [1]}, (("a", (1,)),)),
        ({3, 1}, (1, 3)),
        ({10, 9}, (10, 9)),
        (frozenset({"b", "a"}), ("a", "b")),
        (Note("x"), ("Note", ("x",))),
    ],
)
def test_what_a_subclass_keeps_is_told(memory: object, told: object) -> None:
    assert state_of(remembering(memory))[-2] == (("memory", told),)


def test_a_request_that_it_keeps_is_told_by_its_place() -> None:
    subject = remembering(None)
    subject.submit(3, [1], max_new_tokens=1)
    subject.memory = [subject._requests[3]]  # type: ignore[attr-defined]  # that of the subclass
    assert state_of(subject)[-2] == (("memory", (("this request", 1),)),)


def test_then_nothing_is_told_as_a_pair_of_a_kind_and_a_name() -> None:
    kinds = {kind for kind, _ in names_in(state_of(remembering(1))[:-2])}
    assert not kinds & {"request", "block", "place", "transfer"}


def test_where_it_keeps_what_is_no_plain_value_no_state_is_told() -> None:
    assert state_of(remembering(object())) is None
    assert state_of(remembering([1.5])) is None


def test_several_things_that_it_keeps_are_told_by_name() -> None:
    subject = remembering(1)
    subject.another = 2  # type: ignore[attr-defined]  # anything may be kept
    assert state_of(subject)[-2] == (("another", 2), ("memory", 1))


class CountingHost(Offloader):
    """A host that counts."""


def test_what_a_subclass_of_the_host_keeps_is_told_and_nothing_has_marks() -> None:
    subject = busy()
    assert subject.offloader is not None
    subject.offloader.count = 3  # type: ignore[attr-defined]  # anything may be kept
    assert state_of(subject)[-1] == (("count", 3),)
    assert not {kind for kind, _ in names_in(state_of(subject)[:-1])} & {"request", "block"}


def test_so_is_what_one_of_the_notices_keeps() -> None:
    subject = busy()
    subject.rank_notices.count = 3  # type: ignore[attr-defined]  # anything may be kept
    assert state_of(subject)[-1] == (("count", 3),)
    assert not {kind for kind, _ in names_in(state_of(subject)[:-1])} & {"request", "block"}


def test_which_ranks_a_transfer_still_waits_for_is_told() -> None:
    states = set()
    for heard in ((), (0,), (1,)):
        subject = Engine(6, SIZE, host_places=2, num_ranks=2)
        subject.submit(0, [1] * SIZE, max_new_tokens=1)
        subject.plan()
        subject.answer({0: [7]}, {})
        transfers = subject.plan()["transfers"]
        for rank in heard:
            subject.arrived(transfers[rank]["id"], True)
        states.add(state_of(subject))
    assert len(states) == 3


def test_so_is_what_one_of_the_encoder_cache_keeps() -> None:
    subject = hybrid()
    assert isinstance(subject.encoder_cache, EncoderCache)
    subject.encoder_cache.count = 3  # type: ignore[attr-defined]  # anything may be kept
    assert state_of(subject)[9][-1] == (("count", 3),)
    assert not {kind for kind, _ in names_in(state_of(subject)[:9])} & {"request", "block"}


class ManyStates(RunningStates):
    """Other running states."""


def test_running_states_of_a_subclass_are_told_whole_and_nothing_has_marks() -> None:
    class Other(Engine):
        running_states_class = ManyStates

    subject = Other(9, SIZE, groups=(FullAttention(), RecurrentState()), tells_states=True)
    subject.submit(5, [1] * 6, max_new_tokens=3)
    subject.plan()
    assert state_of(subject)[1][0][3] == ("ManyStates", (0, ((),)))
    assert not {kind for kind, _ in names_in(state_of(subject))} & {"request", "block"}
