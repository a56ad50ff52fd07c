"""The replay of requests with checks: every call is a step of a `PoolSession`.

Each answer is judged against the reference, always; the state after a step is compared for every
request or for one in `every`; the whole pool is read at a stated rate. What was done is logged
compactly, so that a violation comes with the trace of everything since the fresh pool, hundreds
of thousands of commands long where need be.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.commands import Acquire, Allocate, Cache, Command, Free, Lookup, Touch
from poolproof.contract.content import Key
from poolproof.contract.profile import USUAL_HASH_BYTES, Profile
from poolproof.contract.violation import Violation, ViolationError
from poolproof.harness.event_mirror import EventMirror
from poolproof.harness.pool_judges import KnownKeys
from poolproof.harness.pool_session import SMALL_POOL, PoolSession
from poolproof.harness.request_trace import TraceRequest, block_hashes
from poolproof.harness.target_call import crash, is_our_own_bug
from poolproof.invariants.legal_calls import reads_alike
from poolproof.reference.dict_pool import DictPool

__all__ = ["CheckedDriver", "CommandLog", "RequestSession"]


class RequestSession(PoolSession):
    """A pool session that lasts for millions of steps over a pool of any size.

    Pools of up to `SMALL_POOL` blocks are read whole after every step; larger ones only by
    `read_everything`. `checking` says whether the state is compared after a step at all.
    """

    def __init__(self, target: Any, profile: Profile, num_blocks: int) -> None:
        full_every = 1 if num_blocks <= SMALL_POOL else sys.maxsize
        super().__init__(target, profile, num_blocks, full_every=full_every)
        self._mirror = None
        if self._events is not None and num_blocks > SMALL_POOL:
            self._events.mirror = self._mirror = _RareMirror(profile)

    @property
    def checking(self) -> bool:
        """Whether the state is compared with the reference after each step."""
        return self._checked

    @checking.setter
    def checking(self, value: bool) -> None:
        self._checked = value

    def _make_keys(self) -> KnownKeys:
        return _LatestKeys(self.reference)

    def read_everything(self) -> Violation | None:
        """Compare the whole pool with the reference now."""
        try:
            if self._full.passes():
                return self._events_differ()
            found = self.diagnose()
        except ViolationError as error:
            found = error.violation
        except Exception as error:
            if is_our_own_bug(error):
                raise
            found = crash("reading the whole pool", error)
        found = reads_alike("pool", found)
        return found and self._numbered(found)

    def _events_differ(self) -> Violation | None:
        if self._mirror is None:
            return None
        self._mirror.replay(self.target.take_events())
        self._mirror.due = True
        found = self._mirror.differs_from(self.reference)
        self._mirror.due = False
        return self._numbered(found) if found else None


class _LatestKeys(KnownKeys):
    """Keys for full observations, and no more than twice the pool's size of them.

    A long trace has millions of keys. Those that are cached stay, and of the others the newest: a
    key that was evicted lately is the likeliest to be found although it is gone.
    """

    def __init__(self, reference: DictPool) -> None:
        super().__init__()
        self._reference = reference
        self._most = 2 * reference.num_blocks + 1000

    def know(self, keys: Sequence[Key]) -> None:
        """Keys that full observations look up from now on."""
        super().know(keys)
        if len(self) > self._most:
            carried = self._reference.carriers
            gone = [key for key in self if key not in carried]
            self.keep([*carried, *gone[-self._reference.num_blocks :]])


@dataclass(frozen=True, slots=True)
class _Lookups:
    """Lookups of the first `count` hashes of a request."""

    request: TraceRequest
    count: int


@dataclass(frozen=True, slots=True)
class _Caching:
    """A request's blocks from number `start` on got their hashes."""

    request: TraceRequest
    start: int
    block_ids: tuple[int, ...]


