"""A worker of a campaign: runs, one after the other, by whichever strategy pays at the moment.

Three strategies: `guided` chooses commands by novelty where the level can (`novelty_graph.py`),
`mutated` changes a tape of the corpus, `fresh` draws everything anew. Each gets a share of the
runs at least; the rest goes to the one that found most for its steps lately. All that a worker
does follows from its stream and from what its orders brought; where an order ends makes no
difference.

Mutations change an answer here and there, leave parts out, repeat or join them. They work on
answers, of two bytes each, so that a change stays where it is. What follows on a shorter tape is
drawn anew, or chosen by novelty, by its driver.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from poolproof.contract.trace import Trace
from poolproof.fuzz.black_box import open_black_box
from poolproof.fuzz.corpus import TapeSchedule
from poolproof.fuzz.level_runs import runs_of
from poolproof.fuzz.messages import (
    CorpusTape,
    FailingRun,
    StrategyCount,
    WorkerOrder,
    WorkerReport,
    check_version,
)
from poolproof.fuzz.recorded_choices import AnswerCells, RecordedChoices, answers_of, new_cells
from poolproof.fuzz.state_numbers import pack, unpack
from poolproof.fuzz.subject import LoadedTarget, subject_of
from poolproof.fuzz.tape_run import TapeRun, Visits
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.garbage import collected_afterwards
from poolproof.harness.isolation import Beacon

__all__ = ["CampaignWorker", "Round", "mutated", "work"]


Answers = tuple[int, ...]


def mutated(tape: Answers, other: Answers, source: random.Random) -> Answers:
    """Some change of `tape`, perhaps with a part of `other`."""
    kind = source.randrange(6)
    if kind == 0 or len(tape) < 8:
        return tape  # goes on where the tape ends
    if kind == 1:
        return tape[: source.randrange(4, len(tape))]
    if kind == 2:
        return _havoc(tape, source)
    if kind == 3:
        start, end = _stretch(tape, source)
        return tape[:start] + tape[end:]
    if kind == 4:
        start, end = _stretch(tape, source)
        return tape[:end] + tape[start:end] + tape[end:]
    if len(other) < 8:
        return _havoc(tape, source)
    # The first answers choose the kind of run, so that both parts are read in the same way.
    return tape[: source.randrange(4, len(tape))] + other[source.randrange(4, len(other)) :]


def _havoc(tape: Answers, source: random.Random) -> Answers:
    """One to sixteen answers are others."""
    changed = list(tape)
    for _ in range(1 << source.randrange(5)):
        changed[source.randrange(len(changed))] = source.getrandbits(16)
    return tuple(changed)


def _stretch(tape: Sequence[int], source: random.Random) -> tuple[int, int]:
    """Where a part behind the first answers begins and ends."""
    start = source.randrange(4, len(tape))
    return start, min(len(tape), start + 1 + source.randrange(64))


_REPEAT_EVERY = 64
"""One run in so many repeats a tape of the corpus, to see whether it visits the same states."""

_SHARE = 0.12
"""The part of the runs that each strategy gets in any case."""

_MOST_FAILURES_OF_A_KIND = 3
"""So many failing runs of a kind come home from one order; the others are counted."""

_SHORT_RUNS = 4
"""Of the runs that are not guided one in so many is short: some bugs need a fresh pool."""

_working: dict[str, CampaignWorker] = {}


def work(target: LoadedTarget, order: WorkerOrder, beacon: Beacon) -> WorkerReport:
    """One order, carried out by the worker of its stream: a job for an isolation.

    A process works for one stream at a time.
    """
    check_version(order, "the coordinator")
    beacon.bump()
    worker = _working.get(order.stream)
    if worker is None or order.begins:
        _working.clear()
        cells = open_black_box(Path(order.black_box)) if order.black_box else new_cells()
        worker = _working[order.stream] = CampaignWorker(target, order, cells)
    return worker.work(order, beacon)


@dataclass
class Round:
    """What an order has brought so far, of the steps and seconds that it gave."""

    max_steps: int
    max_seconds: float
    began: float = field(default_factory=time.monotonic)
    num_steps: int = 0
    num_runs: int = 0
    new: list[int] = field(default_factory=list)
    depths: bytearray = field(default_factory=bytearray)
    tapes: list[CorpusTape] = field(default_factory=list)
    failures: list[FailingRun] = field(default_factory=list)
    num_failing_runs_of: Counter[str] = field(default_factory=Counter)
    facts: set[str] = field(default_factory=set)
    strategies: dict[str, StrategyCount] = field(default_factory=dict)
    num_stable: int = 0
    num_unstable: int = 0

    @property
    def seconds(self) -> float:
        """How long it has lasted."""
        return time.monotonic() - self.began

    @property
    def is_over(self) -> bool:
        """Whether the order is carried out, be it by time."""
        return self.num_steps >= self.max_steps or (
            self.num_runs > 0 and self.seconds > self.max_seconds
        )


class CampaignWorker:
    """The memory of one worker: what it knows, its corpus, its random stream."""

    def __init__(self, target: LoadedTarget, order: WorkerOrder, cells: AnswerCells) -> None:
        self._stream = order.stream
        self._source = random.Random(order.stream)
        self._known: set[int] = set()
        self._cells = cells
        self._runs = runs_of(subject_of(target, order.settings), self._known, self._source)
        self._schedule = TapeSchedule()
        self._num_runs = 0
        names = [
            *(["guided"] if self._runs.has_guide else []),
            *(["mutated"] if self._runs.has_mutations else []),
            "fresh",
        ]
        self._yield_of = dict.fromkeys(names, 1.0)

    def work(self, order: WorkerOrder, beacon: Beacon) -> WorkerReport:
        """Carry out one order."""
        done = self.begin(order)
        while not done.is_over:
            self._num_runs += 1
            beacon.mark(self._num_runs)
            with collected_afterwards():
                self._one_run(done, beacon)
        return self.report(done)

    def begin(self, order: WorkerOrder) -> Round:
        """Hear what the order brings, and begin its round."""
        self._known.update(unpack(order.states))
        for tape in order.tapes:
            self._schedule.add(tape.tape)
        return Round(order.max_steps, order.max_seconds)

    def drive(self, done: Round, tape: bytes, strategy: str, beacon: Beacon) -> None:
        """Run a tape that was made elsewhere, as far as it goes."""
        self._num_runs += 1
        beacon.mark(self._num_runs)
        with collected_afterwards():
            choices = RecordedChoices(self._cells, None, answers_of(tape))
            visits = self._runs.visits(self._known)
            run = self._runs.run(choices, visits, beacon.bump, max_steps=self._runs.longest_run)
            self._note(done, strategy, run, visits, choices)

    def report(self, done: Round) -> WorkerReport:
        """What a round has brought."""
        return WorkerReport(
            stream=self._stream,
            num_steps=done.num_steps,
            num_runs=done.num_runs,
            seconds=done.seconds,
            states=pack(done.new),
            depths=bytes(done.depths),
            tapes=tuple(done.tapes),
            failures=tuple(done.failures),
            num_failing_runs_of=dict(done.num_failing_runs_of),
            facts=frozenset(done.facts),
            facts_required=self._runs.facts_required,
            strategies=done.strategies,
            num_stable=done.num_stable,
            num_unstable=done.num_unstable,
        )

    def _one_run(self, done: Round, beacon: Beacon) -> None:
        if self._num_runs % _REPEAT_EVERY == 0 and len(self._schedule):
            self._repeat(done, beacon)
            return
        strategy = self._choose_strategy()
        place, max_steps = -1, self._runs.longest_run
        given = self._runs.opening(guided=strategy == "guided")
        if strategy == "mutated":
            place = self._schedule.choose(self._source)
            other = self._schedule.tape(self._schedule.choose(self._source))
            tape = self._schedule.tape(place)
            given = mutated(answers_of(tape), answers_of(other), self._source)
        if strategy != "guided" and self._source.randrange(_SHORT_RUNS) == 0:
            max_steps = 10 + self._runs.longest_run // 10
        choices = RecordedChoices(self._cells, self._source, given)
        visits = self._runs.visits(self._known)
        guided = strategy != "fresh" and self._runs.has_guide
        run = self._runs.run(choices, visits, beacon.bump, max_steps=max_steps, guided=guided)
        if place >= 0:
            self._schedule.tried(place, len(visits.new))
        self._note(done, strategy, run, visits, choices)

    def _choose_strategy(self) -> str:
        """A fixed share each, and the rest to the one with the best yield."""
        names = list(self._yield_of)
        draw = self._source.random()
        if draw < _SHARE * len(names):
            name = names[int(draw / _SHARE)]
        else:
            name = max(names, key=lambda known: self._yield_of[known])
        return "fresh" if name == "mutated" and not len(self._schedule) else name

    def _note(
        self, done: Round, strategy: str, run: TapeRun, visits: Visits, choices: RecordedChoices
    ) -> None:
        """Take a run into the round's results and into the memory."""
        num_new = len(visits.new)
        # A run that breaks at its construction counts as a step, or else a budget never ends.
        num_steps = max(1, run.num_steps)
        count = StrategyCount(1, num_steps, num_new)
        done.strategies[strategy] = done.strategies.get(strategy, StrategyCount()) + count
        if strategy in self._yield_of:
            old = self._yield_of[strategy]
            self._yield_of[strategy] = old + 0.2 * (num_new / num_steps - old)
        done.num_runs += 1
        done.num_steps += num_steps
        done.facts |= run.facts
        done.new += visits.new
        done.depths += visits.depths
        if num_new:
            # What comes after the last new state is not worth keeping.
            tape = choices.tape()[: 2 * visits.num_answers]
            states = visits.numbers()
            done.tapes.append(CorpusTape(tape, pack(sorted(states)), num_steps, strategy))
            self._schedule.add(tape)
        if run.trace is not None:
            self._note_failure(done, run.trace, choices.tape())

    @staticmethod
    def _note_failure(done: Round, trace: Trace, tape: bytes) -> None:
        assert trace.violation is not None
        kind = str(failure_kind(trace.violation, trace.commands))
        done.num_failing_runs_of[kind] += 1
        if done.num_failing_runs_of[kind] <= _MOST_FAILURES_OF_A_KIND:
            done.failures.append(FailingRun(trace, tape, done.num_steps))

    def _repeat(self, done: Round, beacon: Beacon) -> None:
        """Run a tape twice: a target that leaves the order open may not visit the same states."""
        tape = self._schedule.tape(self._schedule.choose(self._source))
        seen = []
        for _ in range(2):
            choices = RecordedChoices(self._cells, None, answers_of(tape))
            visits = self._runs.visits(self._known)
            run = self._runs.run(choices, visits, beacon.bump, max_steps=self._runs.longest_run)
            self._note(done, "repeated", run, visits, choices)
            seen.append(visits.numbers())
        done.num_stable += seen[0] == seen[1]
        done.num_unstable += seen[0] != seen[1]
