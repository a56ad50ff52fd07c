"""What is said of a manager's answers: invariant, severity and sentence."""

import pytest

from poolproof.contract.manager_commands import Step
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.violation import Severity
from poolproof.invariants import admission, block_tables
from poolproof.invariants.kv_reads import copies_unwritten, misreads

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
    violation = misreads(1, 4, 2, 0, wanted=Prefix((1,)), found=found, writer=writer)
    assert (violation.invariant, violation.severity) == ("DATA", severity)
    assert violation.sentence.startswith("B reads at position 4 (block 2, slot 0) ")
    assert words in violation.sentence
    assert violation.blocks == (2,)


def test_a_misread_names_the_group_and_the_kind_where_there_are_several():
    violation = misreads(
        1, 4, 2, 0, wanted=Prefix((1,)), found=FIVE, writer=(2, 7), what="a state", group=1
    )
    assert violation.sentence.startswith(
        "B reads at position 4 (group 1, block 2, slot 0) a state that was computed for C; "
    )


def test_a_copy_of_nothing_is_named_with_its_list():
    violation = copies_unwritten([(3, 4)], 3)
    assert (violation.invariant, violation.severity) == ("DATA", OWN)
    assert "the copies 3->4 were ordered, but nobody has written block 3" in violation.sentence
    assert violation.blocks == (3,)


# Called in the test and not here: a fault in a sentence fails a test and not the collection.
ANSWERS = [
    (admission.fits_and_was_refused, (STEP, 2, 3), ("ADM", Severity.FALSE_REFUSAL, ()),
     f'{STEP} answered "later", although it needs at most 2 of 3 free blocks'),
    (admission.wrong_never, (STEP, 2, 3), ("ADM", Severity.FALSE_REFUSAL, ()),
     f'{STEP} answered "never", although it needs 2 blocks and the pool has 3'),
    (admission.waits_for_ever, (STEP, 4, 3), ("ADM", Severity.STALL, ()),
     (f'{STEP} answered "later", but it needs 4 blocks and there will never be more than 3: it '
     "waits for ever")),
    (admission.passes_watermark, (STEP, 0, 1), ("ADM", Severity.STALL, ()),
     f"{STEP} was granted and leaves 0 blocks free, fewer than the watermark of 1"),
    (admission.no_answer, (STEP, 7, "a word"), ("CRASH", Severity.CRASH, ()),
     f"{STEP} answered 7; it must answer a word"),
    (block_tables.no_such_block, (0, 9, 4), ("I2", ANOTHER, ()),
     ("the table of A holds 9, which is no block (ids run from 0 to 3): the kernel reads outside "
     "of the cache")),
    (block_tables.hands_out_held, (0, 2, [1, 2, 1]), ("I2", ANOTHER, (2,)),
     "A was given block 2, which B and C still hold: all of them write to it"),
    (block_tables.hands_out_held, (0, 2, [1, 1]), ("I2", ANOTHER, (2,)),
     "A was given block 2, which B still holds: both write to it"),
    (block_tables.hands_out_held, (0, 2, [0, 1]), ("I2", ANOTHER, (2,)),
     "A was given block 2, which A and B still hold: all of them write to it"),
    (block_tables.hands_out_held, (0, 2, [0]), ("I2", OWN, (2,)),
     "A was given block 2, which it holds already"),
    (block_tables.hands_out_held, (0, 2, []), ("I2", OWN, (2,)),
     "A was given block 2, which nobody holds and which is not free"),
    (block_tables.table_changed, (0, [1, 3], [2, 3]), ("I2", ANOTHER, (2,)),
     "the table of A was [1, 3] and is [2, 3] now"),
    (block_tables.table_changed, (0, [*range(20)], [9, *range(1, 20)], "step() may not change it"),
     ("I2", ANOTHER, ()),
     ("the table of A was [0, 1, 2, 3, ... (20 in all) ..., 16, 17, 18, 19] and is "
     "[9, 1, 2, 3, ... (20 in all) ..., 16, 17, 18, 19] now: step() may not change it")),
    (block_tables.too_short, (STEP, 0, 1, 2), ("ADM", ANOTHER, ()),
     (f"after {STEP} the table of A has 1 block, but its tokens need 2: the kernel writes beyond "
     "it")),
    (block_tables.too_long, (STEP, 0, 3, 2), ("ADM", Severity.LEAK, ()),
     f"after {STEP} the table of A has 3 blocks, but its tokens need 2"),
    (block_tables.wrong_head, (0, [2], [1], "lru"), ("ORD", Severity.ORDER, (2,)),
     "A was given the blocks [2], but under lru the free queue begins with [1]"),
    (block_tables.hit_without_key, (0, 2, 1), ("IDX", ANOTHER, (2,)),
     ("A uses block 2 as a cached block at entry 1 of its table, but that block does not carry the "
     "key of this prefix")),
    (block_tables.too_many_cached, (STEP, 4, 2), ("IDX", ANOTHER, ()),
     f"{STEP} reports 4 tokens as cached, but only 2 are in the index"),
    (block_tables.too_few_cached, (STEP, 2, 4), ("I4", Severity.LOST_HIT, ()),
     f"{STEP} reports 2 tokens as cached, although 4 are in the index and could be used"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("say", "arguments", "verdict", "sentence"),
    ANSWERS,
    ids=[answer[0].__name__ for answer in ANSWERS],
)
def test_an_answer_is_named_with_its_harm(say, arguments, verdict, sentence):
    violation = say(*arguments)
    assert (violation.invariant, violation.severity, violation.blocks) == verdict
    assert violation.sentence == sentence