class CommandLog:
    """Every command of a replay, in memory for the blocks' ids but not for their hashes."""

    def __init__(self, hash_bytes: int = USUAL_HASH_BYTES) -> None:
        self._hash_bytes = hash_bytes
        self._entries: list[Command | _Lookups | _Caching] = []

    def add(self, command: Command) -> None:
        """A command as it is."""
        self._entries.append(command)

    def add_lookups(self, request: TraceRequest, count: int) -> None:
        """Lookups of the request's first `count` hashes."""
        self._entries.append(_Lookups(request, count))

    def add_caching(self, request: TraceRequest, start: int, block_ids: tuple[int, ...]) -> None:
        """The caching of the request's blocks from number `start` on."""
        self._entries.append(_Caching(request, start, block_ids))

    def commands(self, block_size: int) -> Iterator[Command]:
        """All commands in order, one value each."""
        for entry in self._entries:
            if isinstance(entry, _Lookups):
                hashes = block_hashes(entry.request, block_size, self._hash_bytes)
                yield from map(Lookup, hashes[: entry.count])
            elif isinstance(entry, _Caching):
                hashes = block_hashes(entry.request, block_size, self._hash_bytes)
                yield Cache(entry.block_ids, tuple(hashes[entry.start :]))
            else:
                yield entry


class _RareMirror(EventMirror):
    """Follows every event, and compares with the whole index only when that is `due`.

    The comparison costs as much as the pool is large, which no step of a large pool can afford.
    """

    due = False

    def differs_from(self, pool: DictPool) -> Violation | None:
        return super().differs_from(pool) if self.due else None


class CheckedDriver:
    """Calls a pool through its session. Raises ViolationError at the first violation.

    `every`: the state is compared for one request in so many. `full_every`: the whole pool is
    read before one request in so many; pools small enough are read after every step anyway.
    """

    def __init__(self, session: RequestSession, *, every: int, full_every: int) -> None:
        self.log = CommandLog(session.profile.usual_hash_bytes)
        self.evictions = 0
        self._session = session
        self._every = every
        self._full_every = full_every
        self._num_requests = 0
        self._request: TraceRequest | None = None

    def begin(self, request: TraceRequest) -> None:
        """The calls that follow are for this request, but for what is freed to make room."""
        self._request = request

    def num_free(self) -> int:
        return len(self._session.reference.free)

    def hold_prefix(self, hashes: list[bytes], at_most: int) -> list[int]:
        session = self._session
        self._next_request()
        if "lookup" not in session.can.verbs:
            self._step(Acquire(tuple(hashes[:at_most])))
            return list(session.last.taken)
        found: list[int] = []
        looked_up = 0
        try:
            for block_hash in hashes[:at_most]:
                looked_up += 1
                self._must_hold(session.step(Lookup(block_hash)))
                if session.last.found is None:
                    break
                found.append(session.last.found)
        finally:
            self.log.add_lookups(self._begun, looked_up)
        if found:
            self._step(Touch(tuple(found)))
        return found

    def allocate(self, count: int) -> list[int]:
        self._step(Allocate(count))
        self.evictions += len(self._session.last.touched_keys)
        return list(self._session.last.taken)

    def cache(self, blocks: list[int], hashes: list[bytes], num_cached: int) -> None:
        ids = tuple(blocks[num_cached : len(hashes)])
        if not ids:
            return
        self.log.add_caching(self._begun, num_cached, ids)
        self._must_hold(self._session.step(Cache(ids, tuple(hashes[num_cached:]))))
        if self._session.last.remapped:
            other = dict(self._session.last.remapped)
            self._session.last.remapped.clear()
            blocks[:] = [other.get(block_id, block_id) for block_id in blocks]

    def free(self, blocks: list[int]) -> None:
        self._step(Free(tuple(blocks)))

    def finish(self) -> None:
        """Once every request has ended: nothing may have leaked, and the whole pool is read."""
        self._must_hold(self._session.end())
        self._must_hold(self._session.read_everything())

    @property
    def _begun(self) -> TraceRequest:
        assert self._request is not None, "begin() comes first"
        return self._request

    def _next_request(self) -> None:
        self._session.checking = self._num_requests % self._every == 0
        if self._num_requests % self._full_every == 0:
            self._must_hold(self._session.read_everything())
        self._num_requests += 1

    def _step(self, command: Command) -> None:
        self.log.add(command)
        self._must_hold(self._session.step(command))

    def _must_hold(self, violation: Violation | None) -> None:
        if violation is not None:
            raise ViolationError(violation)
