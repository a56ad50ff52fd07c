"""Serves one trace of requests with one manager: from its construction to the result.

The manager runs in this process, without limits on time or memory: one that hangs is for
`certify`, which isolates it. How requests are scheduled is in `sequence_replay.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.request_trace import TraceRequest
from poolproof.harness.sequence_replay import ReplayedSequences, SequenceReplay
from poolproof.harness.target_call import constructing, crash

__all__ = ["SequenceWorkload", "SequenceWorkloadResult"]


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
