"""One handmade state for each sentence that a state invariant can print, and one right state."""

import dataclasses

import pytest

from poolproof.contract.observation import PoolObservation
from poolproof.contract.violation import Severity
from poolproof.invariants.cached_usable import cached_free_blocks_revivable
from poolproof.invariants.catalogue import STATE_INVARIANTS, STATEMENTS, broken_in_state
from poolproof.invariants.free_iff_unheld import free_iff_unheld
from poolproof.invariants.full_blocks import null_block_unhashed
from poolproof.invariants.index_answers import index_matches_hashes
from poolproof.invariants.ownership import counts_match_owners
from poolproof.invariants.queue_links import links_well_formed
from poolproof.invariants.reuse_order import eviction_order

A, B, C = b"\xaa" * 16, b"\xbb" * 16, b"\xcc" * 16
WRONG, LEAK, CRASH = Severity.WRONG_DATA_OF_ANOTHER, Severity.LEAK, Severity.CRASH
LOST_HIT, REFUSAL = Severity.LOST_HIT, Severity.FALSE_REFUSAL


def said(violation):
    return violation.invariant, violation.severity, violation.blocks, violation.sentence


@pytest.mark.parametrize("invariant", STATE_INVARIANTS.values(), ids=STATE_INVARIANTS)
def test_the_right_state_passes(invariant, seen, known):
    assert invariant(seen, known) is None
    assert broken_in_state(seen, known) is None


@pytest.mark.parametrize("invariant", STATE_INVARIANTS.values(), ids=STATE_INVARIANTS)
def test_a_pool_that_shows_its_counter_alone_passes(invariant, known):
    assert invariant(PoolObservation(6, 3), known) is None


@pytest.mark.parametrize("invariant", STATE_INVARIANTS.values(), ids=STATE_INVARIANTS)
def test_a_pool_without_null_block_passes(invariant, known):
    ledger = dataclasses.replace(
        known, null_block=None, free_order=(0, 4, 3, 5), carriers={**known.carriers}
    )
    seen = PoolObservation(
        6, 4, [0, 4, 3, 5], [0, 2, 1, 0, 0, 0], [None, A, None, None, B, None],
        [(None, 4), None, None, (4, 5), (0, 3), (3, None)], {A: 1, B: 4},
    )  # fmt: skip
    assert invariant(seen, ledger) is None


def test_what_the_null_block_shows_of_count_and_links_does_not_matter(seen, known):
    odd = dataclasses.replace(
        seen, ref_counts=[7, *seen.ref_counts[1:]], neighbours=[(1, 2), *seen.neighbours[1:]]
    )
    assert broken_in_state(odd, known) is None


def test_i1_a_held_block_is_queued(changed, known):
    found = free_iff_unheld(changed(free_order=[4, 3, 1, 5]), known)
    assert said(found) == (
        "I1", WRONG, (1,),
        ("block 1 stands in the free queue although it is held by commands #2 and #5; the next "
        "allocation can hand it to somebody else"),
    )  # fmt: skip


def test_i1_the_null_block_is_queued(changed, known):
    found = free_iff_unheld(changed(free_order=[4, 0, 3, 5]), known)
    assert said(found) == (
        "I1", WRONG, (0,),
        "the null block 0 stands in the free queue; it must never be handed out",
    )  # fmt: skip


def test_i1_blocks_are_lost(changed, known):
    found = free_iff_unheld(changed(free_order=[4]), known)
    assert said(found) == (
        "I1", LEAK, (3, 5),
        "blocks 3 and 5 are held by nobody and not in the free queue: lost for ever",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "severity", "sentence"),
    [
        ([0, 2, 1, 1, 0, 0], WRONG,
         "block 3 shows a reference count of 1 and is in the free queue"),
        ([0, 2, 0, 0, 0, 0], LEAK,
         "block 2 shows a reference count of 0 and is not in the free queue"),
    ],
)  # fmt: skip
def test_i1_the_own_counts_disagree_with_the_queue(changed, known, counts, severity, sentence):
    found = free_iff_unheld(changed(ref_counts=counts), known)
    assert said(found) == ("I1", severity, (int(sentence.split()[1]),), sentence)


@pytest.mark.parametrize(
    ("count", "severity"), [(1, WRONG), (3, LEAK)], ids=["too few", "too many"]
)
def test_own_a_count_is_not_the_number_of_owners(changed, known, count, severity):
    found = counts_match_owners(changed(ref_counts=[0, count, 1, 0, 0, 0]), known)
    assert said(found) == (
        "OWN", severity, (1,),
        f"block 1 shows a reference count of {count}, but has 2 owners (commands #2 and #5)",
    )  # fmt: skip


