"""A finding: one violation with its shortest known trace, and what is known around it.

Its fingerprint is the same for every seed and every naming of the blocks; the harness computes it.
`finding_report.py` lays a finding out as text; `finding_groups.py` decides which findings are forms
of one bug.
"""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, replace
from typing import Any

from poolproof.certification.consequence import Consequence, harm_of
from poolproof.certification.json_fields import FieldError, Fields
from poolproof.contract.trace import Trace, TraceError
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.extent import Extent, beyond_small
from poolproof.harness.failure_kind import FailureKind, failure_kind

__all__ = ["Finding", "FindingStatus", "Identity", "PublicBug"]


class FindingStatus(enum.Enum):
    """Whether a finding fails the run: known findings and those of the baseline do not."""

    NEW = "new"
    KNOWN = "known"
    BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class PublicBug:
    """A public bug whose minimal trace does and shows the same: its number and its thread."""

    specimen_id: str
    thread: str


@dataclass(frozen=True, slots=True)
class Identity:
    """How a finding is recognised again: by its name, its kind of failure, and what was shown.

    `kind` has the severity that the broken invariant fears, `shown` the one that a consequence
    showed; None where nobody looked, and then it is taken for what is feared.
    """

    fingerprint: str
    kind: FailureKind
    shown: Severity | None = None

    def covers(self, other: Identity) -> bool:
        """Whether the other is the same and was shown to be no worse."""
        worst, its_worst = (one.shown or one.kind.severity for one in (self, other))
        is_same = (self.fingerprint, self.kind) == (other.fingerprint, other.kind)
        return is_same and its_worst.rank >= worst.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One violation, with the other forms in which the same bug was met, as far as can be told.

    `fingerprint` is "f-" and 8 hexadecimal digits. `trace` is minimised and ends in `violation`;
    `first_seen_steps` counts the commands before it was minimised, `runs_seen` the runs that
    showed it, `stages` names the stages that did. `shortest_known` says how short the trace is
    known to be; `ruled_out` names the legal look-alikes that it is not. `consequence` is what a
    manager's finding leads to, if wrong data was feared. `forms` have no forms of their own, and
    none is worse than the finding.
    """

    fingerprint: str
    violation: Violation
    trace: Trace
    stages: tuple[str, ...] = ()
    first_seen_steps: int = 0
    runs_seen: int = 1
    shortest_known: str = ""
    similar: tuple[PublicBug, ...] = ()
    ruled_out: tuple[str, ...] = ()
    status: FindingStatus = FindingStatus.NEW
    remark: str = ""
    consequence: Consequence | None = None
    forms: tuple[Finding, ...] = ()

    @property
    def kind(self) -> FailureKind:
        """The kind of failure that it is."""
        return failure_kind(self.violation, self.trace.commands)

    @property
    def identity(self) -> Identity:
        """How it is recognised again."""
        shown = None if self.consequence is None else self.consequence.severity
        return Identity(self.fingerprint, self.kind, shown)

    @property
    def identities(self) -> frozenset[Identity]:
        """How it is recognised again in each of its forms."""
        return frozenset(form.identity for form in self.each_form)

    @property
    def severity(self) -> Severity:
        """How bad it was shown to be, or where nobody looked, what the broken invariant fears."""
        return self.violation.severity if self.consequence is None else self.consequence.severity

    @property
    def severities(self) -> frozenset[Severity]:
        """How bad it is in each of its forms."""
        return frozenset(form.severity for form in self.each_form)

    @property
    def each_form(self) -> tuple[Finding, ...]:
        """The finding itself without its forms, then these."""
        return (replace(self, forms=()), *self.forms)

    @property
    def level(self) -> str:
        """The level at which it shows, by its name (`Level`)."""
        return self.trace.level

    @property
    def num_commands(self) -> int:
        """The length of the minimised trace."""
        return len(self.trace.commands)

    def to_json(self) -> dict[str, Any]:
        """This finding as plain JSON values; the trace as the records of a trace file."""
        return {
            "fingerprint": self.fingerprint,
            "status": self.status.value,
            "invariant": self.violation.invariant,
            "severity": self.severity.value,
            "operation": self.kind.operation,
            "misuse": None if self.kind.misuse is None else str(self.kind.misuse),
            "sentence": self.violation.sentence,
            "stages": list(self.stages),
            "first_seen_steps": self.first_seen_steps,
            "runs_seen": self.runs_seen,
            "num_commands": self.num_commands,
            "begins_at": self.begins_at,
            "shortest_known": self.shortest_known,
            "similar": [[s.specimen_id, s.thread] for s in self.similar],
            "ruled_out": list(self.ruled_out),
            "remark": self.remark,
            "consequence": None if self.consequence is None else self.consequence.to_json(),
            "trace": [json.loads(line) for line in self.whole_trace().lines()],
            "forms": [form.to_json() for form in self.forms],
        }

    @property
    def begins_at(self) -> dict[str, int]:
        """The sizes beyond those of small runs that the minimal trace still has.

        The search made each as small as it could: with less, no failure was seen.
        """
        return beyond_small(Extent.of_run(self.trace, self.trace.commands))

    def whole_trace(self) -> Trace:
        """The trace as it is written to a file: with violation, fingerprint and harm in it."""
        failing = replace(self.trace, violation=self.violation, fingerprint=self.fingerprint)
        return replace(failing, harm=harm_of(failing, self.consequence))

    @classmethod
    def from_json(cls, value: Any) -> Finding:
        """The finding that `to_json` wrote. Raises FieldError."""
        read = Fields(value, "finding")
        fingerprint = read.text("fingerprint")
        what = f"finding {fingerprint}"
        trace = _trace_of(read.items("trace"), what)
        if trace.violation is None:
            raise FieldError(f"{what}: its trace has no violation")
        return cls(
            fingerprint=fingerprint,
            violation=trace.violation,
            trace=replace(trace, harm=None),  # which the consequence says
            stages=read.texts("stages"),
            first_seen_steps=read.integer("first_seen_steps"),
            runs_seen=read.integer("runs_seen"),
            shortest_known=read.text("shortest_known"),
            similar=tuple(_specimen(item, what) for item in read.items("similar")),
            ruled_out=read.texts("ruled_out"),
            status=read.one_of("status", FindingStatus),
            remark=read.text("remark"),
            consequence=_consequence(read, what),
            # Certificates of version 1 list every form as a finding of its own.
            forms=_forms(read.items("forms"), what) if read.has("forms") else (),
        )


def _consequence(read: Fields, what: str) -> Consequence | None:
    """What was looked for; older certificates say nothing of it. Raises FieldError."""
    if not read.has("consequence"):
        return None
    return Consequence.from_json(read.mapping("consequence"), what)


def _forms(values: list[Any], what: str) -> tuple[Finding, ...]:
    forms = tuple(Finding.from_json(value) for value in values)
    if any(form.forms for form in forms):
        raise FieldError(f"{what}: a form of it has forms of its own")
    return forms


def _specimen(value: Any, what: str) -> PublicBug:
    match value:
        case [str(specimen_id), str(thread)]:
            return PublicBug(specimen_id, thread)
        case _:
            raise FieldError(f"{what}: 'similar' must hold pairs of texts, not {value!r}")


def _trace_of(records: list[Any], what: str) -> Trace:
    try:
        return Trace.from_lines(map(json.dumps, records), f"{what}: its trace")
    except TraceError as error:
        raise FieldError(str(error)) from error
