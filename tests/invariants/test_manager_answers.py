"""What is said of a manager's answers: invariant, severity and sentence."""

import pytest

from poolproof.contract.manager_commands import Step
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.violation import Severity
from poolproof.invariants.admission import (
    covers_its_tokens,
    holds_no_more_than_needed,
    keeps_watermark,
    leaves_a_token_to_compute,
    never_only_if_too_large,
    put_off_only_if_full,
    waits_only_if_it_can_fit,
)
from poolproof.invariants.cached_usable import computed_block_is_cached, reports_all_that_is_cached
from poolproof.invariants.index_answers import (
    cached_block_is_computed,
    found_after_sightings,
    hit_carries_key,
    reports_no_more_than_indexed,
)
from poolproof.invariants.kv_reads import (
    copies_what_was_written,
    reads_own_prefix,
    reads_within_table,
)
from poolproof.invariants.legal_calls import meaningless_answer
from poolproof.invariants.reuse_order import entries_from_head
from poolproof.invariants.stable_ids import (
    copied_elsewhere,
    copies_name_blocks,
    hit_was_free,
    new_entries_were_free,
    still_read,
    table_names_blocks,
    table_stays,
    worker_table_suffices,
)

STEP = Step()
FIVE = Prefix((5,))
ANOTHER, OWN = Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN


@pytest.mark.parametrize(
    ("found", "writer", "severity", "words"),
    [
        (FIVE, (2, 7), ANOTHER, "KV that was computed for C; wanted <1>, found <5>, written at"),
        (FIVE, (1, 7), OWN, "KV that it computed itself for another prefix; wanted <1>, found <5>"),
        (None, None, OWN, "KV that nobody has written; wanted <1>"),
        (FIVE, None, OWN, "KV that nobody has written; wanted <1>"),
    ],
)
def test_a_misread_says_whose_it_was(found, writer, severity, words):
    violation = reads_own_prefix(1, 4, 2, 0, wanted=Prefix((1,)), found=found, writer=writer)
    assert (violation.invariant, violation.severity) == ("DATA", severity)
    assert violation.sentence.startswith("B reads at position 4 (block 2, slot 0) ")
    assert words in violation.sentence
    assert violation.blocks == (2,)


def test_a_sequence_may_read_its_own_prefix():
    assert reads_own_prefix(1, 4, 2, 0, wanted=FIVE, found=FIVE, writer=(2, 7)) is None


def test_a_misread_names_the_group_and_the_kind_where_there_are_several():
    violation = reads_own_prefix(
        1, 4, 2, 0, wanted=Prefix((1,)), found=FIVE, writer=(2, 7), what="a state", group=1
    )
    assert violation.sentence.startswith(
        "B reads at position 4 (group 1, block 2, slot 0) a state that was computed for C; "
    )


def test_a_misread_says_what_differs_where_the_prefixes_do_not_show_it():
    def misread(wanted, found):
        return reads_own_prefix(1, 4, 2, 0, wanted=wanted, found=found, writer=(2, 7)).sentence

    assert misread(Prefix((5,), group=1), FIVE).endswith(
        "wanted <5>, found <5>, written at command 7: only the cache group differs"
    )
    assert misread(Prefix((1,)), FIVE).endswith("wanted <1>, found <5>, written at command 7")


def test_an_entry_is_changed_by_the_copy_of_its_block_alone():
    assert copied_elsewhere(3, 4, 6, []) == (
        "no copy was ordered from block 4 to block 6, which entry 3 names"
    )
    assert copied_elsewhere(3, 4, 6, [(1, 6), (2, 4)]) == (
        "the copies 1->6, 2->4 take block 4 nowhere"
    )
    assert copied_elsewhere(3, 4, 6, [(4, 5), (1, 2), (4, 7)]) == (
        "the copies 4->5, 1->2, 4->7 take block 4 to 5 and 7 and not to 6"
    )


def test_a_copy_of_a_copy_does_not_count_within_one_answer():
    assert copied_elsewhere(3, 4, 6, [(4, 5), (5, 6)]) == (
        "the copies 4->5, 5->6 take block 4 to 5 and not to 6, since copies of one answer happen "
        "at once"
    )


