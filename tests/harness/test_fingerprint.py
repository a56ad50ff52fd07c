"""A finding keeps its name over seeds, block ids and hashes, and nothing else shares it."""

import dataclasses

import pytest

from poolproof.contract.commands import (
    Allocate,
    Cache,
    CacheChain,
    CachePartial,
    Free,
    Lookup,
    Remove,
    Touch,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Fork
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.misuse import MisuseFailure, MisuseKind, MisuseOutcome
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.fingerprint import fingerprint_of

VIOLATION = Violation("IDX", Severity.LOST_HIT, "block 3 is gone", (3,), 2)


def trace_of(*commands, **changes):
    trace = Trace("t", "pool", Profile(), 4, True, commands, violation=VIOLATION)
    return dataclasses.replace(trace, **changes)


def commands_on(first, second, key, other):
    return (
        Allocate(2), Cache((first, second), (key, other)), Free((second, first)), Touch((first,)),
        Lookup(other), Remove(second),
    )  # fmt: skip


A, B = b"a" * 16, b"b" * 16
ONE = commands_on(0, 1, A, B)


def test_a_fingerprint_is_short_and_fixed():
    name = fingerprint_of(trace_of(*ONE))
    assert name == fingerprint_of(trace_of(*ONE))
    assert len(name) == 10
    assert name.startswith("f-")
    assert set(name[2:]) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "same",
    [
        trace_of(*commands_on(7, 2, b"x" * 16, b"y" * 16)),
        trace_of(*ONE, num_blocks=12),
        trace_of(*commands_on(0, 1, b"\x01" * 16, b"\x02" * 16)),
        trace_of(*ONE, target="another", target_version="2"),
        trace_of(*ONE, options={"seed": "1/2"}),
        trace_of(*ONE, profile=Profile(null_block=0)),
        trace_of(*ONE, violation=dataclasses.replace(VIOLATION, sentence="block 7", blocks=(7,))),
    ],
)
def test_names_ids_hashes_and_set_up_do_not_enter(same):
    assert fingerprint_of(same) == fingerprint_of(trace_of(*ONE))


@pytest.mark.parametrize(
    "other",
    [
        trace_of(*ONE[:-1]),
        trace_of(*commands_on(0, 0, A, B)),
        trace_of(*commands_on(0, 1, A, A)),
        trace_of(Allocate(3), *ONE[1:]),
        trace_of(*ONE, enable_caching=False),
        trace_of(*ONE, level="queue"),
        trace_of(*ONE, violation=dataclasses.replace(VIOLATION, invariant="I4")),
        trace_of(*ONE, violation=dataclasses.replace(VIOLATION, severity=Severity.CRASH)),
        trace_of(*ONE, num_blocks=65),
        trace_of(*ONE, options={"layout": "sliding"}),
        trace_of(*ONE, options={"weak_hashes": 4}),
        trace_of(*ONE, num_blocks=4096),
        trace_of(*commands_on(0, 1, bytes(16), B)),
        trace_of(*commands_on(0, 1, A, b"b" * 32)),
        trace_of(*commands_on(0, 1, A, A[:4] + B[4:])),
        trace_of(*commands_on(0, 1, A, B[:12] + A[12:])),
        trace_of(*commands_on(0, 1, A, B[:3] + bytes(2) + B[5:])),
    ],
)
def test_what_happened_enters(other):
    assert fingerprint_of(other) != fingerprint_of(trace_of(*ONE))


def misused(block, kind, outcome=MisuseOutcome.ACCEPTED):
    """A hash for a block that nobody holds, or that is not there: by renaming the same."""
    violation = Violation("MISUSE", Severity.CRASH, "x", misuse=MisuseFailure(kind, outcome))
    return fingerprint_of(trace_of(Cache((block,), (A,)), violation=violation))


def test_misuse_of_another_kind_or_outcome_has_another_name():
    names = [misused(9, kind) for kind in MisuseKind]
    names += [misused(0, MisuseKind.BLOCK_NOT_HELD, outcome) for outcome in MisuseOutcome]
    assert len(set(names)) == len(names) - 1
    assert misused(0, MisuseKind.BLOCK_NOT_HELD) == misused(7, MisuseKind.BLOCK_NOT_HELD)


def test_chains_are_renamed_by_first_appearance():
    def fingerprint(first, second):
        return fingerprint_of(
            trace_of(CacheChain(first, (0,), 0, 0), CachePartial(second, 0, 1, 0))
        )

    one, two, three = (TokenChain((number,)) for number in range(3))
    assert fingerprint(one, two) == fingerprint(three, one)
    assert fingerprint(one, two) != fingerprint(one, one)


def test_a_trace_without_violation_has_no_fingerprint():
    with pytest.raises(AssertionError):
        fingerprint_of(trace_of(violation=None))


def family(parent, child, *tokens):
    commands = Admit(parent, TokenChain(tokens), 0), Fork(parent, child)
    return trace_of(*commands, level="manager", profile=ManagerProfile())


def test_sequences_are_renamed_and_their_tokens_are_not():
    assert fingerprint_of(family(0, 1, 1, 2)) == fingerprint_of(family(7, 3, 1, 2))
    assert fingerprint_of(family(0, 1, 1, 2)) != fingerprint_of(family(0, 0, 1, 2))
    assert fingerprint_of(family(0, 1, 1, 2)) != fingerprint_of(family(0, 1, 1, 3))
