"""Blocks in host memory: what is found, what a transfer pins, and which place is given up."""

from __future__ import annotations

import pytest

from poolproof.impl.block_pool import BlockPool
from poolproof.impl.offloading import Offloader

KEYS = [b"a", b"b", b"c", b"d"]


def make_offloader(num_places: int) -> tuple[BlockPool, Offloader]:
    """Four blocks of the device, all held, and an offloader with so many places."""
    pool = BlockPool(4)
    assert pool.allocate(4) == [0, 1, 2, 3]
    return pool, Offloader(pool, block_size=2, num_places=num_places)


def stored(offloader: Offloader, blocks: list[int]) -> list[int]:
    """Keep these blocks under the keys of the same places; where each went."""
    offloader.store(blocks, [KEYS[block] for block in blocks])
    (begun,) = offloader.begin(0)
    assert (begun["kind"], begun["blocks"]) == ("store", blocks)
    offloader.arrived(begun["id"], is_done=True)
    places: list[int] = begun["places"]
    return places


def load(offloader: Offloader, block: int, key: bytes) -> int:
    """Begin to load a key into a block; the number of the transfer."""
    transfer_id = offloader.load([block], [key], after=0)
    offloader.begin(0)
    return transfer_id


def test_a_place_at_least_is_asked_for() -> None:
    with pytest.raises(ValueError, match=r"^num_places"):
        Offloader(BlockPool(1), 2, 0)


def test_what_arrived_is_found_from_the_first_block_on() -> None:
    _, offloader = make_offloader(3)
    stored(offloader, [0, 1])
    assert offloader.num_found([b"a", b"b", b"c"]) == 2
    assert offloader.num_found([b"c", b"a"]) == 0


def test_nothing_is_found_before_it_has_arrived() -> None:
    _, offloader = make_offloader(3)
    offloader.store([0], [b"a"])
    assert offloader.num_found([b"a"]) == 0


def test_a_block_is_held_until_it_is_stored() -> None:
    pool, offloader = make_offloader(1)
    offloader.store([0], [b"a"])
    assert pool.ref_count(0) == 2
    (begun,) = offloader.begin(0)
    offloader.arrived(begun["id"], is_done=True)
    assert pool.ref_count(0) == 1


def test_it_is_busy_while_a_transfer_waits_or_is_under_way() -> None:
    _, offloader = make_offloader(1)
    assert not offloader.is_busy
    offloader.store([0], [b"a"])
    assert offloader.is_busy
    (begun,) = offloader.begin(0)
    assert offloader.is_busy
    assert offloader.under_way() == [begun["id"]]
    offloader.arrived(begun["id"], is_done=True)
    assert not offloader.is_busy


def test_those_under_way_are_listed_oldest_first() -> None:
    _, offloader = make_offloader(3)
    offloader.store([0], [b"a"])
    offloader.store([1], [b"b"])
    first, second = (begun["id"] for begun in offloader.begin(0))
    assert offloader.under_way() == [first, second]


def test_what_is_kept_already_is_not_stored_again() -> None:
    _, offloader = make_offloader(3)
    stored(offloader, [0])
    offloader.store([0, 1], [b"a", b"b"])
    (begun,) = offloader.begin(0)
    assert begun["blocks"] == [1]


def test_as_many_are_stored_as_there_are_places() -> None:
    _, offloader = make_offloader(2)
    offloader.store([0, 1, 2], KEYS[:3])
    (begun,) = offloader.begin(0)
    assert begun["blocks"] == [0, 1]
    assert sorted(begun["places"]) == [0, 1]


def test_each_block_has_a_key() -> None:
    _, offloader = make_offloader(2)
    with pytest.raises(ValueError, match="zip"):
        offloader.store([0, 1], [b"a"])


def test_a_load_waits_for_the_steps_before_it() -> None:
    _, offloader = make_offloader(1)
    stored(offloader, [0])
    transfer_id = offloader.load([3], [b"a"], after=2)
    assert offloader.begin(1) == []
    (begun,) = offloader.begin(2)
    assert begun == {"id": transfer_id, "kind": "load", "blocks": [3], "places": [0]}


def test_the_place_that_was_of_use_longest_ago_is_given_up() -> None:
    _, offloader = make_offloader(2)
    _, second = stored(offloader, [0, 1])
    offloader.arrived(load(offloader, 3, b"a"), is_done=True)
    assert stored(offloader, [2]) == [second]
    assert [offloader.num_found([key]) for key in KEYS] == [1, 0, 1, 0]


def test_a_place_that_a_transfer_uses_is_not_given_up() -> None:
    _, offloader = make_offloader(1)
    (place,) = stored(offloader, [0])
    loads = [load(offloader, 3, b"a"), load(offloader, 2, b"a")]
    for transfer_id in loads:
        offloader.store([1], [b"b"])
        assert not offloader.begin(0)
        offloader.arrived(transfer_id, is_done=True)
    assert stored(offloader, [1]) == [place]


def test_a_place_is_free_again_once_a_store_has_failed() -> None:
    _, offloader = make_offloader(1)
    offloader.store([0], [b"a"])
    (begun,) = offloader.begin(0)
    offloader.arrived(begun["id"], is_done=False)
    assert offloader.num_found([b"a"]) == 0
    assert stored(offloader, [1]) == begun["places"]


def test_a_place_that_one_load_gave_up_stays_in_use_until_the_other_has_ended() -> None:
    _, offloader = make_offloader(1)
    (place,) = stored(offloader, [0])
    failing, other = load(offloader, 3, b"a"), load(offloader, 2, b"a")
    offloader.arrived(failing, is_done=False)
    assert offloader.num_found([b"a"]) == 0
    offloader.store([1], [b"b"])
    assert not offloader.begin(0)
    offloader.arrived(other, is_done=True)
    assert stored(offloader, [1]) == [place]


def test_everything_can_be_forgotten() -> None:
    _, offloader = make_offloader(2)
    places = stored(offloader, [0, 1])
    offloader.clear()
    assert offloader.num_found([b"a"]) == 0
    assert sorted(stored(offloader, [2, 3])) == sorted(places)
