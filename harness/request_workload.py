"""Serves one trace of requests with one target: from its construction to the result.

The target runs in this process, without limits on time or memory: a target that hangs is for
`certify`, which isolates it. What the checks compare is in `request_checks.py`.

A request is served so: look up, touch, allocate, cache, free in reverse. `RequestReplay` is the
loop of it that an engine's scheduler runs for prompts; a `PoolDriver` says how one kind of pool is
called, so the same loop drives native pools, checked ones (`request_checks.py`) and an engine's
own class. It serves as fast as it can: timestamps do not matter. Decoding is out of scope at pool
level: a request holds the blocks of its prompt and does not grow; its output length may decide how
long it stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from poolproof.contract.commands import Command
from poolproof.contract.level import Level
from poolproof.contract.profile import FEWEST_BYTES_OF_CONTENTS, Profile
from poolproof.contract.target import TargetError, capabilities_of
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation, ViolationError
from poolproof.harness.request_checks import CheckedDriver, RequestSession
from poolproof.harness.request_trace import (
    TraceRequest,
    block_hashes,
    require_block_size,
)
from poolproof.harness.target_call import constructing, crash, is_our_own_bug
from poolproof.invariants.admission import unusable_answer
from poolproof.invariants.free_at_end import all_free_at_end

__all__ = [
    "NativeDriver",
    "PoolDriver",
    "ReplayCounts",
    "RequestReplay",
    "RequestWorkload",
    "WorkloadResult",
]


FINISH_ORDERS = ("fifo", "output-length")
"""Which live request ends next: the oldest; or the first to have decoded its output, where all
live requests decode one token at a time, as in continuous batching."""

Block = TypeVar("Block")


class PoolDriver(Protocol[Block]):
    """How the loop speaks to one kind of pool. A block is whatever the pool names blocks by."""

    def num_free(self) -> int:
        """How many blocks `allocate` can hand out now."""
        ...

    def hold_prefix(self, hashes: list[bytes], at_most: int) -> list[Block]:
        """One more reference on each block of the longest cached prefix, `at_most` blocks long."""
        ...

    def allocate(self, count: int) -> list[Block]:
        """`count` blocks; a list that the caller may keep and change."""
        ...

    def cache(self, blocks: list[Block], hashes: list[bytes], num_cached: int) -> None:
        """`blocks[i]` gets `hashes[i]` for every i from `num_cached` to the last hash.

        Where the pool hands back other blocks for the same hashes, `blocks` is changed in place.
        """
        ...

    def free(self, blocks: list[Block]) -> None:
        """Drop one reference on each of a request's blocks, the last block of the prompt first."""
        ...


@dataclass(slots=True)
class ReplayCounts:
    """What the requests got. A block counts as hit when it was found cached.

    `num_ended_early` requests were ended because the pool was too full for the next one;
    `num_skipped` needed more blocks than the pool has. `process_s` and `wall_s` are the time
    spent in the loop and the pool, without the hashing of the prompts.
    """

    num_requests: int = 0
    num_skipped: int = 0
    num_ended_early: int = 0
    blocks: int = 0
    blocks_hit: int = 0
    blocks_cached: int = 0
    tokens: int = 0
    tokens_hit: int = 0
    peak_held: int = 0
    process_s: float = 0.0
    wall_s: float = 0.0

    @property
    def blocks_allocated(self) -> int:
        """The blocks that were not found; with those touched (`blocks_hit`) they make `blocks`."""
        return self.blocks - self.blocks_hit


