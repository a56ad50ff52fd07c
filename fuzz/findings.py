"""What a campaign found, on its way from a failing run to a finding with a name.

A failing run is stored as it is at once, then minimised, then named; two that get the same name are
one finding, and one that shows the symptom of a known finding is a form of that. A bug may fail
thousands of runs, so only some of each kind of failure are minimised, and the others counted.
Minimising goes in slices; its progress is stored in between.

A trace is kept as text, in the words of a trace file.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from poolproof.contract.trace import Trace, TraceError, read_trace
from poolproof.contract.trace_harm import TraceHarm
from poolproof.fuzz.status import FindingLine, WaitingLine
from poolproof.fuzz.symptom import symptom_of
from poolproof.harness.failure_kind import failure_kind, harm_feared
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.isolation import Lost
from poolproof.harness.minimise import Cursor, Minimisation

__all__ = [
    "MOST_OF_A_KIND",
    "CampaignFinding",
    "Examination",
    "Examiner",
    "Pending",
    "alike",
    "kind_of",
    "line_of",
    "named",
    "text_of",
    "trace_of",
    "waiting_line_of",
]


def text_of(trace: Trace) -> str:
    """The lines of the trace's file."""
    return "\n".join(trace.lines()) + "\n"


def trace_of(text: str) -> Trace:
    """What `text_of` wrote, checked as a file is. Raises TraceError, ValueError for no text."""
    with tempfile.TemporaryDirectory(prefix="poolproof-") as folder:
        path = Path(folder, "trace")
        path.write_text(text, encoding="utf-8")
        try:
            return read_trace(path)
        except TraceError as error:
            raise TraceError(str(error).replace(str(path), "its trace")) from error


MOST_OF_A_KIND = 12
"""So many failing runs of one kind are minimised in a session: a second bug may hide behind one."""


class Examiner(Protocol):
    """What can be learnt about a failing run by running the target."""

    def culprit(self, tape: bytes, lost: Lost) -> Trace:
        """The trace of a run that cost its worker, with the violation that represents the loss."""
        ...

    def examined(self, so_far: Examination, seconds: float) -> Examination:
        """Continue an examination for about that long, by one attempt at least.

        A minimal trace is then replaced by a shortest one, if a search finds it;
        `so_far.num_searches` counts the searches that were begun, this one included. Last, where
        wrong data is feared, a read of it is looked for.
        """
        ...

    def still_fails(self, trace: Trace) -> bool:
        """Whether a minimised trace of an earlier session still breaks the same."""
        ...


@dataclass(frozen=True, slots=True)
class Examination:
    """How far a failing run has been examined.

    With `is_apart` each attempt gets a worker of its own, since some attempts cost it. `harm` is
    looked for last, and None for what fears no wrong data.
    """

    progress: Minimisation
    is_apart: bool = False
    num_searches: int = 0
    is_done: bool = False
    harm: TraceHarm | None = None

    @property
    def trace(self) -> Trace:
        """The smallest trace so far; without violation if it did not fail again."""
        return self.progress.trace

    @property
    def is_minimised(self) -> bool:
        """Whether only the search for a shortest trace is left."""
        return self.progress.cursor.is_finished

    def to_json(self) -> dict[str, Any]:
        """All but the trace, as plain JSON values."""
        cursor = asdict(self.progress.cursor)
        return {"cursor": cursor, "is_apart": self.is_apart, "num_searches": self.num_searches}

    @classmethod
    def from_json(cls, trace: Trace, value: Mapping[str, Any]) -> Examination:
        """What `to_json` wrote, with its trace. Raises TypeError, KeyError."""
        cursor = Cursor(**{**value["cursor"], "place": tuple(value["cursor"]["place"])})
        return cls(Minimisation(trace, cursor), bool(value["is_apart"]), int(value["num_searches"]))


