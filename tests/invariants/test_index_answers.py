"""IDX over answers: the lookups of pools and managers, and an index on its own."""

import pytest

from poolproof.contract.commands import Acquire, Lookup
from poolproof.contract.index_commands import Contains, Pop
from poolproof.contract.observation import IndexLedger, IndexObservation
from poolproof.contract.violation import Severity
from poolproof.invariants.index_answers import (
    answers_a_carrier,
    answers_all_groups,
    answers_contains,
    answers_longest_prefix,
    answers_pop,
    hits_in_all_groups,
    index_answers_what_was_filed,
    index_matches_hashes,
)

A, B, C = b"\xaa" * 16, b"\xbb" * 16, b"\xcc" * 16
A_TEXT, B_TEXT, C_TEXT = "aa" * 16, "bb" * 16, "cc" * 16
MANY = tuple(range(8))
FIRST_OF_MANY = "8 blocks (0, 1, 2, 3, 4, 5, ...)"
WRONG, LOST_HIT = Severity.WRONG_DATA_OF_ANOTHER, Severity.LOST_HIT

# Block 1 alone carries A, 2 and 3 carry B, nobody carries C.
FILED = IndexLedger({A: {1: None}, B: {2: None, 3: None}})


def said(violation):
    return violation.invariant, violation.severity, violation.blocks, violation.sentence


def judged(*, found=None, members=None, listed=None, num_keys=None):
    return index_answers_what_was_filed(
        IndexObservation(found or {}, members or {}, listed or {}, num_keys), FILED
    )


# The lookups of a pool.


def test_a_lookup_that_finds_nothing_names_all_carriers(changed, known):
    known.carriers[A] = (1, 2)
    assert index_matches_hashes(changed(lookups={A: None}), known).blocks == (1, 2)


def test_a_lookup_may_answer_any_carrier(changed, known):
    known.carriers[A] = (1, 2)
    for block in (1, 2):
        assert index_matches_hashes(changed(lookups={A: block}), known) is None


def test_hashes_that_begin_alike_are_told_apart(changed, known):
    known.keys[1], known.carriers[A] = (A,), (1,)
    other = A[:8] + B[:8]
    found = index_matches_hashes(changed(lookups={other: 1}, block_hashes=None), known)
    assert found.sentence == (
        "lookup of hash aaaaaaaa.. with bb at byte 8 answers with block 1, which carries hash "
        "aaaaaaaa.. with aa at byte 8: its KV was computed for something else"
    )
    hashes = [None, other, None, None, B, None]
    found = index_matches_hashes(changed(lookups=None, block_hashes=hashes), known)
    assert found.sentence == (
        "block 1 shows hash aaaaaaaa.. with bb at byte 8, but must carry hash aaaaaaaa.. with aa "
        "at byte 8"
    )


def test_what_the_null_block_shows_hides_no_other_block(changed, known):
    hashes = [C, C, None, None, B, None]
    assert index_matches_hashes(changed(block_hashes=hashes), known).blocks == (1,)


@pytest.mark.parametrize(("answer", "carriers"), [(2, [2, 3]), (3, [2, 3]), (None, [])])
def test_a_pool_answers_a_carrier_or_none(answer, carriers):
    assert answers_a_carrier(Lookup(A), answer, carriers) is None


@pytest.mark.parametrize(
    ("answer", "carriers", "severity", "words"),
    [
        (None, [2, 3], LOST_HIT, "answered None, but the key is carried by [2, 3]"),
        (4, [2, 3], WRONG, "answered 4, but the key is carried by [2, 3]"),
        (4, [], WRONG, "answered 4, but no block carries the key"),
    ],
)
def test_a_pool_that_answers_another_block_is_accused(answer, carriers, severity, words):
    found = answers_a_carrier(Lookup(A), answer, carriers)
    assert said(found) == ("IDX", severity, (), f"{Lookup(A)} {words}")


CARRIERS = {A: (1,), B: (2, 3)}


def acquired(answer, expected=2):
    return answers_longest_prefix(
        Acquire((A, B, C)), answer, (A, B, C), expected, lambda key: CARRIERS.get(key, ())
    )


@pytest.mark.parametrize(("answer", "expected"), [([1, 2], 2), ((1, 3), 2), ([], 0), ((), 0)])
def test_the_longest_prefix_may_be_any_carriers(answer, expected):
    assert acquired(answer, expected) is None