def test_a_copy_of_nothing_is_named_with_its_list():
    slots = [[None, b"x"], [], [], [None, None], []]
    assert copies_what_was_written([(0, 4)], slots) is None
    violation = copies_what_was_written([(0, 4), (3, 4)], slots)
    assert (violation.invariant, violation.severity) == ("DATA", OWN)
    assert (
        "the copies 0->4, 3->4 were ordered, but nobody has written block 3" in violation.sentence
    )
    assert violation.blocks == (3,)


# Called in the test and not here: a fault in a sentence fails a test and not the collection.
ANSWERS = [
    (put_off_only_if_full, (STEP, 2, 3), ("ADM", Severity.FALSE_REFUSAL, ()),
     f'{STEP} answered "later", although it needs at most 2 of 3 free blocks'),
    (never_only_if_too_large, (STEP, 2, 3), ("ADM", Severity.FALSE_REFUSAL, ()),
     f'{STEP} answered "never", although it needs 2 blocks and the pool has 3'),
    (waits_only_if_it_can_fit, (STEP, 4, 3), ("ADM", Severity.STALL, ()),
     (f'{STEP} answered "later", but it needs 4 blocks and there will never be more than 3: it '
     "waits for ever")),
    (keeps_watermark, (STEP, 0, 1), ("ADM", Severity.STALL, ()),
     f"{STEP} was granted and leaves 0 blocks free, fewer than the watermark of 1"),
    (meaningless_answer, (STEP, 7, "a word"), ("CRASH", Severity.CRASH, ()),
     f"{STEP} answered 7; it must answer a word"),
    (table_names_blocks, (0, [1, 9], 4), ("I2", ANOTHER, ()),
     ("the table of A holds 9, which is no block (ids run from 0 to 3): the kernel reads outside "
     "of the cache")),
    (table_names_blocks, (0, [0, 3, 4], 4), ("I2", ANOTHER, ()),
     ("the table of A holds 4, which is no block (ids run from 0 to 3): the kernel reads outside "
     "of the cache")),
    (new_entries_were_free, (0, [3, 2], {3}, {2: [1, 2, 3]}.get), ("I2", ANOTHER, (2,)),
     "A was given block 2, which B, C and D still hold: all of them write to it"),
    (new_entries_were_free, (0, [3, 2], {3}, {2: [1, 2, 1]}.get), ("I2", ANOTHER, (2,)),
     "A was given block 2, which B and C still hold: all of them write to it"),
    (new_entries_were_free, (0, [3, 2], {3}, {2: [1, 1]}.get), ("I2", ANOTHER, (2,)),
     "A was given block 2, which B still holds: both write to it"),
    (new_entries_were_free, (0, [3, 2], {3}, {2: [0, 1]}.get), ("I2", ANOTHER, (2,)),
     "A was given block 2, which A and B still hold: all of them write to it"),
    (new_entries_were_free, (0, [3, 2], {3}, {2: [0]}.get), ("I2", OWN, (2,)),
     "A was given block 2, which it holds already"),
    (new_entries_were_free, (0, [3, 2], {3}, {2: []}.get), ("I2", OWN, (2,)),
     "A was given block 2, which nobody holds and which is not free"),
    (table_stays, (0, [1, 3], [2, 3]), ("I2", ANOTHER, (2,)),
     "the table of A was [1, 3] and is [2, 3] now"),
    (table_stays, (0, [1, 3], [2, 3], "", 1), ("I2", ANOTHER, (2,)),
     "the table of A in group 1 was [1, 3] and is [2, 3] now"),
    (table_stays, (0, [*range(20)], [9, *range(1, 20)], "step() may not change it"),
     ("I2", ANOTHER, ()),
     ("the table of A was [0, 1, 2, 3, ... (20 in all) ..., 16, 17, 18, 19] and is "
     "[9, 1, 2, 3, ... (20 in all) ..., 16, 17, 18, 19] now: step() may not change it")),
    (copies_name_blocks, ([(1, 5)], 5, 5), ("I2", ANOTHER, ()),
     "the copies 1->5 were ordered, but their target 5 is none of 5 blocks"),
    (copies_name_blocks, ([(-1, 0)], 5, 5), ("I2", ANOTHER, ()),
     "the copies -1->0 were ordered, but their source -1 is none of 5 blocks"),
    (leaves_a_token_to_compute, (STEP, 4, 3), ("ADM", Severity.STALL, ()),
     (f"{STEP} reports all 4 tokens as cached: nothing is left to compute, and the first new token "
     "has no logits to come from")),
    (covers_its_tokens, (STEP, 0, 1, 2), ("ADM", ANOTHER, ()),
     (f"after {STEP} the table of A has 1 block, but its tokens need 2: the kernel writes beyond "
     "it")),
    (holds_no_more_than_needed, (STEP, 0, 3, 2), ("ADM", Severity.LEAK, ()),
     f"after {STEP} the table of A has 3 blocks, but its tokens need 2"),
    (entries_from_head, (0, [2], [1], "lru"), ("ORD", Severity.ORDER, (2,)),
     "A was given the blocks [2], but under lru the free queue begins with [1]"),
    (hit_carries_key, (0, 2, 1, [3]), ("IDX", ANOTHER, (2,)),
     ("A uses block 2 as a cached block at entry 1 of its table, but that block does not carry the "
     "key of this prefix")),
    (hit_was_free, (0, 2, 1, [1, 3]), ("I2", ANOTHER, (2,)),
     ("A uses block 2 as a cached block at entry 1 of its table, which is still held by B and D: "
     "held blocks are exclusive, and each of them may write to it")),
    (found_after_sightings, (STEP, 3, 1, 1), ("IDX", Severity.BOOKKEEPING, ()),
     (f"{STEP} finds the block at entry 3 of its table, whose content was seen once: with 1 prior "
     "sightings the index had no key of it")),
    (found_after_sightings, (STEP, 3, 0, 2), ("IDX", Severity.BOOKKEEPING, ()),
     (f"{STEP} finds the block at entry 3 of its table, whose content was seen 0 times: with 2 "
     "prior sightings the index had no key of it")),
    (reports_no_more_than_indexed, (STEP, 4, 2), ("IDX", ANOTHER, ()),
     f"{STEP} reports 4 tokens as cached, but only 2 are in the index"),
    (reports_all_that_is_cached, (STEP, 2, 4), ("I4", Severity.LOST_HIT, ()),
     f"{STEP} reports 2 tokens as cached, although 4 are in the index and could be used"),
]  # fmt: skip


