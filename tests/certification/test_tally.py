"""Which failing traces of a stage are made smaller."""

from __future__ import annotations

from poolproof.certification.driving import Tally
from poolproof.certification.jobs import ChunkResult
from poolproof.contract.commands import Allocate
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.failure_kind import FailureKind

WRONG, LEAK = Severity.WRONG_DATA_OF_ANOTHER, Severity.LEAK


def failing(samples, operation="lookup", severity=WRONG, length=4):
    """A trace of so many commands, whose last is of this operation."""
    by_name = {command.operation: command for command in samples.COMMANDS}
    commands = (*[Allocate(1)] * (length - 1), by_name[operation])
    violation = Violation("IDX", severity, "it is wrong", (), len(commands) - 1)
    return samples.trace(commands=commands, violation=violation)


def looked_into(traces, found=(), accepted=()):
    result = ChunkResult()
    for trace in traces:
        result.add(trace)
    total = Tally(frozenset(accepted))
    total.add(result)
    return [trace for trace, _ in total.large_traces(found)]


def test_of_one_promise_that_is_broken_as_badly_the_shortest_large_trace_will_do(samples):
    short, long = failing(samples, length=3), failing(samples, "free", length=9)
    assert looked_into([long, short]) == [short]


def test_a_large_trace_of_another_harm_is_looked_into(samples):
    traces = [failing(samples), failing(samples, "free", LEAK)]
    assert looked_into(traces) == traces


def test_what_refuses_the_target_already_is_not_looked_into_at_large_sizes(samples):
    found = [FailureKind("IDX", WRONG, "allocate")]
    assert looked_into([failing(samples, "lookup")], found) == []
    leak = failing(samples, "lookup", LEAK)
    assert looked_into([leak], found) == [leak]


def test_what_may_be_accepted_hides_nothing_at_large_sizes(samples):
    accepted = FailureKind("IDX", WRONG, "free")
    traces = [failing(samples, "free"), failing(samples, "lookup")]
    assert looked_into(traces, [accepted], [accepted]) == traces