@pytest.mark.parametrize(
    ("answer", "severity"),
    [
        ([1], LOST_HIT),
        ([], LOST_HIT),
        (None, LOST_HIT),
        ([1, 1], WRONG),
        ([2], WRONG),
        ([1, 2, 4], WRONG),
        ({1: 2}, WRONG),
        (7, WRONG),
    ],
)
def test_a_prefix_that_is_too_short_is_lost_work_and_another_is_wrong(answer, severity):
    assert said(acquired(answer)) == (
        "IDX", severity, (),
        (f"{Acquire((A, B, C))} answered {answer!r}; the longest cached prefix has 2 blocks, each "
        "of which must carry its hash"),
    )  # fmt: skip


def test_a_hit_in_groups_is_whole():
    assert hits_in_all_groups(Lookup(A), [0, 2]) is None
    assert said(hits_in_all_groups(Lookup(A), [1, None])) == (
        "IDX", Severity.CRASH, (),
        f"{Lookup(A)} answered [1, None]; it must answer None where a group has no block",
    )  # fmt: skip


@pytest.mark.parametrize(("answer", "hit"), [([1, 2], True), (None, False), ([1, 2], False)])
def test_a_lookup_over_groups_answers_a_block_for_each_or_none(answer, hit):
    assert answers_all_groups(Lookup(A), answer, 2, hit=hit) is None


@pytest.mark.parametrize(
    ("answer", "hit", "severity", "wanted"),
    [
        (None, True, LOST_HIT, "a block for each group, which all have one"),
        ([1], True, Severity.CRASH, "a block for each group, which all have one"),
        ((1, 2), True, Severity.CRASH, "a block for each group, which all have one"),
        ([], False, Severity.CRASH, "None"),
    ],
)
def test_a_lookup_over_groups_has_one_form(answer, hit, severity, wanted):
    found = answers_all_groups(Lookup(A), answer, 2, hit=hit)
    assert said(found) == (
        "IDX", severity, (), f"{Lookup(A)} answered {answer!r}; it must answer {wanted}"
    )  # fmt: skip


# The answers of an index.


def test_a_pop_answers_the_block_that_carried_the_key():
    assert answers_pop(Pop(B, 3), B, 3, 3, FILED) is None
    assert answers_pop(Pop(B, 1), B, 1, None, FILED) is None
    assert answers_pop(Pop(C, 1), C, 1, None, FILED) is None


def test_a_pop_that_answers_none_for_a_carrier_loses_it():
    assert said(answers_pop(Pop(B, 3), B, 3, None, FILED)) == (
        "IDX", LOST_HIT, (3,),
        (f"pop({B_TEXT}, 3) answered None, although block 3 carries the key: whoever asked takes "
        "the block for one that was not filed"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text", "block", "answer", "words"),
    [
        (B, B_TEXT, 3, 2, ("answered block 2 where block 3 is right; the key was carried by "
                          "blocks 2, 3")),
        (A, A_TEXT, 3, 1, "answered block 1 where None is right; the key was carried by block 1"),
        (C, C_TEXT, 3, 3, "answered block 3 where None is right; the key was carried by no block"),
    ],
)  # fmt: skip
def test_a_pop_that_answers_another_block_is_wrong(key, text, block, answer, words):
    found = answers_pop(Pop(key, block), key, block, answer, FILED)
    assert said(found) == ("IDX", WRONG, (block,), f"pop({text}, {block}) {words}")


def test_contains_tells_who_carries_the_key():
    assert answers_contains(Contains(B, 3), B, 3, True, FILED) is None
    assert answers_contains(Contains(B, 1), B, 1, False, FILED) is None
    assert answers_contains(Contains(C, 1), C, 1, False, FILED) is None


def test_contains_that_denies_a_carrier_loses_a_hit():
    assert said(answers_contains(Contains(B, 3), B, 3, False, FILED)) == (
        "IDX", LOST_HIT, (3,),
        f"contains({B_TEXT}, 3) answered False, but the key is carried by blocks 2, 3",
    )  # fmt: skip


def test_contains_that_claims_another_block_is_wrong():
    assert said(answers_contains(Contains(C, 1), C, 1, True, FILED)) == (
        "IDX", WRONG, (1,),
        f"contains({C_TEXT}, 1) answered True, but the key is carried by no block",
    )  # fmt: skip


# The state of an index.


def test_an_index_that_answers_what_was_filed_passes():
    assert judged() is None
    found = judged(
        found={C: None, A: 1, B: 3},
        members={(A, 1): True, (A, 2): False, (C, 1): False},
        listed={C: [], A: [1], B: [3, 2]},
        num_keys=2,
    )
    assert found is None


def test_get_that_finds_nothing_loses_a_hit():
    assert said(judged(found={A: 1, B: None})) == (
        "IDX", LOST_HIT, (2, 3),
        f"get({B_TEXT}) finds nothing, although the key is carried by blocks 2, 3",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "text", "carriers"), [(B, B_TEXT, "blocks 2, 3"), (C, C_TEXT, "no block")]
)
def test_get_that_answers_another_block_is_wrong(key, text, carriers):
    assert said(judged(found={A: 1, key: 1})) == (
        "IDX", WRONG, (1,),
        (f"get({text}) answers block 1, but the key is carried by {carriers}: what is in the block "
        "was computed for something else"),
    )  # fmt: skip


