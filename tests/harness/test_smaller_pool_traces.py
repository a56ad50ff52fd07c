"""The variants of a failing trace that are tried: which there are, and in which order.

Whether a trace ends as small as it can be is tested in test_minimise.py.
"""

from __future__ import annotations

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.commands import Acquire, Allocate, Cache, Lookup
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, AppendTokens
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.smaller_manager_traces import _earlier_growth
from poolproof.harness.smaller_pool_traces import calls_merged, lowered, two_commands_less

A, B, C = (bytes([number]) * 16 for number in range(3))


def candidate(*commands):
    return [RelativeCommand(command) for command in commands]


def test_pairs_go_and_calls_are_merged_in_short_traces_alone():
    short, long = candidate(*[Allocate(1)] * 24), candidate(*[Allocate(1)] * 25)
    assert len(list(two_commands_less(short))) == 24 * 23 / 2
    assert len(list(calls_merged(short))) == 24 * 23
    assert list(two_commands_less(long)) == []
    assert list(calls_merged(long)) == []


@pytest.mark.parametrize(
    ("command", "smaller"),
    [
        (Lookup(C), [Lookup(A), Lookup(B)]),
        (Acquire((B, C)), [Acquire((A, C)), Acquire((B, A)), Acquire((B, B))]),
        (Lookup(A), []),
        (Lookup(b"never seen"), []),
    ],
)
def test_a_hash_gives_way_to_those_that_appeared_before_it(command, smaller):
    context = [Cache((0, 1), (A, B)), Lookup(C)]
    found = lowered(RelativeCommand(command), context)
    assert [item.command for item in found] == smaller


def test_tokens_move_into_the_prompt_of_their_own_sequence():
    one, other = Admit(0, TokenChain((1, 2)), 0), Admit(1, TokenChain((3,)), 0)
    grown = candidate(one, other, AppendTokens(0, (4,)))
    (moved,) = _earlier_growth(grown)
    assert [item.command for item in moved] == [Admit(0, TokenChain((1, 2, 4)), 0), other]
    assert list(_earlier_growth(candidate(other, AppendTokens(0, (4,))))) == []


class RefusesNumberThree(CleanManager):
    def admit(self, seq_id, tokens, **named):
        return 99 if seq_id == 3 else super().admit(seq_id, tokens, **named)


def test_sequences_keep_their_numbers_where_the_failure_needs_them():
    profile = ManagerProfile()
    commands = (Admit(3, TokenChain((0,)), 0),)
    trace = Trace("x", "manager", profile, 2, True, commands, options={"block_size": 4})
    smallest = minimise(trace, execute_in_process(lambda n, _: RefusesNumberThree(n, 4)))
    assert smallest.commands == commands
    assert smallest.violation is not None
