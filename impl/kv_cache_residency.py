"""How long blocks stay, for a sample of them: life time, idle time, and gaps between uses.

Short lives with short gaps say that the pool is too small for what is asked of it; long idle
times say that blocks wait for a reuse that does not come. The clock and the random numbers are
handed in, so that figures can be repeated.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from poolproof.impl.block_pool import BlockPool

MAX_USES = 4
"""How many uses of a block are remembered, so that a hot one does not grow without bound."""


@dataclass(frozen=True, slots=True)
class Residency:
    """One stay of a block, from its allocation until it was handed out again or evicted.

    `idle_s` is the time since its last use (allocation or hit), `reuse_gaps_s` the times between
    its last hits, at most `MAX_USES` of them.
    """

    lifetime_s: float
    idle_s: float
    reuse_gaps_s: tuple[float, ...]


@dataclass(slots=True)
class _Stay:
    born_s: float
    used_s: float
    hits_s: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_USES))


class ResidencyMetrics:
    """Watches a share of the blocks.

    Args:
        sample_rate: the share of allocated blocks to watch, above 0 and at most 1.
        clock: seconds, never running backwards.
        seed: of the generator that draws the sample.

    Raises ValueError for a sample rate out of bounds.
    """

    def __init__(
        self,
        sample_rate: float = 0.01,
        *,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        if not 0 < sample_rate <= 1:
            raise ValueError(f"sample_rate must be above 0 and at most 1, not {sample_rate!r}")
        self.sample_rate = sample_rate
        self._clock = clock
        self._draw = random.Random(seed).random
        self._stays: dict[int, _Stay] = {}
        self._ended: list[Residency] = []

    def allocated(self, block_ids: Iterable[int]) -> None:
        """Blocks were handed out: earlier stays end here, and some of the new ones are watched."""
        now_s = self._clock()
        for block_id in block_ids:
            self._end(block_id, now_s)
            if self._draw() < self.sample_rate:
                self._stays[block_id] = _Stay(now_s, now_s)

    def used(self, block_ids: Iterable[int]) -> None:
        """Blocks were hit."""
        now_s = self._clock()
        for block_id in block_ids:
            stay = self._stays.get(block_id)
            if stay is not None:
                stay.used_s = now_s
                stay.hits_s.append(now_s)

    def evicted(self, block_ids: Iterable[int]) -> None:
        """Blocks lost what was cached in them."""
        now_s = self._clock()
        for block_id in block_ids:
            self._end(block_id, now_s)

    def reset(self) -> None:
        """Forget everything, ended stays that were not taken included."""
        self._stays.clear()
        self._ended.clear()

    def take(self) -> list[Residency]:
        """The stays that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def _end(self, block_id: int, now_s: float) -> None:
        stay = self._stays.pop(block_id, None)
        if stay is not None:
            gaps = tuple(later - earlier for earlier, later in pairwise(stay.hits_s))
            self._ended.append(Residency(now_s - stay.born_s, now_s - stay.used_s, gaps))


class WatchedPool(BlockPool):
    """A block pool that tells `ResidencyMetrics` what it does, after it has done it."""

    def __init__(self, num_blocks: int, metrics: ResidencyMetrics, **profile: Any) -> None:
        super().__init__(num_blocks, **profile)
        self._metrics = metrics

    def allocate(self, n: int) -> list[int]:
        taken = super().allocate(n)
        self._metrics.allocated(taken)
        return taken

    def touch(self, block_ids: Iterable[int]) -> None:
        ids = list(block_ids)
        super().touch(ids)
        self._metrics.used(ids)

    def evict(self, block_ids: Iterable[int]) -> None:
        ids = list(block_ids)
        super().evict(ids)
        self._metrics.evicted(ids)

    def reset(self) -> bool:
        done = super().reset()
        if done:
            self._metrics.reset()
        return done