ROOM = [
    (put_off_only_if_full, (STEP, 4, 3)),
    (never_only_if_too_large, (STEP, 4, 3)),
    (waits_only_if_it_can_fit, (STEP, 3, 3)),
    (keeps_watermark, (STEP, 1, 1)),
    (leaves_a_token_to_compute, (STEP, 3, 3)),
    (table_names_blocks, (0, [], 4)),
    (table_names_blocks, (0, [0, 3], 4)),
    (new_entries_were_free, (0, [3, 2], {3, 2}, {}.get)),
    (new_entries_were_free, (0, [3], {3}, {}.get, {2})),
    (table_stays, (0, [1, 3], [1, 3])),
    (copies_name_blocks, ([(0, 4), (4, 0)], 5, 5)),
    (covers_its_tokens, (STEP, 0, 2, 2)),
    (holds_no_more_than_needed, (STEP, 0, 2, 2)),
    (entries_from_head, (0, [2, 1], [1, 2], "lru")),
    (hit_carries_key, (0, 2, 1, [3, 2])),
    (hit_was_free, (0, 2, 1, [])),
    (found_after_sightings, (STEP, 3, 2, 1)),
    (reports_no_more_than_indexed, (STEP, 2, 2)),
    (reports_all_that_is_cached, (STEP, 4, 4)),
]


@pytest.mark.parametrize(("judge", "arguments"), ROOM)
def test_what_is_right_passes(judge, arguments):
    assert judge(*arguments) is None