def test_own_a_block_is_queued_twice(changed, known):
    found = counts_match_owners(changed(free_order=[4, 3, 5, 3], num_free=4), known)
    assert said(found) == (
        "OWN", WRONG, (3,),
        "block 3 stands in the free queue more than once: it will be handed out twice",
    )  # fmt: skip


@pytest.mark.parametrize("stranger", [6, -1])
def test_own_a_stranger_is_queued(changed, known, stranger):
    found = counts_match_owners(changed(free_order=[4, 3, 5, stranger]), known)
    assert said(found) == (
        "OWN", CRASH, (), f"the free queue holds {stranger}, which is no block of this pool"
    )  # fmt: skip


@pytest.mark.parametrize(("num_free", "severity"), [(4, WRONG), (2, REFUSAL)])
def test_own_the_counter_is_wrong(changed, known, num_free, severity):
    found = counts_match_owners(changed(num_free=num_free), known)
    assert said(found) == (
        "OWN", severity, (),
        (f"num_free() says {num_free}, a walk of the free queue meets 3, but 3 blocks are free "
        "(held by nobody)"),
    )  # fmt: skip


@pytest.mark.parametrize(("num_free", "severity"), [(4, WRONG), (2, LEAK), (0, LEAK)])
def test_own_blocks_that_a_black_box_does_not_count_are_lost(known, num_free, severity):
    found = counts_match_owners(PoolObservation(6, num_free), known)
    assert said(found) == (
        "OWN", severity, (),
        f"num_free() says {num_free}, but 3 blocks are free (held by nobody)",
    )  # fmt: skip


@pytest.mark.parametrize("num_free", [1, 2, 3])
def test_own_blocks_that_no_walk_meets_are_lost(changed, known, num_free):
    found = counts_match_owners(changed(free_order=[4, 3], num_free=num_free), known)
    assert found.severity is LEAK
    assert found.sentence.startswith(
        f"num_free() says {num_free}, a walk of the free queue meets 2, but 3 blocks are free"
    )


@pytest.mark.parametrize("num_free", [2, 3, 4])
def test_own_the_walk_meets_more_blocks_than_are_free(changed, known, num_free):
    found = counts_match_owners(changed(free_order=[4, 3, 5, 1], num_free=num_free), known)
    assert found.severity is WRONG
    assert f"num_free() says {num_free}, a walk of the free queue meets 4, but" in found.sentence


@pytest.mark.parametrize(("free_order", "severity"), [(None, LEAK), ([], REFUSAL)])
def test_own_a_counter_below_nothing_hands_out_no_held_block(known, free_order, severity):
    ledger = dataclasses.replace(known, free_order=())
    found = counts_match_owners(PoolObservation(6, -1, free_order=free_order), ledger)
    assert found.severity is severity


def test_own_one_lost_block_is_named_in_the_singular(known):
    ledger = dataclasses.replace(known, free_order=[4])
    found = counts_match_owners(PoolObservation(6, 0), ledger)
    assert found.sentence == "num_free() says 0, but 1 block is free (held by nobody)"


def test_i3_the_null_block_carries_a_hash(changed, known):
    found = null_block_unhashed(changed(block_hashes=[C, A, None, None, B, None]), known)
    assert said(found) == (
        "I3", WRONG, (0,),
        ("the null block 0 carries hash cccccccc; every request that asks for that hash would "
        "read it"),
    )  # fmt: skip


def test_i3_a_lookup_answers_with_the_null_block(changed, known):
    found = null_block_unhashed(changed(lookups={A: 1, C: 0}), known)
    assert said(found) == (
        "I3", WRONG, (0,), "lookup of hash cccccccc answers with the null block 0"
    )  # fmt: skip


def test_i4_a_cached_block_is_not_queued(changed, known):
    found = cached_free_blocks_revivable(changed(free_order=[3, 5]), known)
    assert said(found) == (
        "I4", LEAK, (4,),
        ("block 4 is cached under hash bbbbbbbb, held by nobody, and not in the free queue: it can "
        "be neither evicted nor revived"),
    )  # fmt: skip


def test_i4_a_free_block_lost_its_hash(changed, known):
    found = cached_free_blocks_revivable(changed(block_hashes=[None, A, *[None] * 4]), known)
    assert said(found) == (
        "I4", LOST_HIT, (4,),
        ("block 4 was cached under hash bbbbbbbb and is free, but its hash is gone although nobody "
        "evicted it"),
    )  # fmt: skip


def test_i4_a_free_block_is_not_found(changed, known):
    found = cached_free_blocks_revivable(changed(lookups={A: 1, B: None}), known)
    assert said(found) == (
        "I4", LOST_HIT, (4,),
        "block 4 is free and cached under hash bbbbbbbb, but lookup of that hash finds nothing",
    )  # fmt: skip


