"""What is said of a manager's answers: invariant, severity and sentence."""

import pytest

from poolproof.contract.manager_commands import Step
from poolproof.contract.violation import Severity
from poolproof.invariants import admission, block_tables
from poolproof.invariants.data import copies_unwritten, misreads

STEP = Step()
ANOTHER, OWN = Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN


@pytest.mark.parametrize(
    ("found", "writer", "severity", "words"),
    [
        ("<5>", (2, 7), ANOTHER, "KV that was computed for C; wanted <1>, found <5>, written at"),
        ("<5>", (1, 7), OWN, "KV of its own other tokens; wanted <1>, found <5>"),
        (None, None, OWN, "KV that nobody has written; wanted <1>"),
    ],
)
def test_a_misread_says_whose_it_was(found, writer, severity, words):
    violation = misreads(1, 4, 2, 0, wanted="<1>", found=found, writer=writer)
    assert (violation.invariant, violation.severity) == ("DATA", severity)
    assert violation.sentence.startswith("B reads at position 4 (block 2, slot 0) ")
    assert words in violation.sentence
    assert violation.blocks == (2,)


def test_a_copy_of_nothing_is_named_with_its_list():
    violation = copies_unwritten([(3, 4)], 3)
    assert (violation.invariant, violation.severity) == ("DATA", OWN)
    assert "[(3, 4)] were ordered, but nobody has written block 3" in violation.sentence


@pytest.mark.parametrize(
    ("violation", "invariant", "severity", "words"),
    [
        (admission.fits_and_was_refused(STEP, 2, 3), "ADM", Severity.FALSE_REFUSAL, "2 of 3"),
        (admission.wrong_never(STEP, 2, 3), "ADM", Severity.FALSE_REFUSAL, "there are 3"),
        (admission.waits_for_ever(STEP, 4, 3), "ADM", Severity.STALL, "waits for ever"),
        (admission.passes_watermark(STEP, 0, 1), "ADM", Severity.STALL, "watermark of 1"),
        (admission.no_answer(STEP, 7, "a word"), "CRASH", Severity.CRASH, "answered 7; it must"),
        (block_tables.no_such_block(0, 9, 4), "I2", ANOTHER, "from 0 to 3"),
        (block_tables.hands_out_held(0, 2, [1, 2]), "I2", ANOTHER, "which B, C still holds"),
        (block_tables.hands_out_held(0, 2, [0]), "I2", OWN, "was given already"),
        (block_tables.hands_out_held(0, 2, []), "I2", OWN, "never allocated to it"),
        (block_tables.table_changed(0, [1], [2]), "I2", ANOTHER, "was [1] and is [2] now"),
        (block_tables.too_short(STEP, 0, 1, 2), "ADM", ANOTHER, "writes beyond it"),
        (block_tables.too_long(STEP, 0, 3, 2), "ADM", Severity.LEAK, "its tokens need 2"),
        (block_tables.wrong_head(0, [2], [1], "lru"), "ORD", Severity.ORDER, "begins with [1]"),
        (block_tables.hit_without_key(0, 2, 1), "IDX", ANOTHER, "block 2 as a cached block"),
        (block_tables.too_many_cached(STEP, 4, 2), "IDX", ANOTHER, "only 2 are in the index"),
        (block_tables.too_few_cached(STEP, 2, 4), "I4", Severity.LOST_HIT, "although 4"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_is_named_with_its_harm(violation, invariant, severity, words):
    assert (violation.invariant, violation.severity) == (invariant, severity)
    assert words in violation.sentence
