"""What a minimised failing run looks like to a person: the same for all forms of one bug, mostly.

Minimising ends where no smaller trace was found, and one bug is often met in several such places:
with a block evicted or one touched, resumed or admitted anew. Their traces differ and with them
their fingerprints, while the sentence stays the same but for its names and numbers. A symptom is
that sentence, with the kind of failure, its severity, and what sort of command showed it.

Two bugs can share a symptom, and then count as one until the first is mended: how often, is
measured by benchmarks/campaign_duplicates.py. Nothing here drives a target.
"""

from __future__ import annotations

import re

from poolproof.contract.trace import Trace
from poolproof.harness.failure_kind import failure_kind

__all__ = ["shape_of", "sort_of_operation", "symptom_of"]

_SORTS = {
    "takes blocks": (
        "admit", "resume", "append_tokens", "schedule", "draft", "fork", "load", "swap_in",
        "allocate", "acquire",
    ),
    "gives blocks back": (
        "finish", "abort", "preempt", "truncate", "accept", "swap_out", "free",
    ),
}  # fmt: skip
"""Commands that are one another's neighbours on the way to a bug; any other is its own sort."""

_SORT_OF = {verb: sort for sort, verbs in _SORTS.items() for verb in verbs}

_ERASED = (
    # What two prefixes differ in: whoever reads a stale block reads any that stood there.
    (re.compile(r": (?:only (?:the|an) [a-z, ]+ differs?|the tokens differ |the one is \d).*"), ""),
    # A prompt, and what stood in it.
    (re.compile(r"<[^<>]*>"), "<>"),
    # Arguments, owners, remarks; twice, since they are nested once.
    (re.compile(r"\([^()]*\)"), "()"),
    (re.compile(r"\([^()]*\)"), "()"),
    (re.compile(r"\[[^\[\]]*\]"), "[]"),
    # A hash has a digit, or nearly always; a word has none.
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "#"),
    (re.compile(r"-?\d+"), "#"),
    # The name of a sequence.
    (re.compile(r"\b[A-Z]\b"), "A"),
    # One or several.
    (re.compile(r"(#|\bA\b)(?:(?:, | and )(?:#|\bA\b))+"), r"\1"),
    (re.compile(r"\b(block|owner|sequence|command|token|request)s\b"), r"\1"),
    (re.compile(r"\bcopies\b"), "copy"),
    (re.compile(r"\bare\b"), "is"),
    (re.compile(r"\bhave\b"), "has"),
)


def sort_of_operation(verb: str) -> str:
    """What the command does to the pool, in words that its neighbours share."""
    return _SORT_OF.get(verb, verb)


def symptom_of(trace: Trace) -> str:
    """The symptom of a trace that ends in a violation."""
    violation = trace.violation
    assert violation is not None
    verb = trace.commands[-1].verb if trace.commands else ""
    # What is read is read after every command, so the one at hand says nothing.
    sort = "" if violation.invariant == "DATA" else sort_of_operation(verb)
    kind = failure_kind(violation, trace.commands)
    misuse = "" if kind.misuse is None else f" ({kind.misuse})"
    return f"{kind.promise}{misuse} | {violation.severity.value} | {sort} | {shape_of(trace)}"


def shape_of(trace: Trace) -> str:
    """The sentence of a trace's violation without its names and numbers."""
    assert trace.violation is not None
    verb = trace.commands[-1].verb if trace.commands else ""
    shape = trace.violation.sentence
    for pattern, instead in _ERASED:
        shape = pattern.sub(instead, shape)
    return re.sub(rf"\b{verb}\(\)", "it()", shape) if verb else shape
