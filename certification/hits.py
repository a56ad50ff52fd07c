"""How much of its cache a target uses, counted over given commands, so that two can be compared.

The commands are those of the plain driver's runs on one target. Both are given the same ones, and
what is counted is what they answer: of a pool the lookups that find a block, of a manager the
tokens that it says are cached when it admits a sequence, of an engine the tokens that the first
step of a request need not compute. A run that breaks something on either is left out, and commands
that mean nothing on one of them (since it preempted somebody, or let somebody wait) are passed
over there and counted.

Not covered: queues, which have no cache, and indexes, which keep what they are told; time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from poolproof.certification.jobs import campaign_of, make_for
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.commands import Acquire, Command, Lookup, LookupChain
from poolproof.contract.engine_commands import PlanStep, RunStep
from poolproof.contract.level import Level
from poolproof.contract.manager_commands import Admit, Resume
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.isolation import Beacon
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.replay import start_session
from poolproof.targets.target import Target

__all__ = ["HitComparison", "Hits", "compared", "count_hits", "has_hits", "recorded_runs"]


@dataclass(frozen=True, slots=True)
class Hits:
    """What was found in the cache in so many tries, and how many commands were passed over."""

    found: int = 0
    asked: int = 0
    passed_over: int = 0

    def __add__(self, other: Hits) -> Hits:
        return Hits(
            self.found + other.found,
            self.asked + other.asked,
            self.passed_over + other.passed_over,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HitComparison:
    """What two targets found over the same runs.

    `num_left_out` are the runs in which one of them broke something, or was lost.
    """

    unit: str
    num_runs: int
    num_commands: int
    num_left_out: int
    before: Hits
    after: Hits

    @property
    def words(self) -> str:
        """The comparison in a sentence, also where it says nothing."""
        if not self.num_runs:
            return "not measured: no run holds on both"
        over = f"over {self.num_runs:,} runs of the same {self.num_commands:,} commands"
        if self.num_left_out:
            over += f" ({self.num_left_out:,} more broke something on one of them)"
        if not self.before.found and not self.after.found:
            return f"not measured: neither found anything in its cache {over}"
        one, other = self.before.found, self.after.found
        change = "the same" if one == other else f"{(other - one) / max(one, 1):+.2%}"
        over += f", in {self.after.asked:,} {self.unit}"
        passed = self.after.passed_over - self.before.passed_over
        if passed > 0:
            over += f"; {passed:,} commands meant nothing with the patch"
        found = "lookups that hit" if self.unit == "lookups" else "cached tokens"
        return f"{other:,} {found}, without the patch {one:,} ({change}), {over}"

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        return {
            "unit": self.unit,
            "runs": self.num_runs,
            "commands": self.num_commands,
            "left_out": self.num_left_out,
            "found": [self.before.found, self.after.found],
            "asked": [self.before.asked, self.after.asked],
            "passed_over": [self.before.passed_over, self.after.passed_over],
        }


def has_hits(kind: RunKind) -> bool:
    """Whether runs of this kind ask a cache."""
    return kind.level in _METERS


def recorded_runs(target: Target, chunk: Chunk, beacon: Beacon) -> list[Trace]:
    """The job: the commands of the runs of a chunk, each as a trace."""
    campaign = campaign_of(target, chunk)
    runs = []
    for number in chunk.numbers:
        commands: list[Command] = []

        def announce(command: Command, into: list[Command] = commands) -> None:
            into.append(command)
            beacon.bump()

        beacon.bump()
        campaign.run(number, announce)
        runs.append(campaign.setup(number).with_commands(commands))
    return runs


def count_hits(target: Target, trace: Trace, beacon: Beacon) -> Hits | None:
    """The job: what the target finds while it is given the commands; None if it breaks something.

    Raises TargetError for a layout that it does not have.
    """
    session: Any = start_session(trace, make_for(target, trace))
    if isinstance(session, Violation) or session.first_look() is not None:
        return None
    meter = _METERS[trace.level]
    total = Hits()
    for command in trace.commands:
        beacon.bump()
        if not session.is_defined(command):
            total += Hits(passed_over=1)
            continue
        count = meter(session, command)
        if session.step_any(command) is not None:
            return None
        total += count()
    return total


def compared(
    traces: Sequence[Trace], before: Sequence[Hits | None], after: Sequence[Hits | None]
) -> HitComparison:
    """The comparison of what both found, run by run."""
    pairs = [
        (trace, one, other)
        for trace, one, other in zip(traces, before, after, strict=True)
        if one is not None and other is not None
    ]
    return HitComparison(
        unit=_UNITS[traces[0].level] if traces else "",
        num_runs=len(pairs),
        num_commands=sum(len(trace.commands) for trace, _, _ in pairs),
        num_left_out=len(traces) - len(pairs),
        before=sum((one for _, one, _ in pairs), Hits()),
        after=sum((other for _, _, other in pairs), Hits()),
    )


Count = Callable[[], Hits]
"""What a command found, asked once it is done."""


def _nothing() -> Hits:
    return Hits()


def _of_pool(session: PoolSession, command: Command) -> Count:
    if isinstance(command, Lookup | LookupChain):
        return lambda: Hits(int(session.last.found is not None), 1)
    if isinstance(command, Acquire):
        return lambda: Hits(int(bool(session.last.taken)), 1)
    return _nothing


def _of_manager(session: ManagerSession, command: Command) -> Count:
    if not isinstance(command, Admit | Resume):
        return _nothing

    def count() -> Hits:
        return Hits() if session.calls.refused else Hits(index(session.calls.answer), 1)

    return count


def _of_engine(session: EngineSession, command: Command) -> Count:
    if not isinstance(command, PlanStep | RunStep):
        return _nothing
    new = {number for number, request in session.model.live.items() if not request.began}

    def count() -> Hits:
        plan = session.last.plan
        parts = [] if plan is None else [part for part in plan.parts if part.request_id in new]
        return Hits(sum(part.first for part in parts), len(parts))

    return count


_METERS: dict[Level, Callable[[Any, Command], Count]] = {
    Level.POOL: _of_pool,
    Level.MANAGER: _of_manager,
    Level.ENGINE: _of_engine,
}
"""(session, command) -> what to ask once the command is done."""
_UNITS = {
    Level.POOL: "lookups",
    Level.MANAGER: "admissions",
    Level.ENGINE: "requests",
}