class RequestReplay(Generic[Block]):
    """The loop over one fresh pool.

    Keeps up to `concurrent` requests live and ends one, in the order `finish`, when the next
    comes or when the pool is too full for it. `capacity` is what `num_free` says at the start.
    """

    def __init__(
        self,
        driver: PoolDriver[Block],
        *,
        block_size: int,
        concurrent: int,
        finish: str = "fifo",
    ) -> None:
        self.counts = ReplayCounts()
        self.capacity = driver.num_free()
        self._driver = driver
        self._block_size = block_size
        self._concurrent = concurrent
        self._by_output = finish == "output-length"
        self._live: list[tuple[int, int, list[Block]]] = []
        self._clock = 0

    def run(
        self,
        requests: Iterable[TraceRequest],
        hashes_of: Callable[[TraceRequest], list[bytes]],
        served: Callable[[], None] | None = None,
    ) -> None:
        """Serve all requests and end them; `served` is called after each, outside the time."""
        for request in requests:
            hashes = hashes_of(request)
            self._timed(self._serve, request, hashes)
            if served is not None:
                served()
        self._timed(self._end_all)

    def _timed(self, act: Callable[..., None], *arguments: Any) -> None:
        wall_s, process_s = time.perf_counter(), time.process_time()
        act(*arguments)
        self.counts.process_s += time.process_time() - process_s
        self.counts.wall_s += time.perf_counter() - wall_s

    def _serve(self, request: TraceRequest, hashes: list[bytes]) -> None:
        driver, counts, block_size = self._driver, self.counts, self._block_size
        length = request.input_length
        needed = -(-length // block_size)
        counts.num_requests += 1
        if needed > self.capacity:
            counts.num_skipped += 1
            return
        while len(self._live) >= self._concurrent:
            self._end_next()
        # At least the last token has to be computed, or there is nothing to sample from; so a
        # prompt that is cached to its end computes its last block again.
        blocks = driver.hold_prefix(hashes, (length - 1) // block_size)
        num_hit = len(blocks)
        missing = needed - num_hit
        num_free = driver.num_free()
        # The prefix is held already, so ending its owner cannot lose it.
        while missing > num_free and self._live:
            self._end_next()
            counts.num_ended_early += 1
            num_free = driver.num_free()
        blocks += driver.allocate(missing)
        driver.cache(blocks, hashes, num_hit)
        due = self._clock + request.output_length if self._by_output else 0
        heappush(self._live, (due, counts.num_requests, blocks))
        counts.blocks += needed
        counts.blocks_hit += num_hit
        counts.blocks_cached += max(0, len(hashes) - num_hit)
        counts.tokens += length
        counts.tokens_hit += num_hit * block_size
        counts.peak_held = max(counts.peak_held, self.capacity - num_free + missing)

    def _end_next(self) -> None:
        self._clock, _, blocks = heappop(self._live)
        blocks.reverse()
        self._driver.free(blocks)

    def _end_all(self) -> None:
        while self._live:
            self._end_next()


class NativeDriver:
    """Calls a native pool with nothing in between; block ids are the blocks.

    Answers of the wrong form raise ViolationError; whether they are right is not looked at.
    `drain_events`: take the events after every request, as engines do, or they pile up.
    """

    def __init__(self, pool: Any, *, drain_events: bool = False) -> None:
        self._pool = pool
        self._lookup = None if "lookup" not in capabilities_of(pool).verbs else pool.lookup
        self._take_events = pool.take_events if drain_events else None

    def num_free(self) -> int:
        answer = self._pool.num_free()
        if type(answer) is not int:
            raise _wrong_form("num_free()", "a number of blocks", answer)
        return answer

    def hold_prefix(self, hashes: list[bytes], at_most: int) -> list[int]:
        lookup = self._lookup
        if lookup is None:
            return _listed("acquire", self._pool.acquire(hashes[:at_most]))
        found = []
        for block_hash in hashes[:at_most]:
            block_id = lookup(block_hash)
            if block_id is None:
                break
            found.append(block_id)
        if found:
            self._pool.touch(found)
        return found

    def allocate(self, count: int) -> list[int]:
        answer = self._pool.allocate(count)
        # The contract lets a pool answer the blocks beside the hashes that it evicted.
        if type(answer) is tuple and len(answer) == 2 and isinstance(answer[0], list | tuple):
            answer = answer[0]
        blocks = _listed("allocate", answer)
        if len(blocks) != count:
            raise _wrong_form(f"allocate({count})", f"{count} blocks", answer)
        return blocks

    def cache(self, blocks: list[int], hashes: list[bytes], num_cached: int) -> None:
        new = hashes[num_cached:]
        if new:
            answer = self._pool.cache(blocks[num_cached : len(hashes)], new)
            if isinstance(answer, list) and len(answer) == len(new):
                blocks[num_cached : len(hashes)] = answer
        if self._take_events is not None:
            self._take_events()

    def free(self, blocks: list[int]) -> None:
        self._pool.free(blocks)


def _listed(verb: str, answer: Any) -> list[int]:
    if not isinstance(answer, list | tuple):
        raise _wrong_form(f"{verb}()", "a list of block ids", answer)
    return list(answer)


def _wrong_form(call: str, expected: str, answer: Any) -> ViolationError:
    return ViolationError(unusable_answer(call, answer, expected))


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
