"""A campaign from the outside: hands out orders, merges reports, records, names findings.

It knows nothing of processes or machines (`workers.py`) and shows nothing itself: `show` gets the
status a few times a second, `say` each new finding once. A finding is on disk before it is said.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from poolproof.fuzz.findings import (
    MOST_OF_A_KIND,
    CampaignFinding,
    Examination,
    Examiner,
    Pending,
    alike,
    kind_of,
    line_of,
    named,
    waiting_line_of,
)
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.level_runs import RUNS_AT
from poolproof.fuzz.merge import News, merge
from poolproof.fuzz.messages import CorpusTape, WorkerOrder, WorkerReport
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus, CurvePoint, with_point
from poolproof.fuzz.workers import Arrival, LostWorker, Workers
from poolproof.harness.ending_signals import signals_wait

__all__ = ["Campaign", "CampaignBudget"]


ROUND_SECONDS = 1.0
"""A worker reports at least so often; what it has not reported is lost with it."""

MOST_LOSSES = 30
"""When the target has cost so many workers the session ends: there is something to repair first."""

MOST_LOSSES_EXAMINED = 3
"""So many lost runs of a kind are repeated and minimised, which may cost a time limit each."""

EXAMINED_AT_ONCE_S = 0.4
"""So long a failing run is examined before what that brought is recorded and others are heard."""

SHARE_TO_MINIMISE = 0.25
"""The part of the time that driving leaves to minimising, where failing runs wait."""

SAID_AFTER_S = 1.0
"""A failing run that waits for longer is named as it is."""

_WAIT_S = 0.25
_TAPES_FOR_A_NEWCOMER = 200


@dataclass(frozen=True, slots=True)
class CampaignBudget:
    """When a session is over: whichever bound comes first. None means no bound.

    `quiet_steps` without a new state and without a new finding end it too. The seconds bound
    minimising as well; the others bound driving, after which waiting runs are minimised.
    """

    seconds: float | None = None
    steps: int | None = None
    quiet_steps: int | None = None


class Campaign:
    """One session of a campaign over some workers and a folder.

    `tapes` from elsewhere join the corpus of every worker. `say_waiting` gets failing runs that
    are not minimised at once, one of each unknown kind. `labels_settled` are those that have become
    findings, or forms of one.
    """

    def __init__(
        self,
        settings: CampaignSettings,
        workers: Workers,
        folder: CampaignFolder,
        examiner: Examiner,
        *,
        budget: CampaignBudget,
        scope: str,
        num_possible: int | None,
        show: Callable[[CampaignStatus], None],
        say: Callable[[CampaignFinding], None],
        say_waiting: Callable[[Pending], None] = lambda _: None,
        tapes: tuple[CorpusTape, ...] = (),
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._folder = folder
        self._examiner = examiner
        self._budget = budget
        self._show = show
        self._say = say
        self._say_waiting = say_waiting
        self.state = folder.load()
        self._findings = folder.findings()
        self._forms = folder.forms()
        self._open: dict[str, bool] = {}
        self._waiting: deque[Pending] = deque(folder.pending())
        self._kinds_said = {kind_of(pending.trace) for pending in self._waiting}
        self._times_examined: Counter[str] = Counter()
        self.labels_settled: list[str] = []
        # What earlier sessions left counts, or else more would wait after each of them.
        self._num_of_kind = Counter(kind_of(pending.trace) for pending in self._waiting)
        earlier = folder.status()
        self._earlier_seconds = earlier.seconds if earlier else 0.0
        self._earlier_steps = self.state.num_steps
        self._steps_at_news = self.state.num_steps
        self._began = time.monotonic()
        number = folder.begin_session(str(settings.seed))
        self._session = f"{settings.seed}/{number}"
        seeds = (*(earlier.seeds if earlier else ()), self._session)
        self._status = replace(
            earlier
            or CampaignStatus(
                target=settings.target,
                level=settings.driven_level,
                scope=scope,
                activity="starting",
            ),
            num_possible=num_possible,
            num_workers=workers.num_workers,
            seeds=seeds,
        )
        self._num_lost = self._status.num_workers_lost
        self._brought = tapes
        self._log: list[tuple[int, bytes, tuple[CorpusTape, ...]]] = []
        self._heard: dict[int, int] = {}
        self._outstanding: dict[int, int] = {}
        self._times_lost: dict[int, int] = {}
        self._caution: dict[int, int] = {}
        self._losses_of: dict[str, int] = {}
        self._recent: deque[tuple[float, int]] = deque(maxlen=40)
        self._unrecorded: list[News] = []
        self._unrecorded_runs: list[Pending] = []

    def run(self) -> CampaignStatus:
        """Run until the budget is spent or KeyboardInterrupt; return the last status."""
        activity = "done"
        try:
            while self._is_driving() or (self._waiting and self._seconds_left() > 0):
                activity_now = "minimising"
                if self._is_driving():
                    activity_now = "running"
                    self._take_in_all(self._workers.wait(_WAIT_S))
                    # Workers go on before a failing run is looked at, which takes its time.
                    self._hand_out()
                self._examine_one()
                self._say_what_waits()
                self._update(activity_now)
        except KeyboardInterrupt:
            activity = "interrupted"
        self._update(activity)
        self._record(activity)
        return self._status

    def _is_driving(self) -> bool:
        """Whether workers have something to do; of a cluster all may be gone for a while."""
        return self._hand_out() or bool(self._outstanding) or self._steps_to_hand_out(-1) > 0

    @property
    def findings(self) -> list[CampaignFinding]:
        """All findings of the campaign, earlier sessions included."""
        return list(self._findings)

    # Orders

    def _hand_out(self) -> bool:
        """Give each idle worker an order while the budget lasts; return whether any was given."""
        given = False
        for worker in self._workers.idle():
            max_steps = self._steps_to_hand_out(worker)
            if max_steps <= 0:
                break
            order = WorkerOrder(
                self._settings,
                f"{self._session}/{worker}/{self._times_lost.get(worker, 0)}",
                max_steps,
                self._seconds_to_hand_out(),
                *self._news_for(worker),
                begins=self._workers.is_fresh(worker),
            )
            self._outstanding[worker] = max_steps
            self._workers.give(worker, order)
            given = True
        return given

    def _steps_to_hand_out(self, worker: int) -> int:
        budget, done = self._budget, self.state.num_steps - self._earlier_steps
        if sum(self._losses_of.values()) >= MOST_LOSSES:
            return 0
        if self._seconds_to_drive() <= 0:
            return 0
        quiet = self.state.num_steps - self._steps_at_news
        if budget.quiet_steps is not None and quiet >= budget.quiet_steps:
            return 0
        # Whatever a lost worker has not reported is lost too, so it is asked to report more often.
        most = max(
            500,
            RUNS_AT[self._settings.driven_level].steps_of_an_order >> self._caution.get(worker, 0),
        )
        if budget.steps is None:
            return most
        left = budget.steps - done - sum(self._outstanding.values())
        return min(most, left)

    def _seconds_to_hand_out(self) -> float:
        return max(0.01, min(ROUND_SECONDS, self._seconds_to_drive()))

    def _seconds_left(self) -> float:
        seconds = self._budget.seconds
        return math.inf if seconds is None else seconds - self._elapsed()

    def _seconds_to_drive(self) -> float:
        """The time left, except for a share reserved for the waiting failing runs."""
        left, seconds = self._seconds_left(), self._budget.seconds
        if seconds is None or math.isinf(seconds) or not self._waiting:
            return left
        return left - SHARE_TO_MINIMISE * seconds

    def _news_for(self, worker: int) -> tuple[bytes, tuple[CorpusTape, ...]]:
        """What a worker does not know yet: what others found, or everything if it is new."""
        heard = self._heard.get(worker, 0)
        self._heard[worker] = len(self._log)
        if self._workers.is_fresh(worker):
            tapes = tuple(self.state.corpus.values())[-_TAPES_FOR_A_NEWCOMER:]
            return pack(self.state.states), (*tapes, *self._brought)
        others = [entry for entry in self._log[heard:] if entry[0] != worker]
        return (
            b"".join(states for _, states, _ in others),
            tuple(tape for _, _, tapes in others for tape in tapes),
        )

    # Reports

    def _take_in_all(self, arrivals: Iterable[Arrival]) -> None:
        """Take in what came together and record it; what came before an error is kept."""
        try:
            for arrival in arrivals:
                del self._outstanding[arrival.worker]
                self._take_in(arrival.worker, arrival.result)
        finally:
            if self._unrecorded:
                self._record()

    def _take_in(self, worker: int, result: WorkerReport | LostWorker) -> None:
        if isinstance(result, LostWorker):
            self._times_lost[worker] = self._times_lost.get(worker, 0) + 1
            self._caution[worker] = min(8, self._caution.get(worker, 0) + 3)
            if self._unrecorded:  # to look into a loss takes its time
                self._record()
            self._take_in_loss(result)
            return
        self._caution[worker] = max(0, self._caution.get(worker, 0) - 1)
        with signals_wait():  # or else failing runs are counted that nobody kept
            steps_before = self.state.num_steps
            news = merge(self.state, result)
            if news.states:
                self._log.append((worker, news.states, news.tapes))
            pending = [
                Pending(failure.trace, failure.tape, steps_before + failure.step, self._seconds())
                for failure in result.failures
            ]
            self._keep(news, pending)

    def _take_in_loss(self, lost: LostWorker) -> None:
        """A worker lost to the target is a failing run; one lost to its machine is not."""
        self._num_lost += 1
        pending = []
        outcome = lost.outcome
        if outcome is not None:
            # The beacon was bumped for each command; what the worker found on the way is gone.
            self.state.num_steps += max(1, outcome.progress)
            self.state.num_runs += max(1, outcome.mark)
            kind = type(outcome).__name__
            self._losses_of[kind] = self._losses_of.get(kind, 0) + 1
            self.state.num_failing_runs_of["CRASH"] += 1
            if self._losses_of[kind] <= MOST_LOSSES_EXAMINED:
                trace = self._examiner.culprit(lost.tape, outcome)
                steps, seconds = self.state.num_steps, self._seconds()
                pending.append(Pending(trace, lost.tape, steps, seconds, was_lost=True))
        self._keep(News(), pending)

    def _keep(self, news: News, pending: list[Pending]) -> None:
        """Keep what a report brought, except kinds of which there are enough, to record it."""
        wanted = []
        for failing in pending:
            kind = kind_of(failing.trace)
            if self._num_of_kind[kind] < MOST_OF_A_KIND:
                self._num_of_kind[kind] += 1
                wanted.append(failing)
        if news.states:
            self._steps_at_news = self.state.num_steps
        self._note_point()
        self._waiting.extend(wanted)
        self._unrecorded.append(news)
        self._unrecorded_runs.extend(wanted)

    def _record(self, activity: str = "running") -> None:
        """Record what came together in one transaction, so that the disk is waited for once.

        A thousand workers report a thousand times a second (docs/ray.md).
        """
        self._refresh(activity)
        with signals_wait():  # or else what was recorded is recorded again
            runs, self._unrecorded_runs = self._unrecorded_runs, []
            reports, self._unrecorded = self._unrecorded, []
            self._folder.record(reports, self.state, self._status, runs)

    # Failing runs

    def _examine_one(self) -> None:
        """Examine one failing run for a while; record how far that got, or what it is."""
        if not self._waiting:
            return
        pending = self._next_to_examine()
        self._times_examined[pending.name] += 1
        examination, seconds = pending.begun, min(EXAMINED_AT_ONCE_S, self._seconds_left())
        if examination.is_minimised:
            # Noted before it begins: a search goes in one piece, and a kill would begin it anew.
            examination = replace(examination, num_searches=examination.num_searches + 1)
            pending = self._keep_examination(pending, examination)
            seconds = self._seconds_left()
        examination = self._examiner.examined(examination, seconds)
        if examination.is_done:
            self._settle(pending, replace(pending, examination=examination))
        else:
            self._keep_examination(pending, examination)

    def _next_to_examine(self) -> Pending:
        """Take unknown kinds in turn, and within a kind the run that was begun."""
        known = {finding.kind for finding in self._findings}
        next_of_kind: dict[str, Pending] = {}
        for pending in self._waiting:
            kind = kind_of(pending.trace)
            has_begun = pending.examination is not None
            if kind not in next_of_kind or (has_begun and next_of_kind[kind].examination is None):
                next_of_kind[kind] = pending
        new = [pending for kind, pending in next_of_kind.items() if kind not in known]
        times = self._times_examined
        return min(new or next_of_kind.values(), key=lambda pending: times[pending.name])

    def _keep_examination(self, pending: Pending, examination: Examination) -> Pending:
        further = replace(pending, examination=examination)
        self._folder.record_examination(further)
        self._waiting[self._waiting.index(pending)] = further
        return further

    def _say_what_waits(self) -> None:
        """Report one failing run of each unknown kind before it is minimised."""
        known = {finding.kind for finding in self._findings} | self._kinds_said
        for pending in self._waiting:
            kind, is_late = (
                kind_of(pending.trace),
                self._seconds() - pending.seconds >= SAID_AFTER_S,
            )
            if kind not in known and is_late:
                known.add(kind)
                self._kinds_said.add(kind)
                self._say_waiting(pending)

    def _settle(self, pending: Pending, examined: Pending) -> None:
        """Record what a failing run is, and only then say so."""
        finding = named(examined)
        known = alike(finding, self._findings, self._forms, self._is_open)
        with signals_wait():
            is_new = self._folder.settle_pending(pending, finding, known)
            self._waiting.remove(pending)
            self.labels_settled.append(pending.label)
            if known is not None and not is_new:
                self._note_form(known, finding)
            if is_new:
                self._findings.append(finding)
                self._open[finding.fingerprint] = True
                self._steps_at_news = self.state.num_steps
                self._record()
                self._say(finding)

    def _is_open(self, finding: CampaignFinding) -> bool:
        """Whether it still fails; one from an earlier session is tried once."""
        name = finding.fingerprint
        if name not in self._open:
            self._open[name] = self._examiner.still_fails(finding.trace)
        return self._open[name]

    def _note_form(self, known: CampaignFinding, form: CampaignFinding) -> None:
        forms = self._forms.setdefault(known.fingerprint, [])
        names = {known.fingerprint, *(other.fingerprint for other in forms)}
        if form.fingerprint not in names:
            forms.append(form)

    # Status

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _seconds(self) -> float:
        return self._earlier_seconds + self._elapsed()

    def _note_point(self) -> None:
        point = CurvePoint(self.state.num_steps, self._seconds(), len(self.state.states))
        self._status = replace(self._status, curve=with_point(self._status.curve, point))

    def _update(self, activity: str) -> None:
        self._refresh(activity)
        self._show(self._status)

    def _refresh(self, activity: str) -> None:
        state, now = self.state, time.monotonic()
        if not self._recent or self._recent[-1][1] != state.num_steps:
            self._recent.append((now, state.num_steps))
        first, steps = self._recent[0]
        rate = (state.num_steps - steps) / (now - first) if now > first else 0.0
        self._status = replace(
            self._status,
            activity=activity,
            seconds=self._seconds(),
            num_steps=state.num_steps,
            num_runs=state.num_runs,
            steps_per_second=rate,
            num_states=len(state.states),
            findings=tuple(
                line_of(
                    finding,
                    state.num_failing_runs_of[finding.kind],
                    self._forms.get(finding.fingerprint, ()),
                )
                for finding in self._findings
            ),
            num_pending=len(self._waiting),
            num_failing_runs=sum(state.num_failing_runs_of.values()),
            waiting=tuple(map(waiting_line_of, self._waiting)),
            num_workers=self._workers.num_workers,
            num_workers_lost=self._num_lost,
            corpus_size=len(state.corpus),
            stability=state.stability,
            steps_since_new=state.num_steps - self._steps_at_news,
            num_states_by_depth=dict(state.num_states_by_depth),
            runs_of_strategy={name: count.num_runs for name, count in state.strategies.items()},
            facts_missing=tuple(sorted(state.facts_required - state.facts)),
        )