def test_idx_a_held_block_is_not_found(changed, known):
    found = index_matches_hashes(changed(lookups={A: None, B: 4}), known)
    assert said(found) == (
        "IDX", LOST_HIT, (1,), "lookup of hash aaaaaaaa finds nothing, although block 1 carries it"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "block", "carries"),
    [(C, 3, "no hash"), (C, 4, "hash bbbbbbbb"), (A, 4, "hash bbbbbbbb"), (C, 99, "no hash")],
)
def test_idx_a_lookup_answers_with_a_foreign_block(changed, known, key, block, carries):
    found = index_matches_hashes(changed(lookups={key: block}), known)
    assert said(found) == (
        "IDX", WRONG, (block,),
        (f"lookup of hash {key.hex()[:8]} answers with block {block}, which carries {carries}: its "
        "KV was computed for something else"),
    )  # fmt: skip


def test_idx_a_held_block_lost_its_hash(changed, known):
    found = index_matches_hashes(changed(block_hashes=[None, None, None, None, B, None]), known)
    assert said(found) == (
        "IDX", LOST_HIT, (1,),
        "block 1 shows no hash, although it was cached under hash aaaaaaaa",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("block", "shown", "sentence"),
    [
        (2, C, "block 2 shows hash cccccccc, but must carry no hash"),
        (1, B, "block 1 shows hash bbbbbbbb, but must carry hash aaaaaaaa"),
        (2, "x", "block 2 shows 'x', which is no hash that was ever given, but must carry no hash"),
    ],
)
def test_idx_a_block_shows_a_foreign_hash(changed, known, block, shown, sentence):
    hashes = [None, A, None, None, B, None]
    hashes[block] = shown
    found = index_matches_hashes(changed(block_hashes=hashes), known)
    assert said(found) == ("IDX", WRONG, (block,), sentence)


def with_link(seen, block, links):
    neighbours = list(seen.neighbours)
    neighbours[block] = links
    return dataclasses.replace(seen, neighbours=neighbours)


@pytest.mark.parametrize(
    ("block", "links", "what"),
    [
        (1, (4, None),
         "is outside the free queue but still linked between block 4 and the tail"),
        (3, None, "is met by a walk of the free queue but shows no links"),
        (3, (None, 5), ("is linked between the head and block 5, but the walk from the head "
                       "meets it between block 4 and block 5")),
        (5, (4, None), ("is linked between block 4 and the tail, but the walk from the head "
                       "meets it between block 3 and the tail")),
    ],
)  # fmt: skip
def test_link_a_block_is_linked_wrongly(seen, known, block, links, what):
    found = links_well_formed(with_link(seen, block, links), known)
    assert said(found) == (
        "LINK", CRASH, (block,), f"block {block} {what}; a later removal would tear the queue apart"
    )  # fmt: skip


def test_ord_the_order_is_another(changed, known):
    found = eviction_order(changed(free_order=[4, 5, 3]), known)
    assert said(found) == (
        "ORD", Severity.ORDER, (5, 3),
        ("place 1 of the free queue holds block 5, the profile's order puts block 3 there "
        "(queue [4, 5, 3], expected [4, 3, 5])"),
    )  # fmt: skip


def test_ord_is_not_broken_by_a_queue_that_ends_early(changed, known):
    assert eviction_order(changed(free_order=[4, 3]), known) is None


def test_ord_an_unspecified_order_is_not_compared(changed, known):
    ledger = dataclasses.replace(known, ordered=False)
    assert eviction_order(changed(free_order=[5, 3, 4]), ledger) is None


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"free_order": [4, 3, 1, 5]}, "I1"),
        ({"ref_counts": [0, 3, 1, 0, 0, 0]}, "OWN"),
        ({"block_hashes": [C, A, None, None, B, None]}, "I3"),
        ({"block_hashes": [None, A, None, None, None, None]}, "I4"),
        ({"lookups": {C: 3}}, "IDX"),
        ({"neighbours": [None] * 6}, "LINK"),
        ({"free_order": [3, 4, 5]}, "ORD"),
    ],
)
def test_the_earliest_broken_invariant_is_named(changed, known, fields, name):
    assert broken_in_state(changed(**fields), known).invariant == name


def test_every_invariant_has_a_statement():
    assert set(STATEMENTS) >= {"I1", "I2", "I3", "I4", "OWN", "LINK", "IDX", "ORD", "ADM", "ATOM"}
    assert set(STATEMENTS) >= {"LEAK", "EVT", "MISUSE", "DATA", "CRASH"}