def test_a_member_that_is_denied_is_a_lost_hit():
    assert said(judged(members={(A, 1): True, (B, 2): False})) == (
        "IDX", LOST_HIT, (2,),
        f"contains({B_TEXT}, 2) is False, but the key is carried by blocks 2, 3",
    )  # fmt: skip


def test_a_member_that_was_never_filed_is_wrong():
    assert said(judged(members={(A, 1): True, (C, 2): True})) == (
        "IDX", WRONG, (2,),
        f"contains({C_TEXT}, 2) is True, but the key is carried by no block",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "blocks", "severity", "named", "words"),
    [
        (B, [3], LOST_HIT, (), "block 3, but the key is carried by blocks 2, 3"),
        (B, [], LOST_HIT, (), "no block, but the key is carried by blocks 2, 3"),
        (B, [2, 3, 4], WRONG, (4,), "blocks 2, 3, 4, but the key is carried by blocks 2, 3"),
        (B, [4], WRONG, (4,), "block 4, but the key is carried by blocks 2, 3"),
        (B, [2, 2], WRONG, (), "blocks 2, 2, but the key is carried by blocks 2, 3"),
        (C, [1], WRONG, (1,), "block 1, but the key is carried by no block"),
    ],
)
def test_a_list_of_carriers_is_complete_and_no_more(key, blocks, severity, named, words):
    text = B_TEXT if key is B else C_TEXT
    found = judged(listed={A: [1], key: blocks})
    assert said(found) == ("IDX", severity, named, f"carriers({text}) lists {words}")


def test_a_key_without_blocks_leaks():
    assert said(judged(num_keys=3)) == (
        "IDX", Severity.LEAK, (), "num_keys() is 3, but blocks carry 2 different keys"
    )  # fmt: skip


def test_a_key_that_is_not_counted_is_a_lost_hit():
    assert said(judged(num_keys=1)) == (
        "IDX", LOST_HIT, (), "num_keys() is 1, but blocks carry 2 different keys"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ({"found": {A: None}}, f"get({A_TEXT})"),
        ({"members": {(A, 1): False}}, f"contains({A_TEXT}, 1)"),
        ({"listed": {A: []}}, f"carriers({A_TEXT})"),
        ({"num_keys": 9}, "num_keys()"),
    ],
)
def test_each_way_to_read_an_index_is_compared(seen, words):
    assert judged(**seen).sentence.startswith(words)


@pytest.mark.parametrize(
    ("carriers", "named"),
    [(MANY[:6], "blocks 0, 1, 2, 3, 4, 5"), (MANY, FIRST_OF_MANY)],
)
def test_of_many_carriers_six_are_named(carriers, named):
    seen = IndexObservation({A: None}, {}, {})
    found = index_answers_what_was_filed(seen, IndexLedger({A: dict.fromkeys(carriers)}))
    assert said(found) == (
        "IDX", LOST_HIT, (0, 1, 2, 3, 4, 5),
        f"get({A_TEXT}) finds nothing, although the key is carried by {named}",
    )  # fmt: skip
