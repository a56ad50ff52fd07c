"""The prefix index: every carrier of a key is kept until it leaves."""

import pytest

from poolproof.impl.prefix_index import PrefixIndex


def test_an_empty_index_knows_nothing() -> None:
    index = PrefixIndex()
    assert index.lookup(b"a") is None
    assert index.carriers(b"a") == []
    assert b"a" not in index
    assert len(index) == 0


def test_the_first_carrier_is_new_and_the_second_is_not() -> None:
    index = PrefixIndex()
    assert index.insert(b"a", 0) is True
    assert index.insert(b"a", 3) is False
    assert index.carriers(b"a") == [0, 3]
    assert index.lookup(b"a") == 0
    assert len(index) == 1


def test_inserting_a_carrier_again_changes_nothing() -> None:
    index = PrefixIndex()
    for block_id in (1, 1, 2, 2, 1):
        index.insert(b"a", block_id)
    assert index.carriers(b"a") == [1, 2]
    index.remove(b"a", 1)
    assert index.remove(b"a", 2) is True
    assert b"a" not in index


def test_a_bare_id_is_kept_while_there_is_one_carrier() -> None:
    index = PrefixIndex()
    index.insert(b"a", 1)
    assert index.copies == {}
    index.insert(b"a", 2)
    index.remove(b"a", 1)
    assert (index.first, index.copies) == ({b"a": 2}, {})


@pytest.mark.parametrize("leaving", [1, 2, 3])
def test_the_others_are_found_when_one_carrier_leaves(leaving: int) -> None:
    index = PrefixIndex()
    for block_id in (1, 2, 3):
        index.insert(b"a", block_id)
    assert index.remove(b"a", leaving) is False
    left = [block_id for block_id in (1, 2, 3) if block_id != leaving]
    assert index.carriers(b"a") == left
    assert index.lookup(b"a") in left


def test_keys_are_apart() -> None:
    index = PrefixIndex()
    index.insert(b"a", 1)
    index.insert((b"a", 1), 1)
    assert index.remove(b"a", 1) is True
    assert index.carriers((b"a", 1)) == [1]


@pytest.mark.parametrize("carriers", [[], [1], [1, 2]])
def test_removing_what_is_not_carried_is_an_error_and_changes_nothing(carriers: list[int]) -> None:
    index = PrefixIndex()
    for block_id in carriers:
        index.insert(b"a", block_id)
    with pytest.raises(KeyError, match="b'a'"):
        index.remove(b"a", 7)
    assert index.carriers(b"a") == carriers


def test_clear_forgets_all_and_keeps_the_containers() -> None:
    index = PrefixIndex()
    first = index.first
    index.insert(b"a", 1)
    index.insert(b"a", 2)
    index.clear()
    assert len(index) == 0
    assert index.carriers(b"a") == []
    assert index.first is first