@dataclass(frozen=True, slots=True)
class Pending:
    """A failing run that waits to be minimised; steps and seconds are the campaign's.

    `examination` says how far that has come; None if it was not begun.
    """

    trace: Trace
    tape: bytes
    steps: int
    seconds: float
    was_lost: bool = False
    examination: Examination | None = None

    @property
    def name(self) -> str:
        """Its name; the same failing run always has the same one."""
        return hashlib.sha256(text_of(self.trace).encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """What it is called before it has a fingerprint."""
        return f"p-{self.name[:8]}"

    @property
    def begun(self) -> Examination:
        """Its examination, or the beginning of one."""
        return self.examination or Examination(Minimisation(self.trace), self.was_lost)

    @property
    def best(self) -> Trace:
        """The shortest trace that is known to fail."""
        so_far = self.begun.trace
        return self.trace if so_far.violation is None else so_far


@dataclass(frozen=True, slots=True)
class CampaignFinding:
    """A minimised failing run under its fingerprint, and what it leads to (`TraceHarm`)."""

    fingerprint: str
    kind: str
    trace: Trace
    tape: bytes
    steps: int
    seconds: float
    harm: TraceHarm | None = None

    @property
    def severity(self) -> str:
        """How bad it was shown to be, or where nobody looked, what the broken invariant fears."""
        assert self.trace.violation is not None
        harm = self.trace.violation.severity if self.harm is None else self.harm.severity
        return harm.value

    def whole_trace(self) -> Trace:
        """The trace as it is written to a file: with its harm; the read has a file of its own."""
        if self.harm is not None:
            return replace(self.trace, harm=replace(self.harm, read=""))
        assert self.trace.violation is not None
        harm = harm_feared(self.trace.violation, self.trace.commands)
        return replace(self.trace, harm=harm)

    @property
    def symptom(self) -> str:
        """Findings that share it count as forms of one bug."""
        return symptom_of(self.trace)


def kind_of(trace: Trace) -> str:
    """What counts as the same failure before anything is minimised."""
    assert trace.violation is not None
    return str(failure_kind(trace.violation, trace.commands))


def named(pending: Pending) -> CampaignFinding:
    """The finding that a failing run has turned out to be."""
    minimal = pending.best
    fingerprint = fingerprint_of(minimal)
    return CampaignFinding(
        fingerprint,
        kind_of(pending.trace),
        replace(minimal, fingerprint=fingerprint),
        pending.tape,
        pending.steps,
        pending.seconds,
        pending.begun.harm,
    )


def alike(
    finding: CampaignFinding,
    known: Sequence[CampaignFinding],
    forms: Mapping[str, Sequence[CampaignFinding]],
    is_open: Callable[[CampaignFinding], bool] = lambda _: True,
) -> CampaignFinding | None:
    """The known finding that this is, or is a form of; of several the first.

    A finding that is no longer open, because it was fixed, hides nothing behind its symptom.
    """
    for other in known:
        same = (other, *forms.get(other.fingerprint, ()))
        if any(form.fingerprint == finding.fingerprint for form in same):
            return other
    matching = (other for other in known if other.symptom == finding.symptom)
    return next((other for other in matching if is_open(other)), None)


def line_of(
    finding: CampaignFinding, runs_seen: int, forms: Sequence[CampaignFinding] = ()
) -> FindingLine:
    """The finding as a status shows it, with the other forms in which it was met."""
    violation = finding.trace.violation
    assert violation is not None
    return FindingLine(
        fingerprint=finding.fingerprint,
        invariant=violation.invariant,
        severity=finding.severity,
        sentence=violation.sentence,
        num_commands=len(finding.trace.commands),
        steps=finding.steps,
        seconds=finding.seconds,
        runs_seen=runs_seen,
        forms=tuple(form.fingerprint for form in sorted(forms, key=_length)),
        leads_to=_leads_to(finding.harm),
    )


def _leads_to(harm: TraceHarm | None) -> str:
    """The wrong read to which a finding leads, or that none was seen; "" where nobody looked."""
    if harm is None or harm.sentence:
        return "" if harm is None else harm.sentence
    tried = f"nobody read wrong data in {harm.num_continuations:,} continuations"
    rest = f"; {harm.remark}" if harm.remark else ""
    return f"{tried} ({harm.num_commands:,} commands){rest}"


def waiting_line_of(pending: Pending) -> WaitingLine:
    """The failing run as a status shows it."""
    trace = pending.best
    violation = trace.violation
    assert violation is not None
    return WaitingLine(
        name=pending.label,
        invariant=violation.invariant,
        severity=violation.severity.value,
        sentence=violation.sentence,
        num_commands=len(trace.commands),
        steps=pending.steps,
        seconds=pending.seconds,
    )


def _length(finding: CampaignFinding) -> tuple[int, str]:
    return len(finding.trace.commands), finding.fingerprint
