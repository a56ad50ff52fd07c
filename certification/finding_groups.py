"""Which findings are forms of one bug: those that one fix would probably repair.

Judged by symptom, operation and state. Either the same is broken, as badly, in the same words but
for names and numbers; or the same sort of operation breaks the same invariant, does the same harm,
or is met in the same state. All misuse of one operation is one missing check. Grouping affects the
listing only: each form of a finding is accepted or not on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from poolproof.certification.finding import Finding
from poolproof.contract.violation import Severity
from poolproof.fuzz.symptom import shape_of, sort_of_operation

__all__ = ["are_one_bug", "grouped", "worst_first"]

_QUEUE_SORTS = {
    "append": "joins the queue",
    "append_n": "joins the queue",
    "prepend_n": "joins the queue",
    "popleft": "leaves the queue",
    "popleft_n": "leaves the queue",
    "remove": "leaves the queue",
}

_LOOKS_UP = frozenset({"lookup", "lookup_prefix", "lookup_chain", "acquire", "admit", "resume"})
"""Operations that show what the prefix index says."""

_OF_THE_INDEX = frozenset({"IDX", "DATA", "I4"})


def worst_first(finding: Finding) -> tuple[bool, int, int, str]:
    """The place of a finding among others: misuse last, then by severity and length."""
    is_misuse = finding.violation.invariant == "MISUSE"
    return is_misuse, finding.severity.rank, finding.num_commands, finding.fingerprint


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """A finding for each bug, the worst first, with its other forms behind it."""
    groups: list[list[Finding]] = []
    alone = [form for finding in findings for form in finding.each_form]
    for finding in sorted(alone, key=worst_first):
        apart, joined = [], [finding]
        for group in groups:
            if any(are_one_bug(finding, other) for other in group):
                joined = [*group, *joined]
            else:
                apart.append(group)
        groups = [*apart, joined]
    with_forms = [_with_forms(sorted(group, key=worst_first)) for group in groups]
    return tuple(sorted(with_forms, key=worst_first))


def _with_forms(group: Sequence[Finding]) -> Finding:
    return replace(group[0], forms=tuple(group[1:]))


def are_one_bug(one: Finding, other: Finding) -> bool:
    """Whether one fix would probably repair both."""
    if one.level != other.level:
        return False
    first, second = one.kind, other.kind
    if (first.misuse is None) != (second.misuse is None):
        return False
    if first.misuse is not None:
        return first.operation == second.operation
    if _symptom(one) == _symptom(other):
        return True
    if {first.invariant, second.invariant} <= _OF_THE_INDEX and _both_look_up(one, other):
        return first.severity is second.severity or _of_one_state(one, other)
    if _sort(one) != _sort(other):
        return False
    return (
        first.invariant == second.invariant
        or first.severity is second.severity
        or _of_one_state(one, other)
    )


def _symptom(finding: Finding) -> tuple[str, Severity, str]:
    violation = finding.violation
    return violation.invariant, violation.severity, shape_of(finding.whole_trace())


def _both_look_up(one: Finding, other: Finding) -> bool:
    return one.kind.operation in _LOOKS_UP and other.kind.operation in _LOOKS_UP


def _sort(finding: Finding) -> str:
    operation = finding.kind.operation
    return _QUEUE_SORTS.get(operation, sort_of_operation(operation))


def _of_one_state(one: Finding, other: Finding) -> bool:
    """Whether both were brought by operations of the same sorts to where the last one failed."""
    before, others = (
        [sort_of_operation(command.verb) for command in found.trace.commands[:-1]]
        for found in (one, other)
    )
    return before == others
