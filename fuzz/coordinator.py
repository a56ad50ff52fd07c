"""A campaign from the outside: hands out orders, merges reports, records, names findings.

It knows nothing of processes or machines (`workers.py`) and shows nothing itself: `show` hears the
status a few times a second, `say` each new finding once. What was said is on disk before it is
said.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from poolproof.fuzz.curve import with_point
from poolproof.fuzz.findings import (
    MOST_OF_A_KIND,
    Examiner,
    Finding,
    Pending,
    alike,
    kind_of,
    line_of,
    named,
)
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.merge import News, merge
from poolproof.fuzz.messages import CorpusTape, WorkerOrder, WorkerReport
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus, CurvePoint
from poolproof.fuzz.workers import LostWorker, Workers

__all__ = ["Budget", "Campaign"]

ROUND_STEPS = {"queue": 20_000, "pool": 50_000, "manager": 10_000}
"""The most that one order asks for."""

ROUND_SECONDS = 1.0
"""A worker reports at least so often; what it has not reported is lost with it."""

MOST_LOSSES = 30
"""When the target has cost so many workers the session ends: there is something to repair first."""

MOST_LOSSES_EXAMINED = 3
"""So many lost runs of a kind are repeated and minimised, which may cost a time limit each."""

_WAIT_S = 0.25
_TAPES_FOR_A_NEWCOMER = 200


@dataclass(frozen=True, slots=True)
class Budget:
    """When a session is over: whichever comes first. None is no bound.

    `quiet_steps` without a new state and without a new finding end it too.
    """

    seconds: float | None = None
    steps: int | None = None
    quiet_steps: int | None = None


class Campaign:
    """One session of a campaign over some workers and a folder.

    `tapes` from elsewhere join the corpus of every worker.
    """

    def __init__(
        self,
        settings: CampaignSettings,
        workers: Workers,
        folder: CampaignFolder,
        examiner: Examiner,
        *,
        budget: Budget,
        scope: str,
        num_possible: int | None,
        show: Callable[[CampaignStatus], None],
        say: Callable[[Finding], None],
        tapes: tuple[CorpusTape, ...] = (),
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._folder = folder
        self._examiner = examiner
        self._budget = budget
        self._show = show
        self._say = say
        self.state = folder.load()
        self._findings = folder.findings()
        self._forms = folder.forms()
        self._open: dict[str, bool] = {}
        self._waiting: deque[Pending] = deque(folder.pending())
        self._num_of_kind: dict[str, int] = {}
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
                target=settings.target, level=settings.level, scope=scope, activity="starting"
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

    def run(self) -> CampaignStatus:
        """Go on until the budget is spent; the last status. KeyboardInterrupt ends it as well."""
        activity = "done"
        try:
            # Of a cluster all workers may be gone for a while.
            while self._hand_out() or self._outstanding or self._steps_to_hand_out(-1) > 0:
                arrivals = self._workers.wait(_WAIT_S)
                for arrival in arrivals:
                    del self._outstanding[arrival.worker]
                    self._take_in(arrival.worker, arrival.result)
                # Workers go on before a failing run is looked at, which may take long.
                self._hand_out()
                self._examine_one()
                self._update("running")
            while self._waiting:
                self._examine_one()
                self._update("minimising")
        except KeyboardInterrupt:
            activity = "interrupted"
        self._update(activity)
        self._folder.record(News(), self.state, self._status)
        return self._status

    @property
    def findings(self) -> list[Finding]:
        """All findings of the campaign, earlier sessions included."""
        return list(self._findings)

    # Orders

    def _hand_out(self) -> bool:
        """Give each idle worker an order, as far as the budget goes; whether any was given."""
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
        if budget.seconds is not None and self._elapsed() >= budget.seconds:
            return 0
        quiet = self.state.num_steps - self._steps_at_news
        if budget.quiet_steps is not None and quiet >= budget.quiet_steps:
            return 0
        # Whatever a lost worker has not reported is lost too, so it is asked to report more often.
        most = max(500, ROUND_STEPS[self._settings.level] >> self._caution.get(worker, 0))
        if budget.steps is None:
            return most
        left = budget.steps - done - sum(self._outstanding.values())
        return min(most, left)

    def _seconds_to_hand_out(self) -> float:
        if self._budget.seconds is None:
            return ROUND_SECONDS
        return max(0.01, min(ROUND_SECONDS, self._budget.seconds - self._elapsed()))

    def _news_for(self, worker: int) -> tuple[bytes, tuple[CorpusTape, ...]]:
        """What a worker does not know yet: what others found, or for a newcomer everything."""
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

    def _take_in(self, worker: int, result: WorkerReport | LostWorker) -> None:
        if isinstance(result, LostWorker):
            self._times_lost[worker] = self._times_lost.get(worker, 0) + 1
            self._caution[worker] = min(8, self._caution.get(worker, 0) + 3)
            self._take_in_loss(result)
            return
        self._caution[worker] = max(0, self._caution.get(worker, 0) - 1)
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
        """A worker that the target cost is a failing run; one that its machine cost is none."""
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
        """Record at once; what there are enough of is left out."""
        wanted = []
        for failing in pending:
            kind = kind_of(failing.trace)
            if self._num_of_kind.get(kind, 0) < MOST_OF_A_KIND:
                self._num_of_kind[kind] = self._num_of_kind.get(kind, 0) + 1
                wanted.append(failing)
        if news.states:
            self._steps_at_news = self.state.num_steps
        self._note_point()
        self._refresh("running")
        self._folder.record(news, self.state, self._status, wanted)
        self._waiting.extend(wanted)

    def _examine_one(self) -> None:
        """Minimise one failing run, record what it is, and only then say so."""
        if not self._waiting:
            return
        pending = self._waiting[0]
        finding = named(
            pending,
            lambda trace: self._examiner.minimised(trace, was_lost=pending.was_lost),
        )
        known = alike(finding, self._findings, self._forms, self._is_open)
        is_new = self._folder.settle_pending(pending, finding, known)
        self._waiting.popleft()
        if known is not None and not is_new:
            self._note_form(known, finding)
        if is_new:
            self._findings.append(finding)
            self._open[finding.fingerprint] = True
            self._steps_at_news = self.state.num_steps
            self._refresh("running")
            self._folder.record(News(), self.state, self._status)
            self._say(finding)

    def _is_open(self, finding: Finding) -> bool:
        """Whether it fails today; one of an earlier session is tried, once."""
        name = finding.fingerprint
        if name not in self._open:
            self._open[name] = self._examiner.still_fails(finding.trace)
        return self._open[name]

    def _note_form(self, known: Finding, form: Finding) -> None:
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
            num_workers=self._workers.num_workers,
            num_workers_lost=self._num_lost,
            corpus_size=len(state.corpus),
            stability=state.stability,
            steps_since_new=state.num_steps - self._steps_at_news,
            num_states_by_depth=dict(state.num_states_by_depth),
            runs_of_strategy={name: count.num_runs for name, count in state.strategies.items()},
            facts_missing=tuple(sorted(state.facts_required - state.facts)),
        )
