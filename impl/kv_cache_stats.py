"""How often the prefix cache was asked and how often it answered, counted in tokens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class PrefixCacheStats:
    """Counts since the last time they were taken.

    `queries` are tokens of first admissions, `hits` those of them that were cached. Requests that
    had been preempted are counted apart: they find their own blocks again, which says nothing
    about how much requests share. `reset`: the prefix cache was emptied in between.
    """

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, *, preempted: bool) -> None:
        """Count one admitted request of `num_tokens` tokens, `num_hits` of them cached."""
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits
