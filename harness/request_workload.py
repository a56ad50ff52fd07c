"""Serves one trace of requests with one target: from its construction to the result.

The target runs in this process, without limits on time or memory: a target that hangs is for
`certify`, which isolates it. What the replay does is in `request_replay.py`, what the checks
compare in `request_checks.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.profile import FEWEST_BYTES_OF_CONTENTS, Profile
from poolproof.contract.target import TargetError, capabilities_of
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation, ViolationError
from poolproof.harness.request_checks import CheckedDriver, RequestSession
from poolproof.harness.request_replay import NativeDriver, ReplayCounts, RequestReplay
from poolproof.harness.request_trace import (
    TraceRequest,
    block_hashes,
    require_block_size,
)
from poolproof.harness.target_call import constructing, crash, is_our_own_bug
from poolproof.invariants.free_at_end import all_free_at_end

__all__ = ["RequestWorkload", "WorkloadResult"]

Make = Callable[[int, bool], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWorkload:
    """The requests and how they are served and checked.

    `block_size` in tokens; `concurrent` requests are live at most; `finish` is one of
    `FINISH_ORDERS`. `check_every`: the state is compared with the reference for one request in so
    many, None for no checks at all; `full_every`: the whole pool is read for one request in so
    many. Raises ValueError for a size below 1 or a block size that does not divide 512.
    """

    requests: Sequence[TraceRequest]
    num_blocks: int
    block_size: int = 16
    concurrent: int = 64
    finish: str = "fifo"
    check_every: int | None = 1
    full_every: int = 100

    def __post_init__(self) -> None:
        require_block_size(self.block_size)
        for name in ("num_blocks", "concurrent", "check_every", "full_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")

    def check(self, name: str, profile: Profile) -> None:
        """Raises TargetError for a pool whose hashes cannot stand for requests."""
        length = profile.usual_hash_bytes
        if length < FEWEST_BYTES_OF_CONTENTS:
            fewest = FEWEST_BYTES_OF_CONTENTS
            raise TargetError(
                f"{name} has hash_bytes={length}, and among the blocks of many prompts hashes of "
                f"fewer than {fewest} bytes are equal by chance, so that different prompts would "
                f"share blocks; replay requests on hashes of {fewest} bytes or more"
            )

    def run(
        self, name: str, make: Make, profile: Profile, served: Callable[[], None] | None = None
    ) -> WorkloadResult:
        """Let a target serve the requests; `served` is called after each.

        What the target raises or breaks is in the result. Raises TargetError for a target that
        lacks required methods, or whose hashes are too short.
        """
        self.check(name, profile)
        result = WorkloadResult(name, profile, self.check_every)
        try:
            pool = make(self.num_blocks, True)
            can = capabilities_of(pool)
        except TargetError:
            raise
        except (Exception, SystemExit) as error:
            result.violation = crash(constructing("target", self.num_blocks), error)
            result.trace = self._trace(result, ())
            return result
        if can.level is not Level.POOL:
            raise TargetError(f"{name} is {can.level.with_article}; requests need a pool")
        if self.check_every is None:
            self._run_unchecked(result, pool, served)
        else:
            self._run_checked(result, pool, self.check_every, served)
        return result

    def _run_unchecked(
        self, result: WorkloadResult, pool: Any, served: Callable[[], None] | None
    ) -> None:
        shows_hashes = callable(getattr(pool, "block_hash", None))
        drains = result.profile.events != "none" and callable(getattr(pool, "take_events", None))
        try:
            driver = NativeDriver(pool, drain_events=drains)
            replay = self._replay(result, driver)
            replay.run(self.requests, partial(self._hashes, result.profile), served)
            result.violation = all_free_at_end(driver.num_free(), replay.capacity, 0)
            if shows_hashes and result.profile.duplicates == "kept":
                carrying = sum(pool.block_hash(b) is not None for b in range(self.num_blocks))
                result.evictions = replay.counts.blocks_cached - carrying
        except (Exception, SystemExit) as error:
            result.violation = self._found(error, f"request {result.counts.num_requests}")

    def _run_checked(
        self,
        result: WorkloadResult,
        pool: Any,
        check_every: int,
        served: Callable[[], None] | None,
    ) -> None:
        driver: CheckedDriver | None = None

        def hashes_of(request: TraceRequest) -> list[bytes]:
            assert driver is not None
            driver.begin(request)
            return self._hashes(result.profile, request)

        try:
            session = RequestSession(pool, result.profile, self.num_blocks)
            driver = CheckedDriver(session, every=check_every, full_every=self.full_every)
            replay = self._replay(result, driver)
            replay.run(self.requests, hashes_of, served)
            driver.finish()
        except (Exception, SystemExit) as error:
            result.violation = self._found(error, f"request {result.counts.num_requests}")
        if driver is not None:
            result.evictions = driver.evictions
            result.num_steps = session.num_commands
            if result.violation is not None:
                result.trace = self._trace(result, driver.log.commands(self.block_size))

    def _replay(self, result: WorkloadResult, driver: Any) -> RequestReplay[int]:
        replay = RequestReplay(
            driver, block_size=self.block_size, concurrent=self.concurrent, finish=self.finish
        )
        result.counts, result.capacity = replay.counts, replay.capacity
        return replay

    def _hashes(self, profile: Profile, request: TraceRequest) -> list[bytes]:
        return block_hashes(request, self.block_size, profile.usual_hash_bytes)

    def _found(self, error: BaseException, what: str) -> Violation:
        if isinstance(error, ViolationError):
            return error.violation
        if is_our_own_bug(error):
            raise error
        return crash(f"serving {what}", error)

    def _trace(self, result: WorkloadResult, commands: Iterable[Command]) -> Trace:
        return Trace(
            target=result.name,
            level=Level.POOL,
            profile=result.profile,
            num_blocks=self.num_blocks,
            enable_caching=True,
            commands=tuple(commands),
            violation=result.violation,
        )


@dataclass(slots=True)
class WorkloadResult:
    """What came of it.

    `capacity` is the number of blocks that the fresh pool had free. `evictions` are the cached
    blocks that an allocation took: with checks, as the reference counts them; without, the blocks
    that were given a hash less those that still show one at the end, which is exact where
    duplicates are kept; None where neither can be had. `num_steps` are the steps whose answers
    were judged. `trace`, with checks only, leads from a fresh pool to the violation.
    """

    name: str
    profile: Profile
    check_every: int | None
    counts: ReplayCounts = field(default_factory=ReplayCounts)
    capacity: int = 0
    evictions: int | None = None
    num_steps: int = 0
    violation: Violation | None = None
    trace: Trace | None = None

    @property
    def block_hit_rate(self) -> float:
        """The share of the prompts' blocks that were found cached; 0.0 when nothing was served."""
        return self.counts.blocks_hit / self.counts.blocks if self.counts.blocks else 0.0

    @property
    def token_hit_rate(self) -> float:
        """The share of the prompts' tokens that were found cached; 0.0 when nothing was served."""
        return self.counts.tokens_hit / self.counts.tokens if self.counts.tokens else 0.0

    @property
    def blocks_per_s(self) -> float:
        """Blocks touched and allocated for each second of process time."""
        return self.counts.blocks / self.counts.process_s if self.counts.process_s else 0.0

    @property
    def blocks_per_wall_s(self) -> float:
        """Blocks touched and allocated for each second that passed."""
        return self.counts.blocks / self.counts.wall_s if self.counts.wall_s else 0.0
