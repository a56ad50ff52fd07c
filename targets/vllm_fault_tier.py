"""A secondary tier for vLLM's tiering offloading connector: right, slow, and failing at times.

vLLM loads it by the path of this module (`TieringOffloadingSpec`). It does what
`SecondaryTierManager` allows: some lookups want to be asked again, jobs end when the simulated
worker says so, some fail, and of some loads only a part fails. It moves no bytes:
`vllm_tier_worker.py` keeps what stands where.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, Medium, RequestOffloadingContext
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

__all__ = ["FaultTier", "TierJob"]

_FAILS_EVERY = 5
"""One job in so many fails."""

_ASKS_EVERY = 3
"""One key in so many is not told at once."""


@dataclass(eq=False)
class TierJob:
    """A job of the tier until it has ended; `places` are those of its keys outside, once known."""

    job: TransferJob
    is_cancelled: bool = False
    places: list[int] = field(default_factory=list)

    @property
    def num_right(self) -> int:
        """So many of its keys, from the first on, are moved before it fails, if it does."""
        keys = len(self.job.keys)
        return keys // 2 if self.job.job_id % _FAILS_EVERY == _FAILS_EVERY - 1 else keys


class FaultTier(SecondaryTierManager):  # type: ignore[misc]  # vLLM is no dependency
    """What it keeps, by key: the place of a chunk that was stored whole. It forgets nothing."""

    medium = Medium.STORAGE

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.kept: dict[Any, int] = {}
        self.begun: list[TierJob] = []
        self._in_flight: list[TierJob] = []
        self._ended: list[JobResult] = []
        self._asked: dict[str, set[Any]] = {}

    def lookup(self, key: Any, req_context: Any) -> LookupResult:
        """Whether a chunk is kept. Of some it is said only when asked again.

        Once said it is said at once while a request lives that has asked, as in vLLM's own tiers
        (`AsyncLookupManager`): a lookup may ask for one key only after it has the answer for
        another, so whoever forgets answers may never have all of them at a time.
        """
        if key[0] % _ASKS_EVERY == 0:
            is_known = any(key in keys for keys in self._asked.values())
            self._asked.setdefault(req_context.req_id, set()).add(key)
            if not is_known:
                return LookupResult.RETRY
        return LookupResult.HIT if key in self.kept else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        """A job begins that the worker hears of with the next step."""
        self._submit(job_metadata)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """The same, for a promotion."""
        self._submit(job_metadata)

    def _submit(self, job: TransferJob) -> None:
        begun = TierJob(job)
        self.begun.append(begun)
        self._in_flight.append(begun)

    def take_begun(self) -> list[TierJob]:
        """Jobs that the worker has not heard of."""
        begun, self.begun = self.begun, []
        return begun

    def end(self, one: TierJob) -> None:
        """The worker has moved what is right of a job."""
        self._in_flight.remove(one)
        keys, count = list(one.job.keys), one.num_right
        if not one.job.is_promotion:
            self.kept.update(zip(keys[:count], one.places, strict=False))
        is_whole = count == len(keys)
        right = keys[:count] if one.job.is_promotion and not is_whole else None
        self._ended.append(JobResult(one.job.job_id, is_whole, right))

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Results since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        """No wishes."""
        del req_context
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        """What was asked for the request alone is forgotten."""
        self._asked.pop(req_context.req_id, None)

    def drain_jobs(self) -> None:
        """Every job is cancelled before it has moved anything, and fails."""
        for one in self._in_flight:
            one.is_cancelled = True
            self._ended.append(JobResult(one.job.job_id, success=False))
        self._in_flight.clear()
        self.begun.clear()
