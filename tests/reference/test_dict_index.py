"""The specification of an index: each key and its carriers, under each row about duplicates."""

import pytest

from poolproof.contract.observation import IndexLedger
from poolproof.contract.profile import Profile
from poolproof.reference.dict_index import DictIndex
from poolproof.reference.native_index import NativeDictIndex

A, B = b"\xaa" * 16, (b"\xaa" * 16, 1)


def filed(duplicates, *pairs):
    index = DictIndex(duplicates)
    for key, block_id in pairs:
        index.insert(key, block_id)
    return index


def carriers(index):
    return {key: list(blocks) for key, blocks in index.carriers.items()}


def test_nothing_is_filed_at_first():
    index = DictIndex()
    assert (index.get(A), index.contains(A, 1), index.pop(A, 1)) == (None, False, None)
    assert carriers(index) == {}


def test_a_key_is_carried_from_its_insertion_on():
    index = filed("kept", (A, 1))
    assert (index.get(A), index.contains(A, 1)) == (1, True)
    assert (index.get(B), index.contains(B, 1), index.contains(A, 2)) == (None, False, False)


@pytest.mark.parametrize(("duplicates", "left"), [("kept", [1, 2]), ("first", [1]), ("last", [2])])
def test_a_second_carrier_joins_is_left_out_or_takes_over(duplicates, left):
    index = filed(duplicates, (A, 1), (B, 3), (A, 2))
    assert carriers(index) == {A: left, B: [3]}
    assert index.get(A) == left[0]


@pytest.mark.parametrize("duplicates", ["kept", "first", "last"])
def test_to_file_a_carrier_again_changes_nothing(duplicates):
    index = filed(duplicates, (A, 1), (A, 1))
    assert carriers(index) == {A: [1]}


def test_duplicates_are_kept_where_nothing_else_is_said():
    index = DictIndex()
    index.insert(A, 1)
    index.insert(A, 2)
    assert carriers(index) == {A: [1, 2]}


def test_a_carrier_that_is_filed_again_keeps_its_place():
    assert filed("kept", (A, 1), (A, 2), (A, 1)).get(A) == 1


def test_a_pop_takes_one_block_from_one_key():
    index = filed("kept", (A, 1), (A, 2), (B, 1))
    assert index.pop(A, 1) == 1
    assert carriers(index) == {A: [2], B: [1]}
    assert index.get(A) == 2


def test_a_pop_of_what_is_not_carried_answers_none_and_changes_nothing():
    index = filed("kept", (A, 1))
    assert index.pop(A, 2) is None
    assert index.pop(B, 1) is None
    assert carriers(index) == {A: [1]}


def test_a_key_goes_with_its_last_block():
    index = filed("kept", (A, 1), (A, 2))
    index.pop(A, 1)
    index.pop(A, 2)
    assert carriers(index) == {}
    assert index.get(A) is None


def test_clear_leaves_no_key():
    index = filed("kept", (A, 1), (B, 2))
    index.clear()
    assert carriers(index) == {}


def test_the_invariants_compare_with_the_carriers():
    index = filed("kept", (A, 1), (A, 2))
    assert index.ledger() == IndexLedger({A: {1: None, 2: None}})


# The same behind the native contract.


def native(duplicates, *pairs):
    index = NativeDictIndex(profile=Profile(duplicates=duplicates))
    for key, block_id in pairs:
        index.insert(key, block_id)
    return index


def test_the_reference_takes_keys_of_every_kind():
    assert set(NativeDictIndex.key_kinds) == {"bytes", "int", "pair"}


def test_the_reference_says_its_profile():
    assert NativeDictIndex().profile == Profile().to_json()
    assert native("last").profile == Profile(duplicates="last").to_json()


@pytest.mark.parametrize(("duplicates", "left"), [("kept", [1, 2]), ("first", [1]), ("last", [2])])
def test_the_reference_keeps_its_profile(duplicates, left):
    index = native(duplicates, (A, 1), (B, 3), (A, 2))
    assert (index.carriers(A), index.carriers(B)) == (left, [3])
    assert (index.get(A), index.get(B)) == (left[0], 3)
    assert index.num_keys() == 2


def test_the_reference_pops_what_is_carried():
    index = native("kept", (A, 1), (A, 2))
    assert (index.pop(A, 1), index.pop(A, 1), index.pop(B, 2)) == (1, None, None)
    assert (index.contains(A, 1), index.contains(A, 2), index.contains(B, 2)) == (
        False, True, False
    )  # fmt: skip
    assert index.carriers(B) == []


def test_the_reference_is_empty_once_it_is_cleared():
    index = native("kept", (A, 1), (B, 2))
    index.clear()
    assert index.num_keys() == 0
    assert index.carriers(A) == []
