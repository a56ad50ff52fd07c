"""Replays requests against a block pool: look up, touch, allocate, cache, free in reverse.

`RequestReplay` is the loop that an engine's scheduler runs for prompts; a `PoolDriver` says how
one kind of pool is called, so the same loop drives native pools, checked ones
(`request_checks.py`) and an engine's own class. It serves as fast as it can: timestamps do not
matter. Decoding is out of scope at pool level: a request holds the blocks of its prompt and does
not grow; its output length may decide how long it stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from poolproof.contract.target import capabilities_of
from poolproof.contract.violation import ViolationError
from poolproof.harness.request_trace import TraceRequest
from poolproof.invariants.admission import unusable_answer

__all__ = ["FINISH_ORDERS", "NativeDriver", "PoolDriver", "ReplayCounts", "RequestReplay"]

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
