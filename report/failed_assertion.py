"""What a failed assertion prints: a headline, and each finding with the table of its steps.

A test runner shows it in place of a traceback, which would lead into Poolproof and say nothing of
the allocator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from poolproof.certification.certificate import Certificate
from poolproof.certification.finding import Finding
from poolproof.certification.verdict import reasons_inconclusive
from poolproof.contract.trace import Trace
from poolproof.harness.replay import Replay
from poolproof.report.certificate_outputs import Outputs
from poolproof.report.document import Document
from poolproof.report.finding_report import finding_report, harm_of, trace_report
from poolproof.report.text_form import plain_text
from poolproof.report.wording import harm_of_trace

__all__ = ["found_again", "refusal", "unconcluded"]

_MOST_FINDINGS = 3
"""So many are shown whole; a line names each of the others."""


def refusal(certificate: Certificate, found: Sequence[Finding]) -> tuple[str, str]:
    """Headline and report of the findings that fail a run; keeps their traces."""
    files = Outputs().keep_traces(certificate)
    shown, others = found[:_MOST_FINDINGS], found[_MOST_FINDINGS:]
    parts = [plain_text(finding_report(each, files.get(each.fingerprint))) for each in shown]
    parts += [
        f"{each.fingerprint}  {each.violation.invariant}  {harm_of(each)}: "
        f"{each.violation.sentence}\n"
        for each in others
    ]
    number = "1 finding" if len(found) == 1 else f"{len(found)} findings"
    first = found[0]
    headline = (
        f"{certificate.target} does not hold ({number}, depth {certificate.depth}): "
        f"{first.violation.invariant}, {harm_of(first)}"
    )
    return headline, "\n".join(parts).rstrip("\n")


def unconcluded(certificate: Certificate) -> tuple[str, str]:
    """Headline and reasons of a verdict that no finding explains and that is no pass."""
    reasons = list(reasons_inconclusive(certificate))
    reasons += [
        f"{fingerprint} no longer fails: take its entry out of the known file"
        for fingerprint in certificate.fixed_known
    ]
    verdict = "" if certificate.verdict is None else certificate.verdict.value
    headline = f"{certificate.target} is not shown to hold (depth {certificate.depth}): {verdict}"
    return headline, "\n".join(f"  {reason}" for reason in reasons)


def found_again(
    recorded: Trace, outcome: Replay, name: str, target: str | None
) -> tuple[str, str] | None:
    """Headline and report of a trace that breaks something again; None if it holds.

    Where commands were left out, nothing is shown about the bug, and that is said.
    """
    violation = outcome.violation
    if violation is None and not outcome.num_left_out:
        return None
    on = target or recorded.target
    if violation is None:
        commands = f"{outcome.num_left_out} of {len(recorded.commands)} commands"
        headline = f"{name} says nothing about {on} any more: {commands} mean nothing there"
        why = (
            "  the target lacks the verb, or the state that was reached is another one; certify\n"
            "  it anew, keep the trace of what is found, or delete this one with its test"
        )
        return headline, why
    is_same = recorded.violation and recorded.violation.invariant == violation.invariant
    shown = replace(
        recorded,
        target=on,
        commands=outcome.applied,
        violation=violation,
        fingerprint=recorded.fingerprint if is_same else None,
        shown=(),
        harm=recorded.harm if is_same else None,
    )
    document: Document = trace_report(shown)
    headline = f"{name} breaks {on} again: {violation.invariant}, {harm_of_trace(shown)}"
    return headline, plain_text(document).rstrip("\n")
