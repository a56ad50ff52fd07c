"""What a manager's finding leads to: the read that shows wrong data, or that none was seen.

An invariant such as IDX or I2 fears wrong data: a block with another content is in the index, two
requests hold one block. Whether anybody reads it is tried out. Behind the minimised trace, and if
need be behind the run as it was found, continuations are played in which nothing but reads is
judged (`harness/continuations.py`). The first wrong read is the finding's consequence; without one
its severity is what was shown (`WITHOUT_A_READ` in invariants/catalogue.py).

Pools, queues and indexes read nothing, so that wrong data is feared there and never shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from poolproof.certification.jobs import make_for
from poolproof.certification.json_fields import FieldError, Fields
from poolproof.certification.manager_watch import watch
from poolproof.contract.trace import Trace, TraceError
from poolproof.contract.trace_harm import TraceHarm
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.continuations import Continued, continued, shortened
from poolproof.harness.failure_kind import failure_kind, harm_feared
from poolproof.harness.isolation import Beacon, Finished, Lost
from poolproof.invariants.catalogue import WITHOUT_A_READ
from poolproof.targets.target import Target

__all__ = [
    "WRONG_DATA",
    "Consequence",
    "ReadSearch",
    "consequence_of",
    "fears_wrong_data",
    "harm_of",
    "read_name",
    "search_read",
    "shorten_read",
]

WRONG_DATA = frozenset({Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN})

MOST_WORK = 8_000
"""Commands and built blocks that are spent behind one trace, shortening left out."""

_SHARE_OF_A_FORM = 4
"""A further form of a bug gets one in so many of these."""

_LONGEST_RUN = 200
"""Of a run as it was found; those at the sizes of servers are longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """What a finding that fears wrong data leads to, as far as was tried.

    `severity` is what was shown. `trace` ends in the wrong read, and is None if none was seen in
    `num_continuations` with `num_commands` behind the finding's own traces. `remark` says what
    ended the search early.
    """

    severity: Severity
    trace: Trace | None = None
    num_continuations: int = 0
    num_commands: int = 0
    remark: str = ""

    @property
    def read(self) -> Violation | None:
        """The wrong read, or None."""
        return None if self.trace is None else self.trace.violation

    def to_json(self) -> dict[str, Any]:
        """This consequence as plain JSON values; the trace as the records of a trace file."""
        return {
            "severity": self.severity.value,
            "sentence": None if self.read is None else self.read.sentence,
            "trace": None if self.trace is None else [json.loads(x) for x in self.trace.lines()],
            "continuations": self.num_continuations,
            "commands": self.num_commands,
            "remark": self.remark,
        }

    @classmethod
    def from_json(cls, value: Any, what: str) -> Consequence:
        """The consequence that `to_json` wrote; `what` has it. Raises FieldError."""
        read = Fields(value, f"{what}: its consequence")
        trace = None
        if read.has("trace"):
            name = f"{what}: the trace of its consequence"
            try:
                trace = Trace.from_lines(map(json.dumps, read.items("trace")), name)
            except TraceError as error:
                raise FieldError(str(error)) from error
            if trace.violation is None:
                raise FieldError(f"{name} has no violation")
        return cls(
            severity=read.one_of("severity", Severity),
            trace=trace,
            num_continuations=read.integer("continuations"),
            num_commands=read.integer("commands"),
            remark=read.text("remark"),
        )


def fears_wrong_data(trace: Trace) -> bool:
    """Whether the trace's violation is said to be wrong data without being a read itself."""
    violation = trace.violation
    if violation is None or violation.severity not in WRONG_DATA:
        return False
    # What breaks DATA in a pool are two contents with one hash, which nobody has read there.
    return violation.invariant != "DATA" or not trace.level.has_sequences


def harm_of(trace: Trace, consequence: Consequence | None) -> TraceHarm:
    """What the trace of a finding says of its harm; the read has a trace of its own."""
    assert trace.violation is not None
    feared = harm_feared(trace.violation, trace.commands)
    if consequence is None:
        return feared
    harm = replace(
        feared,
        severity=consequence.severity,
        num_continuations=consequence.num_continuations,
        num_commands=consequence.num_commands,
        remark=consequence.remark,
        was_tried=True,
    )
    if consequence.trace is None or consequence.read is None:
        return harm
    kind = failure_kind(consequence.read, consequence.trace.commands)
    sentence = consequence.read.sentence
    return replace(harm, invariant=kind.invariant, operation=kind.operation, sentence=sentence)


def read_name(fingerprint: str) -> str:
    """The name of the trace up to the wrong read to which a finding leads: "r-" and its digits."""
    return f"r{fingerprint[1:]}"


@dataclass(frozen=True, slots=True)
class ReadSearch:
    """A manager's minimal trace to go on behind, and the run as it was found.

    A further form of a bug that was looked into is given less.
    """

    trace: Trace
    found: Trace
    is_further_form: bool

    @property
    def starts(self) -> tuple[Trace, ...]:
        """The traces to go on behind, in turn."""
        is_short = len(self.found.commands) <= _LONGEST_RUN
        is_other = self.found.commands != self.trace.commands
        return (self.trace, self.found) if is_short and is_other else (self.trace,)

    @property
    def most_work(self) -> int:
        """Commands and built blocks for each of them."""
        return MOST_WORK // (_SHARE_OF_A_FORM if self.is_further_form else 1)


def search_read(target: Target, task: ReadSearch, beacon: Beacon) -> Continued:
    """The job: look for a wrong read; `beacon.mark` holds the number of the continuation."""
    make = make_for(target, task.trace)
    done = Continued()
    for start in task.starts:
        first = done.num_continuations + 1
        more = continued(
            start, make, task.most_work, begin=beacon.mark, announce=beacon.bump, first=first
        )
        more.num_continuations += done.num_continuations
        more.num_commands += done.num_commands
        done = more
        if done.trace is not None or done.unusable:
            break
    return done


def shorten_read(target: Target, traces: tuple[Trace, Trace], beacon: Beacon) -> Trace:
    """The job: of a finding's trace and one up to a wrong read, the second made shorter."""
    whole, found = traces
    make = make_for(target, whole)
    short = shortened(whole, found, make, beacon.bump)
    return replace(short, shown=watch(short, make, beacon).shown)


def consequence_of(task: ReadSearch, outcome: Finished[Continued] | Lost) -> Consequence:
    """What the job showed; a worker that it cost ends the search."""
    assert task.trace.violation is not None
    # An adapter may report under a name of its own.
    without = WITHOUT_A_READ.get(task.trace.violation.invariant, Severity.BOOKKEEPING)
    if isinstance(outcome, Lost):
        number = max(0, outcome.mark - 1)
        why = outcome.sentence(f"continuation {outcome.mark}" if outcome.mark else "looking for it")
        return Consequence(severity=without, num_continuations=number, remark=why)
    done = outcome.value
    if done.trace is not None:
        assert done.trace.violation is not None
        without = done.trace.violation.severity
    elif done.unusable:
        # What was answered names no block, or no number: nobody can go on with it.
        without = Severity.CRASH
    remark = f"no run can go on behind it: {done.unusable}" if done.unusable else ""
    return Consequence(
        severity=without,
        trace=done.trace,
        num_continuations=done.num_continuations,
        num_commands=done.num_commands,
        remark=remark,
    )
