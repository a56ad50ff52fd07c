"""What a campaign knows, and how a worker's report is added to it: no files, clocks or processes.

Adding is idempotent for states, tapes and facts, and its order does not matter for them: workers
may disagree about what is new, join late, or report what another one found first. Counters add up,
so each report must be added exactly once.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

from poolproof.fuzz.corpus import distilled
from poolproof.fuzz.messages import CorpusTape, StrategyCount, WorkerReport, check_version
from poolproof.fuzz.state_numbers import pack, unpack

__all__ = ["CampaignState", "News", "merge", "name_of"]

MOST_TAPES = 2_000
"""A corpus that grows beyond this is distilled, and the oldest go if that is not enough."""


def name_of(tape: bytes) -> str:
    """The name of a tape in corpora and folders: the same bytes have the same."""
    return hashlib.sha256(tape).hexdigest()[:16]


@dataclass
class CampaignState:
    """What all workers together have found so far.

    `num_seconds` is the time that workers were at work, all added up.
    """

    states: set[int] = field(default_factory=set)
    corpus: dict[str, CorpusTape] = field(default_factory=dict)
    num_steps: int = 0
    num_runs: int = 0
    worker_seconds: float = 0.0
    num_states_by_depth: Counter[int] = field(default_factory=Counter)
    num_failing_runs_of: Counter[str] = field(default_factory=Counter)
    facts: set[str] = field(default_factory=set)
    facts_required: set[str] = field(default_factory=set)
    strategies: dict[str, StrategyCount] = field(default_factory=dict)
    num_stable: int = 0
    num_unstable: int = 0

    @property
    def stability(self) -> float | None:
        """The share of repeated tapes that visited the same states; None before there was one."""
        repeated = self.num_stable + self.num_unstable
        return self.num_stable / repeated if repeated else None


@dataclass(frozen=True, slots=True)
class News:
    """What a report brought that was not known: states (packed), tapes, and names that went."""

    states: bytes = b""
    tapes: tuple[CorpusTape, ...] = ()
    dropped: tuple[str, ...] = ()


def merge(state: CampaignState, report: WorkerReport) -> News:
    """Add a report to the state and say what of it was new. Raises MessageError."""
    check_version(report, "a worker")
    new_states = []
    for number, depth in zip(unpack(report.states), report.depths, strict=True):
        if number not in state.states:
            state.states.add(number)
            state.num_states_by_depth[depth] += 1
            new_states.append(number)
    new = set(new_states)
    tapes = [tape for tape in report.tapes if _adds(state, tape, new)]
    for tape in tapes:
        state.corpus[name_of(tape.tape)] = tape
    dropped = _shrink(state)
    state.num_steps += report.num_steps
    state.num_runs += report.num_runs
    state.worker_seconds += report.seconds
    state.num_failing_runs_of.update(report.num_failing_runs_of)
    state.facts |= report.facts
    state.facts_required |= report.facts_required
    for name, count in report.strategies.items():
        state.strategies[name] = state.strategies.get(name, StrategyCount()) + count
    state.num_stable += report.num_stable
    state.num_unstable += report.num_unstable
    return News(pack(new_states), tuple(tapes), dropped)


def _adds(state: CampaignState, tape: CorpusTape, new: set[int]) -> bool:
    """Whether the tape is not there and visits something that was not known."""
    return name_of(tape.tape) not in state.corpus and not new.isdisjoint(unpack(tape.states))


def _shrink(state: CampaignState) -> tuple[str, ...]:
    if len(state.corpus) <= MOST_TAPES:
        return ()
    kept = distilled(state.corpus)
    kept = dict(list(kept.items())[-MOST_TAPES // 2 :])
    dropped = tuple(name for name in state.corpus if name not in kept)
    state.corpus = kept
    return dropped
