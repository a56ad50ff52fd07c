"""The verified prefix index: content, ancestors, copies and collisions."""

import pytest

from poolproof.impl.chain_index import ChainIndex


def test_a_published_prefix_is_found() -> None:
    index = ChainIndex(3)
    first = index.publish(0, 7, None, b"12")
    second = index.publish(1, 8, first, b"34")
    assert index.find(7, None, b"12") is first
    assert index.find(8, first, b"34") is second
    assert (index.prefix_of, len(index)) == ([first, second, None], 2)


def test_equal_tokens_under_another_parent_miss_although_the_hash_is_equal() -> None:
    index = ChainIndex(3)
    first = index.publish(0, 7, None, b"1")
    other = index.publish(1, 7, None, b"2")
    index.publish(2, 7, first, b"3")
    assert index.find(7, other, b"3") is None
    assert index.find(7, None, b"3") is None


def test_other_tokens_under_the_same_hash_miss() -> None:
    index = ChainIndex(1)
    index.publish(0, 7, None, b"1")
    assert index.find(7, None, b"2") is None


def test_two_blocks_of_one_content_are_carriers_of_one_prefix() -> None:
    index = ChainIndex(2)
    assert index.publish(1, 7, None, b"1") is index.publish(0, 7, None, b"1")
    assert list(index.prefix_of[0].carriers) == [1, 0]


def test_the_copy_is_found_after_the_first_carrier_has_gone() -> None:
    index = ChainIndex(2)
    prefix = index.publish(0, 7, None, b"1")
    index.publish(1, 7, None, b"1")
    index.drop(0)
    assert index.find(7, None, b"1") is prefix
    assert list(prefix.carriers) == [1]


def test_the_entry_goes_with_the_last_carrier() -> None:
    index = ChainIndex(1)
    index.publish(0, 7, None, b"1")
    index.drop(0)
    assert index.find(7, None, b"1") is None
    assert (index.prefix_of, len(index)) == ([None], 0)


def test_dropping_a_block_without_a_prefix_does_nothing() -> None:
    index = ChainIndex(1)
    index.drop(0)
    assert index.prefix_of == [None]


@pytest.mark.parametrize("dropped", range(3))
def test_one_of_several_colliding_prefixes_can_go(dropped: int) -> None:
    index = ChainIndex(3)
    for block_id in range(3):
        index.publish(block_id, 7, None, bytes([block_id]))
    index.drop(dropped)
    found = [index.find(7, None, bytes([block_id])) is not None for block_id in range(3)]
    assert found == [block_id != dropped for block_id in range(3)]


def test_a_cleared_index_finds_nothing() -> None:
    index = ChainIndex(2)
    index.publish(0, 7, None, b"1")
    prefixes = index.prefix_of
    index.clear()
    assert (index.prefix_of, len(index)) == ([None, None], 0)
    assert index.prefix_of is prefixes


def test_blocks_with_one_prefix_carry_one_and_the_same_wherever_it_begins() -> None:
    index = ChainIndex(4)
    root = index.publish(0, 7, None, b"a")
    assert index.publish(1, 7, None, b"a") is root
    child = index.publish(2, 8, root, b"b")
    assert index.publish(3, 8, root, b"b") is child
    assert list(child.carriers) == [2, 3]