def test_blocks_that_are_kept_in_reserve_do_not_count_as_free():
    assert put_off_only_if_full(STEP, 2, 3, reserve=2) is None
    assert put_off_only_if_full(STEP, 2, 3, reserve=1) is not None
    assert put_off_only_if_full(STEP, 3, 3) is not None
    assert never_only_if_too_large(STEP, 3, 3) is not None


def test_a_refusal_beside_many_sequences_hints_at_rows():
    assert put_off_only_if_full(STEP, 2, 3, num_rows=16).sentence.endswith(
        "free blocks (16 sequences hold blocks; one that has no more rows says max_sequences)"
    )
    assert put_off_only_if_full(STEP, 2, 3, num_rows=15).sentence.endswith("free blocks")


def test_a_block_comes_once_and_is_no_hit():
    for new, hits in (([2, 2], ()), ([2], {2})):
        found = new_entries_were_free(0, new, {2}, {}.get, hits)
        assert found.sentence == "A was given block 2, which it holds already"


@pytest.mark.parametrize(
    ("table", "what"),
    [([0, 4], "holds 4, which is no block"), ([0], "has 1 block, but its token")],
)
def test_a_workers_table_has_blocks_for_all_tokens(table, what):
    assert worker_table_suffices(0, 1, [0, 3], num_blocks=4, needed=2) is None
    found = worker_table_suffices(0, 1, table, num_blocks=4, needed=2)
    assert (found.invariant, found.severity) == ("I2", ANOTHER)
    assert what in found.sentence


@pytest.mark.parametrize("is_held", [True, False])
def test_what_is_cached_is_what_is_computed(is_held):
    for both in (True, False):
        for judge in (computed_block_is_cached, cached_block_is_computed):
            assert judge(2, is_cached=both, is_computed=both, is_held=is_held) is None
    held = "" if is_held else ", which nobody holds,"
    lost = computed_block_is_cached(2, is_cached=False, is_computed=True, is_held=is_held)
    assert (lost.invariant, lost.severity, lost.blocks) == ("I4", Severity.LOST_HIT, (2,))
    assert lost.sentence == (
        f"block 2{held} is full of computed tokens and was not evicted, but is_cached(2) says that "
        "it cannot be found"
    )
    stale = cached_block_is_computed(2, is_cached=True, is_computed=False, is_held=is_held)
    assert (stale.invariant, stale.severity, stale.blocks) == ("IDX", ANOTHER, (2,))
    assert stale.sentence == (
        f"is_cached(2) says that block 2{held} can be found, but it is not full of computed tokens"
    )


@pytest.mark.parametrize(
    ("say", "arguments", "verdict", "sentence"),
    ANSWERS,
    ids=[answer[0].__name__ for answer in ANSWERS],
)
def test_an_answer_is_named_with_its_harm(say, arguments, verdict, sentence):
    violation = say(*arguments)
    assert (violation.invariant, violation.severity, violation.blocks) == verdict
    assert violation.sentence == sentence


def test_what_was_not_promised_to_be_found_is_only_bookkeeping():
    assert reports_all_that_is_cached(STEP, 4, 4, is_promised=False) is None
    violation = reports_all_that_is_cached(STEP, 2, 4, is_promised=False)
    assert (violation.invariant, violation.severity) == ("I4", Severity.BOOKKEEPING)
    assert violation.sentence == (
        f"{STEP} reports 2 tokens as cached, although the KV of 4 is there: the index says less "
        "than it could"
    )


def test_a_read_ends_where_the_table_does():
    assert reads_within_table(0, -1, 0, 4) is None
    assert reads_within_table(0, 7, 2, 4) is None
    violation = reads_within_table(0, 8, 2, 4)
    assert (violation.invariant, violation.severity) == ("DATA", Severity.WRONG_DATA_OF_ONES_OWN)
    assert violation.sentence == (
        "A reads up to position 8 beyond its table, which has 2 blocks of 4: what stands "
        "there is not its own"
    )


def test_a_block_that_is_still_read_is_named_with_the_first_position():
    assert still_read(1, 4, 6) == (
        "block 4 was let go at entry 1, but the next token reads every position from 6 on"
    )
