"""How much each level of `certify` does.

Budgets are counts, never seconds, so that the same code gets the same verdict on every machine.
A chunk is a hundred runs, about 11,000 steps at pool level and 4,000 at queue level. The seconds
that a level takes are measured by benchmarks/certify_seconds.py.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BUDGETS", "RUNS_PER_CHUNK", "Budget"]

RUNS_PER_CHUNK = 100


@dataclass(frozen=True, slots=True)
class Budget:
    """Chunks for each kind of run, and what a finding may cost.

    `shortest_states` bounds the breadth-first search for a shorter trace of one finding.
    """

    pool_chunks: int
    chain_chunks: int
    queue_chunks: int
    shortest_states: int
    more_chunks_after_failure: int = 4

    @property
    def chunks(self) -> dict[str, int]:
        """Chunks by kind of run."""
        return {"pool": self.pool_chunks, "chains": self.chain_chunks, "queue": self.queue_chunks}


BUDGETS = {
    "quick": Budget(pool_chunks=8, chain_chunks=4, queue_chunks=2, shortest_states=4_000),
    "standard": Budget(pool_chunks=100, chain_chunks=50, queue_chunks=20, shortest_states=20_000),
    "deep": Budget(
        pool_chunks=2_000, chain_chunks=1_000, queue_chunks=200, shortest_states=200_000
    ),
}
