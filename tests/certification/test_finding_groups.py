"""What counts as forms of one bug, and that nothing is lost or hidden by it."""

from dataclasses import replace

import pytest

from poolproof.certification.finding_groups import grouped
from poolproof.contract.commands import Allocate, Cache, Evict, Free, Lookup, Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Finish, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.misuse import MisuseFailure, MisuseKind, MisuseOutcome
from poolproof.contract.violation import Severity, Violation

A = b"\x01" * 16
CACHED = (Allocate(1), Cache((0,), (A,)))
WRONG, CRASH, LEAK = Severity.WRONG_DATA_OF_ANOTHER, Severity.CRASH, Severity.LEAK


@pytest.fixture
def found(samples):
    """A finding by name, what broke and the commands."""

    def make(name, invariant, severity, sentence, *commands, **changes):
        violation = Violation(invariant, severity, sentence, **changes)
        trace = samples.trace(commands=commands, violation=violation, fingerprint=name)
        return samples.finding(name, violation=violation, trace=trace)

    return make


def names(findings):
    return [[form.fingerprint for form in finding.each_form] for finding in findings]


def test_the_same_words_after_another_operation_are_one_bug(found):
    sentence = "block 0 shows hash 01010101, but must carry no hash"
    one = found("f-00000001", "IDX", WRONG, sentence, *CACHED, Evict((0,)))
    other = found("f-00000002", "IDX", WRONG, sentence, *CACHED, Free((0,)), Allocate(1))
    assert names(grouped([other, one])) == [["f-00000001", "f-00000002"]]


def test_the_same_harm_of_one_operation_is_one_bug(found):
    lost = found("f-00000001", "I1", LEAK, "block 0 is lost", Allocate(1), Free((0,)))
    counted = found("f-00000002", "OWN", LEAK, "block 0 shows 2", *CACHED, Free((0,)))
    assert names(grouped([counted, lost])) == [["f-00000001", "f-00000002"]]


def test_one_cause_at_two_block_sizes_is_one_bug(samples):
    """The larger block takes longer to fill, and what breaks first there is named otherwise."""

    def at(block_size, name, invariant, *commands):
        violation = Violation(invariant, WRONG, f"{invariant} with blocks of {block_size}")
        trace = samples.trace(
            level="manager", profile=ManagerProfile(), commands=commands, violation=violation,
            fingerprint=name, options={"block_size": block_size},
        )  # fmt: skip
        return samples.finding(name, violation=violation, trace=trace)

    tokens = TokenChain((0,) * 5)
    small = at(1, "f-00000001", "IDX", Admit(0, tokens, 0), Finish(0), Admit(1, tokens, 0))
    large = at(4, "f-00000002", "DATA", Admit(0, tokens, 0), Step(), Admit(1, tokens, 0))
    assert names(grouped([small, large])) == [["f-00000001", "f-00000002"]]


def test_other_harm_of_another_operation_is_another_bug(found):
    stale = found("f-00000001", "IDX", WRONG, "block 0 shows", *CACHED, Reset())
    lost = found("f-00000002", "I1", LEAK, "block 0 is lost", Allocate(1), Free((0,)))
    assert names(grouped([stale, lost])) == [["f-00000001"], ["f-00000002"]]


def test_other_harm_of_one_operation_from_another_state_is_another_bug(found):
    order = found("f-00000001", "ORD", Severity.ORDER, "handed out [1]", Free((0,)), Allocate(1))
    stale = found("f-00000002", "IDX", WRONG, "shows", *CACHED, Free((0,)), Allocate(1))
    assert names(grouped([order, stale])) == [["f-00000002"], ["f-00000001"]]


def misuse(kind, outcome=MisuseOutcome.ACCEPTED):
    return {"misuse": MisuseFailure(kind, outcome)}


def test_what_is_misused_by_one_operation_is_one_missing_check(found):
    beyond = found(
        "f-00000001", "MISUSE", CRASH, "x", Free((9,)), **misuse(MisuseKind.BLOCK_BEYOND_THE_POOL)
    )
    unheld = found(
        "f-00000002", "MISUSE", WRONG, "y", Free((0,)), **misuse(MisuseKind.BLOCK_NOT_HELD)
    )
    cached = found(
        "f-00000003", "MISUSE", CRASH, "x", Cache((9,), (A,)),
        **misuse(MisuseKind.BLOCK_BEYOND_THE_POOL),
    )  # fmt: skip
    assert names(grouped([beyond, unheld, cached])) == [
        ["f-00000002", "f-00000001"],
        ["f-00000003"],
    ]


def test_misuse_and_what_legal_calls_break_are_never_one_bug(found):
    legal = found("f-00000001", "I1", LEAK, "block 0 is lost", Allocate(1), Free((0,)))
    misused = found(
        "f-00000002", "MISUSE", LEAK, "block 0 is lost", Allocate(1), Free((0,)),
        **misuse(MisuseKind.BLOCK_NOT_HELD),
    )  # fmt: skip
    assert names(grouped([legal, misused])) == [["f-00000001"], ["f-00000002"]]


def test_levels_are_kept_apart(found):
    pool = found("f-00000001", "IDX", WRONG, "block 0 shows", *CACHED, Lookup(A))
    other = found("f-00000002", "IDX", WRONG, "block 0 shows", *CACHED, Lookup(A))
    other = replace(other, trace=replace(other.trace, level="queue"))
    assert len(grouped([pool, other])) == 2


def test_the_worst_form_leads_and_then_the_shortest(found):
    leak = found("f-00000001", "I1", LEAK, "lost", Free((0,)))
    long = found("f-00000002", "I1", WRONG, "free and held", *CACHED, Free((0,)))
    short = found("f-00000003", "I1", WRONG, "free and held", Allocate(1), Free((0,)))
    assert names(grouped([leak, long, short])) == [["f-00000003", "f-00000002", "f-00000001"]]


def test_a_form_may_join_two_groups(found):
    one = found("f-00000001", "I1", LEAK, "lost", Allocate(1), Free((0,)))
    other = found("f-00000002", "IDX", WRONG, "block 0 shows", *CACHED, Free((0,)))
    between = found("f-00000003", "I1", WRONG, "held", *CACHED, Free((0,)))
    assert len(grouped([one, other])) == 2
    assert names(grouped([one, other, between])) == [["f-00000002", "f-00000003", "f-00000001"]]


def test_grouping_again_changes_nothing(found):
    findings = [
        found(f"f-0000000{n}", "I1", LEAK, "lost", *CACHED[:n], Free((0,))) for n in range(3)
    ]
    assert grouped(grouped(findings)) == grouped(findings)
