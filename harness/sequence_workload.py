"""Serves one trace of requests with one manager: from its construction to the result.

The manager runs in this process, without limits on time or memory: one that hangs is for
`certify`, which isolates it.

Requests are served as by a scheduler with continuous batching. In each iteration every running
sequence grows by one token, waiting ones are admitted in order of arrival as far as they fit, and
a step computes all of it. Where a growth does not fit, the sequence that was admitted last is
preempted and resumed later. All of it goes through a `ManagerSession`, so that every answer is
judged and every read compared.

A trace names 512 tokens by one id. They are served as `tokens_per_id` tokens each, output lengths
scaled alike, so that whole traces can be checked token by token. Timestamps do not matter: it
serves as fast as it can. Chunked prefill and speculation are left to the random workloads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.level import Level
from poolproof.contract.manager_commands import (
    Abort,
    Admit,
    AppendTokens,
    Finish,
    ManagerCommand,
    Preempt,
    Resume,
    Step,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation, ViolationError
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.request_trace import TOKENS_PER_ID, TraceRequest
from poolproof.harness.target_call import constructing, crash
from poolproof.reference.manager_legality import as_told

__all__ = ["SequenceWorkload", "SequenceWorkloadResult"]


@dataclass(slots=True)
class ReplayedSequences:
    """What was served, in tokens as they were scaled."""

    num_requests: int = 0
    num_finished: int = 0
    num_too_long: int = 0
    num_preempted: int = 0
    num_steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


_OUTPUTS = 1 << 30
"""Tokens from here on are outputs, which no prompt has; 31 bits hold them, as in engines."""


@dataclass(slots=True)
class _Live:
    seq_id: int
    output_left: int
    next_token: int


class SequenceReplay:
    """One trace served by one manager; at most `max_running` sequences run at once."""

    def __init__(
        self, session: ManagerSession, *, tokens_per_id: int = 16, max_running: int = 64
    ) -> None:
        self.session = session
        self.counts = ReplayedSequences()
        self.commands: list[Command] = []
        self._tokens_per_id = tokens_per_id
        self._max_running = max_running
        self._running: list[_Live] = []
        self._preempted: deque[_Live] = deque()
        self._can_preempt = "preempt" in session.can.verbs

    def run(
        self, requests: Iterable[TraceRequest], served: Callable[[], None] | None = None
    ) -> Violation | None:
        """Serve all requests; the violation that it shows, or None. `served` after each request."""
        try:
            self._serve(deque(enumerate(requests)), served or (lambda: None))
        except ViolationError as found:
            return found.violation
        return self.session.end() if self.session.nobody_holds() else None

    def _serve(self, waiting: deque[tuple[int, TraceRequest]], served: Callable[[], None]) -> None:
        while waiting or self._running or self._preempted or self.session.model.leaving:
            self._grow_all(served)
            self._admit_all(waiting, served)
            # What is given back may be free only after a step, also when nobody runs.
            if self._running or self.session.model.leaving:
                self._apply(Step())
                self.counts.num_steps += 1

    def _apply(self, command: Command) -> bool:
        """Whether it was granted. Raises ViolationError."""
        command = as_told(self.session.model, command)
        self.commands.append(command)
        violation = self.session.step(command)
        if violation is not None:
            raise ViolationError(violation)
        return not self.session.calls.refused

    def _grow_all(self, served: Callable[[], None]) -> None:
        """Each running sequence gets its next token, or ends."""
        place = 0
        while place < len(self._running):
            live = self._running[place]
            if not live.output_left:
                self._end(live, served)
            elif self._apply(AppendTokens(live.seq_id, (live.next_token,))):
                live.output_left -= 1
                live.next_token += 1
                self.counts.output_tokens += 1
                place += 1
            elif self.session.model.leaving:
                place += 1  # what gave way is free after the step
            elif self._running[-1] is live and (place == 0 or not self._can_preempt):
                # Nothing is left to give way: the pool is too small for this one to go on.
                self.counts.num_too_long += 1
                self._end(live, served)
            else:
                self._preempt_last()

    def _end(self, live: _Live, served: Callable[[], None]) -> None:
        self._apply(Finish(live.seq_id))
        self._running.remove(live)
        self.counts.num_finished += 1
        served()

    def _give_up(self, live: _Live, served: Callable[[], None]) -> None:
        """It grew beyond what may be admitted: an admission leaves the watermark free."""
        self.counts.num_too_long += 1
        self.counts.num_finished += 1
        if "abort" in self.session.can.verbs:
            self._apply(Abort(live.seq_id))
        served()

    def _preempt_last(self) -> None:
        last = self._running.pop()
        if self._can_preempt:
            self._apply(Preempt(last.seq_id))
            self._preempted.appendleft(last)
        else:
            self._apply(Finish(last.seq_id))
        self.counts.num_preempted += 1

    def _admit_all(
        self, waiting: deque[tuple[int, TraceRequest]], served: Callable[[], None]
    ) -> None:
        while self._preempted and len(self._running) < self._max_running:
            live = self._preempted[0]
            if not self._enter(Resume(live.seq_id, 0), live):
                if self._running or self.session.model.leaving:
                    return
                self._give_up(live, served)
            self._preempted.popleft()
        while waiting and len(self._running) < self._max_running:
            number, request = waiting[0]
            chain = TokenChain(self._tokens(request))
            output = -(-request.output_length * self._tokens_per_id // TOKENS_PER_ID)
            live = _Live(number, output, _OUTPUTS + (number << 12) % _OUTPUTS)
            if self._enter(Admit(number, chain, 0), live):
                self.counts.prompt_tokens += len(chain.tokens)
                self.counts.cached_tokens += self.session.model.sequences[number].num_computed
            elif self.session.calls.answer != "never" and (
                self._running or self.session.model.leaving
            ):
                return
            else:
                self.counts.num_too_long += 1
                served()
            self.counts.num_requests += 1
            waiting.popleft()

    def _enter(self, command: ManagerCommand, live: _Live) -> bool:
        granted = self._apply(command)
        if granted:
            self._running.append(live)
        return granted

    def _tokens(self, request: TraceRequest) -> tuple[int, ...]:
        """Tokens that are equal where the ids are."""
        length = max(1, request.input_length * self._tokens_per_id // TOKENS_PER_ID)
        per_id = self._tokens_per_id
        return tuple(
            request.hash_ids[position // per_id] * per_id + position % per_id
            for position in range(length)
        )


@dataclass(slots=True)
class SequenceWorkloadResult:
    """What came of it; `trace` leads from a fresh manager to the violation."""

    name: str
    profile: ManagerProfile
    counts: ReplayedSequences = field(default_factory=ReplayedSequences)
    num_commands: int = 0
    seconds: float = 0.0
    violation: Violation | None = None
    trace: Trace | None = None

    @property
    def token_hit_rate(self) -> float:
        """The share of the prompts' tokens that were found cached; 0.0 when nothing was served."""
        counts = self.counts
        return counts.cached_tokens / counts.prompt_tokens if counts.prompt_tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceWorkload:
    """The requests and how they are served and checked.

    `block_size` in tokens as they are served: `tokens_per_id` for each id of the trace, which
    names 512. `concurrent` sequences run at most; all tables, counters and orders are compared at
    one command in `check_every`. Raises ValueError for a number below 1.
    """

    requests: Sequence[TraceRequest]
    num_blocks: int
    block_size: int = 4
    concurrent: int = 64
    tokens_per_id: int = 16
    check_every: int = 1

    def __post_init__(self) -> None:
        for name in ("num_blocks", "block_size", "concurrent", "tokens_per_id", "check_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def run(
        self,
        name: str,
        make: Callable[[int, bool], Any],
        profile: ManagerProfile,
        served: Callable[[], None] | None = None,
    ) -> SequenceWorkloadResult:
        """Let a manager serve the requests; `served` is called after each.

        What it raises or breaks is in the result. Raises TargetError for a target that lacks
        required methods.
        """
        result = SequenceWorkloadResult(name, profile)
        try:
            session = ManagerSession(
                make(self.num_blocks, True),
                profile,
                self.num_blocks,
                self.block_size,
                check_every=self.check_every,
            )
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            what = constructing("manager", self.num_blocks)
            result.violation = crash(what, error)
            result.trace = self._trace(result, ())
            return result
        replay = SequenceReplay(
            session, tokens_per_id=self.tokens_per_id, max_running=self.concurrent
        )
        began = time.monotonic()
        result.violation = session.first_look() or replay.run(self.requests, served)
        result.seconds = time.monotonic() - began
        result.counts, result.num_commands = replay.counts, session.num_commands
        if result.violation is not None:
            result.trace = self._trace(result, tuple(replay.commands))
        return result

    def _trace(self, result: SequenceWorkloadResult, commands: tuple[Command, ...]) -> Trace:
        return Trace(
            target=result.name,
            level=Level.MANAGER,
            profile=result.profile,
            num_blocks=self.num_blocks,
            enable_caching=True,
            commands=commands,
            violation=result.violation,
            options={"block_size": self.block_size},
        )
