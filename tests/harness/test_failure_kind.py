"""What makes two failures failures of one kind."""

from dataclasses import replace

import pytest

from poolproof.contract.commands import Allocate, Cache, Free
from poolproof.contract.misuse import MisuseFailure, MisuseKind, MisuseOutcome
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.failure_kind import CONSTRUCTION, failure_kind

HELD = MisuseFailure(MisuseKind.BLOCK_NOT_HELD, MisuseOutcome.ACCEPTED)
WRONG = Violation("MISUSE", Severity.CRASH, "free([0]) is misuse", misuse=HELD)


def test_sentences_blocks_and_what_came_before_do_not_enter():
    other = replace(WRONG, sentence="free([7]) is misuse", blocks=(7,), command_index=9)
    before = (Allocate(1), Cache((0,), (b"a",)))
    assert failure_kind(WRONG, (Free((0,)),)) == failure_kind(other, (*before, Free((7,))))


@pytest.mark.parametrize(
    "changes",
    [
        {"invariant": "I1"},
        {"severity": Severity.LEAK},
        {"misuse": None},
        {"misuse": replace(HELD, kind=MisuseKind.BLOCK_BEYOND_THE_POOL)},
        {"misuse": replace(HELD, outcome=MisuseOutcome.RAISED)},
    ],
)
def test_what_broke_how_badly_and_which_misuse_enter(changes):
    last = (Free((0,)),)
    assert failure_kind(replace(WRONG, **changes), last) != failure_kind(WRONG, last)


def test_the_operation_enters():
    assert failure_kind(WRONG, (Free((0,)),)) != failure_kind(WRONG, (Allocate(1),))
    assert failure_kind(WRONG, ()).operation == CONSTRUCTION


def test_a_kind_is_told_in_words():
    assert str(failure_kind(WRONG, (Free((0,)),))) == "MISUSE crash free (block not held: accepted)"
    assert str(failure_kind(WRONG, ())) == "MISUSE crash construction (block not held: accepted)"


def test_the_promise_is_broken_however_badly():
    worse = replace(WRONG, severity=Severity.WRONG_DATA_OF_ANOTHER)
    assert failure_kind(worse, (Free((0,)),)).promise == "MISUSE free"
    assert failure_kind(replace(WRONG, invariant="IDX"), (Free((0,)),)).promise == "IDX"
