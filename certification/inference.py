"""Infers a profile: the rows to change, as few as possible, so that a target holds.

Each failure is a conflict: at least one row has to change so that its trace passes. The search
keeps a queue of sets of changes, begins with none, and takes the cheapest set first: each row costs
one, and one more where its value checks less than others; of equal sets comes first what checks
most. A set under which a known failure still breaks is extended by each change that makes that
trace pass, or by pairs where no single change does. Only a set under which every known failure
passes is driven, which may find further failures. What survives is made smaller, each row as strict
as it can be, and certified.

A profile that holds is a guess about the design. A row that states another design is as strict as
the first: the target does all the time what it says, and under every other value it fails. A row
that silences a check is no such evidence, since a bug that the check finds passes under it as well
as a design that never made the promise. So only the first kind is proposed as the target's profile.
Where rows of the second kind are needed the outcome is `SILENCED`, which decides nothing, and each
comes with the shortest failure that it hides.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from poolproof.certification import certify as certification
from poolproof.certification.certificate import Certificate, Verdict
from poolproof.certification.driving import Driving, described, kinds_of
from poolproof.certification.jobs import effort_to_read
from poolproof.certification.options import CertifyOptions
from poolproof.certification.profile_trials import Changes, ProfileTrials, TrialLostError
from poolproof.certification.progress import StageProgress
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.profile import Profile
from poolproof.contract.profile_costs import RowChange, alternatives, ladder, with_changes
from poolproof.contract.trace import Trace
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.isolation import Executor, ImporterError, InProcess, Isolation
from poolproof.stateful_tests.warm_up import warmed_up
from poolproof.targets.target import Target

__all__ = ["InferenceOutcome", "InferredProfile", "infer"]

LoadWith = Callable[[Mapping[str, Any]], Callable[[], Target]]

MOST_DRIVES = 80
MOST_REPLAYS = 60_000
MOST_CERTIFICATES = 4
MOST_ROWS = 6
MOST_LOSSES = 3
"""Budgets are counts, so that the same target gets the same answer on every machine."""


class InferenceOutcome(enum.Enum):
    """How an inference ended."""

    HOLDS_AS_DECLARED = "the target holds under its own profile"
    FOUND = "the target holds with other rows, each as strict as the declared one"
    SILENCED = "the target holds only where rows silence a check"
    NO_ROWS = "no row explains this"
    BUDGET = "the budget ended before every set of rows was tried"
    LOST = "the target cost a worker, so that rows could not be tried"


_HOLDING = frozenset(
    {InferenceOutcome.HOLDS_AS_DECLARED, InferenceOutcome.FOUND, InferenceOutcome.SILENCED}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredProfile:
    """What `infer_profile` found.

    `changes` are the rows of `declared` to change, each with its cost; `profile` is the result,
    None where there is none. `unexplained` is the failure that no row explains, if that is how it
    ended, and `why` says in a sentence how it ended otherwise. `certificate` is that of the run
    that confirmed the profile. `explained` has the shortest failure that only the change of a row
    makes pass, by row.
    """

    target: str
    outcome: InferenceOutcome
    declared: Profile
    changes: tuple[RowChange, ...] = ()
    unexplained: Trace | None = None
    why: str = ""
    certificate: Certificate | None = None
    explained: Mapping[str, Trace] = field(default_factory=dict)
    num_failures: int = 0
    num_replays: int = 0
    num_drives: int = 0

    @property
    def silencing(self) -> tuple[RowChange, ...]:
        """The changes under which something is not asked or not judged that was before."""
        return tuple(change for change in self.changes if change.checks_less)

    @property
    def profile(self) -> Profile | None:
        """The profile under which the target holds, whether it is one to propose or not."""
        if self.outcome not in _HOLDING:
            return None
        return with_changes(self.declared, self.changes)

    @property
    def rows(self) -> dict[str, Any]:
        """The rows to paste into the target: those that it states, with the changed ones."""
        profile = with_changes(self.declared, self.changes)
        return {k: v for k, v in profile.to_json().items() if k not in profile.assumed}

    @property
    def exit_status(self) -> int:
        """0 for a profile that holds, 1 where no row explains a failure, 2 where nobody knows.

        Nobody knows where a row silences a check, either.
        """
        if self.outcome is InferenceOutcome.NO_ROWS:
            return 1
        sure = self.certificate is not None and self.certificate.verdict is Verdict.HOLDS
        return 0 if self.profile is not None and not self.silencing and sure else 2


@dataclass(order=True)
class _Try:
    """A set of changes in the queue: the cheapest first, of equal ones that which checks most."""

    cost: int
    num_checking_less: int
    number: int
    changes: Changes = field(compare=False)


def infer(load_with: LoadWith, options: CertifyOptions, progress: StageProgress) -> InferredProfile:
    """The profile under which the target holds that `load_with` loads, given further rows.

    Raises TargetError when the target cannot be run at all.
    """
    load = load_with({})
    executor: Isolation[Target] | InProcess[Target] = (
        InProcess(load)
        if options.in_process
        else Isolation(warmed_up(load), options.limits, workers=options.workers)
    )
    try:
        with executor:
            return _Inference(executor, load_with, options, progress).run()
    except ImporterError as error:
        raise error.as_known() from error


class _Inference:
    """One inference in progress; `_failures` are all that were met, under whichever rows."""

    def __init__(
        self,
        executor: Executor[Target],
        load_with: LoadWith,
        options: CertifyOptions,
        progress: StageProgress,
    ) -> None:
        progress.begin("looking at the target")
        self._about = described(executor)
        self._load_with = load_with
        self._options = options
        self._progress = progress
        self._kinds = kinds_of(self._about, options)
        driving = Driving(executor, self._about, options, progress)
        self._trials = ProfileTrials(
            driving, self._about, self._kinds, options.seed, progress.advance
        )
        first = next((layout.profile for layout in self._about.layouts if not layout.why_not), None)
        self._declared = first or self._about.profile
        self._candidates: tuple[RowChange, ...] = ()
        self._failures: list[Trace] = []
        self._queue: list[_Try] = []
        self._met: set[frozenset[tuple[str, Any]]] = set()
        self._numbers = count()
        self._num_certificates = 0
        self._num_too_long = 0
        self._lost: list[str] = []
        self._unexplained: Trace | None = None

    def run(self) -> InferredProfile:
        try:
            if self._about.unbuilt is not None:
                return self._ended(InferenceOutcome.LOST, why=self._about.unbuilt.sentence)
            return self._search()
        finally:
            self._progress.end()

    def _search(self) -> InferredProfile:
        self._candidates = alternatives(self._declared, numbers=self._trials.numbers_seen())
        self._push([()])
        while self._queue:
            if self._is_over_budget():
                return self._ended(InferenceOutcome.BUDGET, why=self._spent())
            changes = heapq.heappop(self._queue).changes
            try:
                found = self._settled(changes)
            except TrialLostError as lost:
                self._lost.append(str(lost))
                if not changes or len(self._lost) == MOST_LOSSES:
                    break
                continue
            if found is not None:
                return found
            if not changes and not self._queue:
                break  # nothing explains the first failure
        if self._lost:
            return self._ended(InferenceOutcome.LOST, why=self._lost[-1])
        if self._num_too_long:
            why = f"more than {MOST_ROWS} rows would have to change"
            return self._ended(InferenceOutcome.BUDGET, why=why)
        assert self._unexplained is not None
        named = replace(self._unexplained, fingerprint=fingerprint_of(self._unexplained))
        return self._ended(InferenceOutcome.NO_ROWS, unexplained=named)

    def _settled(self, changes: Changes) -> InferredProfile | None:
        """The end of the search if the target holds under these; else larger sets are queued."""
        broken = self._broken(changes)
        if broken is None:
            changes = self._made_smaller(changes)
            certificate = self._certified(changes)
            if not certificate.findings:
                return self._found(changes, certificate)
            traces = [form.trace for one in certificate.findings for form in one.each_form]
            self._take_in(traces)
            broken = self._broken_already(changes)
            if broken is None:
                # It fails in the target that was built to these rows, and in no other.
                self._unexplained = self._unexplained or traces[0]
                return None
        if not self._extend(changes, broken):
            self._unexplained = self._unexplained or broken
        return None

    def _broken(self, changes: Changes) -> Trace | None:
        """A failure that shows under these changes: a known one, or one that a drive finds."""
        known = self._broken_already(changes)
        if known is not None:
            return known
        self._progress.begin(f"driving under {_words(changes)}")
        found = self._trials.failures(changes)
        self._take_in(found)
        return found[0] if found else None

    def _broken_already(self, changes: Changes) -> Trace | None:
        going = self._trials.courses(self._failures, [changes])
        return next((t for t, c in zip(self._failures, going, strict=True) if not c.passes), None)

    def _holds(self, changes: Changes) -> bool:
        try:
            return self._broken(changes) is None
        except TrialLostError:
            return False

    def _extend(self, changes: Changes, broken: Trace) -> bool:
        """Put each larger set into the queue under which the trace passes; whether there is one."""
        rows = {change.row for change in changes}
        singles = [one for one in self._candidates if one.row not in rows]
        if len(changes) >= MOST_ROWS:
            self._num_too_long += 1
            return True
        self._progress.begin(f"explaining what fails under {_words(changes)}")
        before, *going = self._trials.courses(
            [broken], [changes, *((*changes, one) for one in singles)]
        )
        ended = list(zip(singles, going, strict=True))
        passing: list[Changes] = [(one,) for one, course in ended if course.passes]
        if not passing and len(changes) + 2 <= MOST_ROWS:
            pairs = list(_pairs([one for one, course in ended if course != before], singles))
            going = self._trials.courses([broken], [(*changes, *pair) for pair in pairs])
            passing = [pair for pair, course in zip(pairs, going, strict=True) if course.passes]
        self._push((*changes, *further) for further in passing)
        return bool(passing)

    def _made_smaller(self, changes: Changes) -> Changes:
        """Without the rows that are not needed, and each other row as strict as it can be."""
        for change in changes:
            rest = tuple(one for one in changes if one.row != change.row)
            stricter = ((*rest, other) for other in ladder(self._declared, change))
            for other in (rest, *(stricter if change.checks_less else ())):
                if other and self._is_new(other) and self._holds(other):
                    changes = other
                    break
        return changes

    def _certified(self, changes: Changes) -> Certificate:
        self._num_certificates += 1
        rows = {change.row: change.value for change in changes}
        options = replace(
            self._options, profile_overrides={**self._options.profile_overrides, **rows}
        )
        found = certification.certify(self._load_with(rows), options, self._progress)
        return judge(found, Rules())

    def _push(self, tries: Iterable[Changes]) -> None:
        for changes in tries:
            if self._is_new(changes):
                self._met.add(_key(changes))
                less = sum(change.checks_less for change in changes)
                one = _Try(len(changes) + less, less, next(self._numbers), changes)
                heapq.heappush(self._queue, one)

    def _is_new(self, changes: Changes) -> bool:
        return _key(changes) not in self._met

    def _take_in(self, traces: Iterable[Trace]) -> None:
        self._failures += (trace for trace in traces if trace not in self._failures)

    def _is_over_budget(self) -> bool:
        return (
            self._trials.num_drives >= MOST_DRIVES
            or self._trials.num_replays >= MOST_REPLAYS
            or self._num_certificates >= MOST_CERTIFICATES
        )

    def _spent(self) -> str:
        return (
            f"{self._trials.num_replays:,} replays; of profiles {self._trials.num_drives} driven, "
            f"{self._num_certificates} certified"
        )

    def _found(self, changes: Changes, certificate: Certificate) -> InferredProfile:
        outcome = InferenceOutcome.FOUND if changes else InferenceOutcome.HOLDS_AS_DECLARED
        if any(change.checks_less for change in changes):
            outcome = InferenceOutcome.SILENCED
        explained = self._explained_by_row(changes)
        return self._ended(outcome, changes=changes, certificate=certificate, explained=explained)

    def _explained_by_row(self, changes: Changes) -> dict[str, Trace]:
        """By row the shortest failure that is one as soon as that row is as it was declared."""
        explained: dict[str, Trace] = {}
        for change in changes:
            rest = tuple(one for one in changes if one is not change)
            going = self._trials.courses(self._failures, [rest])
            met = [t for t, course in zip(self._failures, going, strict=True) if not course.passes]
            if met:
                trace = min(met, key=effort_to_read)
                explained[change.row] = replace(trace, fingerprint=fingerprint_of(trace))
        return explained

    def _ended(self, outcome: InferenceOutcome, **known: Any) -> InferredProfile:
        return InferredProfile(
            target=self._about.name,
            outcome=outcome,
            declared=self._declared,
            num_failures=len(self._failures),
            num_replays=self._trials.num_replays,
            num_drives=self._trials.num_drives,
            **known,
        )


def _pairs(moved: Sequence[RowChange], others: Sequence[RowChange]) -> Iterator[Changes]:
    """Pairs of rows, one of which makes the replay go another way; each pair once."""
    for place, one in enumerate(moved):
        for other in others:
            if other.row != one.row and other not in moved[:place]:
                yield one, other


def _key(changes: Changes) -> frozenset[tuple[str, Any]]:
    return frozenset((change.row, change.value) for change in changes)


def _words(changes: Changes) -> str:
    return ", ".join(map(str, changes)) or "the declared profile"
