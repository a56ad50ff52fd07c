"""How much `certify` does at each depth.

Budgets are counts, never seconds, so that the same code gets the same verdict on every machine.
A chunk is a hundred runs, about 11,000 steps at pool level, 9,000 at manager level and 4,000 at
queue and index level. The seconds that a depth takes are measured by benchmarks/certify_seconds.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poolproof.certification.run_kinds import CHAINS, INDEX, POOL, QUEUE, RunKind
from poolproof.contract.depth import Depth
from poolproof.contract.level import Level
from poolproof.harness.engine_production import QUICK_ENGINE_SIZES, EngineSizes
from poolproof.harness.manager_production import QUICK_SIZES, ManagerSizes
from poolproof.harness.production import ProductionSizes

__all__ = ["BUDGETS", "RUNS_PER_CHUNK", "Bounds", "Budget", "Sequences"]

RUNS_PER_CHUNK = 100


@dataclass(frozen=True, slots=True)
class Bounds:
    """A scope whose states are all visited: blocks without the null block, hashes, references.

    `wide` also tries calls for two blocks and misuse. `unreduced` visits every state instead of one
    per orbit.
    """

    num_blocks: int
    num_hashes: int = 2
    max_references: int = 2
    wide: bool = False
    unreduced: bool = False


@dataclass(frozen=True, slots=True)
class Sequences:
    """All sequences of up to `max_commands` commands on 3 usable blocks.

    Allocations of up to `max_count` blocks, lists of up to `max_list`, and so many hashes. A target
    whose states never repeat has endless states: after `most_steps` commands the stage ends.
    """

    max_commands: int
    max_count: int = 3
    max_list: int = 2
    num_hashes: int = 2
    most_steps: int = 60_000


@dataclass(frozen=True, slots=True)
class Budget:
    """Chunks for each kind of run, and what a finding may cost.

    `shortest_states` bounds the breadth-first search for a shorter trace of one finding; `scopes`,
    `sequences`, `queue_blocks` and `index_blocks` are what is explored exhaustively;
    `workload_states` bounds the states that a manager's workloads are continued from, all layouts
    together. `production` are the runs at the sizes of servers, of queues, indexes and pools,
    `manager_production` those of managers, `engine_production` those of engines.
    """

    pool_chunks: int
    chain_chunks: int
    queue_chunks: int
    shortest_states: int
    more_chunks_after_failure: int = 4
    manager_chunks: int = 4
    engine_chunks: int = 4
    index_chunks: int = 2
    scopes: tuple[Bounds, ...] = ()
    sequences: tuple[Sequences, ...] = ()
    queue_blocks: int = 0
    index_blocks: int = 0
    workload_states: int = 0
    production: ProductionSizes | None = None
    manager_production: ManagerSizes | None = None
    engine_production: EngineSizes | None = None

    def production_of(
        self, kind: RunKind, kinds: Sequence[RunKind]
    ) -> ProductionSizes | ManagerSizes | EngineSizes | None:
        """The sizes of servers for one of these kinds of runs; None if it has none.

        The layouts of a manager, and the set-ups of an engine, share what there is for their level.
        """
        if not kind.has_production_sizes:
            return None
        if kind.layout is None:
            return self.production
        of_level = {Level.MANAGER: self.manager_production, Level.ENGINE: self.engine_production}
        sizes = of_level[kind.level]
        return None if sizes is None else sizes.shared(kinds.index(kind), len(kinds))

    @property
    def chunks(self) -> dict[RunKind, int]:
        """Chunks by kind of run, but for managers."""
        return {
            POOL: self.pool_chunks,
            CHAINS: self.chain_chunks,
            QUEUE: self.queue_chunks,
            INDEX: self.index_chunks,
        }

    def chunks_of_layout(self, kind: RunKind, num_layouts: int) -> int:
        """Chunks for each of so many layouts: they share, down to a quarter.

        More than a dozen share what a dozen would have, so that another layout costs nothing. Of an
        engine it is sixteen: vLLM's priority leak needs about 300 runs of its set-up.
        """
        chunks = {Level.MANAGER: (self.manager_chunks, 12), Level.ENGINE: (self.engine_chunks, 16)}
        of_level, most = chunks[kind.level]
        each = -(-of_level // min(num_layouts, 4))
        return max(1, each * most // max(num_layouts, most))

    @staticmethod
    def machine_share(num_layouts: int) -> int:
        """By how much the examples of a state machine are divided, for the same reason."""
        return -(-num_layouts // 12)

    def states_of_layout(self, num_layouts: int) -> int:
        """States of each of so many layouts of a manager: they share, down to a sixteenth."""
        return -(-self.workload_states // max(1, min(num_layouts, 16)))


_ONE_BLOCK = Bounds(1, wide=True)
"""The smallest pool, which no other run builds. It comes last: where a larger scope fails as well,
its trace shows more."""

BUDGETS = {
    Depth.QUICK: Budget(
        pool_chunks=8,
        chain_chunks=4,
        queue_chunks=2,
        index_chunks=2,
        shortest_states=4_000,
        manager_chunks=12,
        engine_chunks=16,
        scopes=(Bounds(3, unreduced=True), Bounds(3, wide=True), Bounds(4), _ONE_BLOCK),
        sequences=(Sequences(7, 1, 1, 1), Sequences(3)),
        queue_blocks=4,
        index_blocks=2,
        # Every state of three commands, for a manager with one layout and all verbs.
        workload_states=1_600,
        production=ProductionSizes(48, 3, 10_000, 4_096, 4_200, wide_runs=20, steady_runs=1),
        manager_production=QUICK_SIZES,
        engine_production=QUICK_ENGINE_SIZES,
    ),
    Depth.STANDARD: Budget(
        pool_chunks=60,
        chain_chunks=30,
        queue_chunks=20,
        index_chunks=20,
        shortest_states=20_000,
        manager_chunks=160,
        engine_chunks=160,
        scopes=(Bounds(4, unreduced=True), Bounds(4, wide=True), Bounds(6), _ONE_BLOCK),
        sequences=(
            Sequences(8, 1, 1, 1, most_steps=300_000),
            Sequences(4, most_steps=300_000),
        ),
        queue_blocks=5,
        index_blocks=3,
        workload_states=6_400,
        production=ProductionSizes(400, 5, 75_000, 4_096, 4_200, wide_runs=120, steady_runs=2),
        manager_production=ManagerSizes(
            num_prompts=4_000,
            num_giant_steps=1_024,
            num_sequences=1_025,
            num_references=4_200,
            num_repeats=1_000,
            num_depths=500,
            num_far_tokens=65_536,
            num_commands=75_000,
            rounds=2,
        ),
        engine_production=EngineSizes(
            num_blocks=1_000,
            num_requests=1_030,
            num_depths=300,
            num_repeats=1_030,
            num_commands=40_000,
            rounds=2,
            most_shares=4,
        ),
    ),
    Depth.DEEP: Budget(
        pool_chunks=2_000,
        chain_chunks=1_000,
        queue_chunks=200,
        index_chunks=200,
        shortest_states=200_000,
        manager_chunks=3_000,
        engine_chunks=3_000,
        scopes=(Bounds(4, unreduced=True), Bounds(5, wide=True), Bounds(8), _ONE_BLOCK),
        sequences=(
            Sequences(10, 1, 1, 1, most_steps=3_000_000),
            Sequences(5, most_steps=3_000_000),
        ),
        queue_blocks=6,
        index_blocks=4,
        workload_states=100_000,
        production=ProductionSizes(
            4_000, 16, 200_000, 70_000, 66_000, wide_runs=600, steady_runs=6
        ),
        manager_production=ManagerSizes(
            num_blocks=16_384,
            num_prompts=30_000,
            num_giant_steps=4_096,
            num_sequences=4_097,
            num_references=66_000,
            num_repeats=5_000,
            num_depths=1_500,
            num_far_tokens=65_536,
            num_commands=200_000,
            rounds=6,
        ),
        engine_production=EngineSizes(
            num_blocks=1_000,
            num_requests=4_100,
            num_depths=320,
            num_repeats=4_100,
            num_commands=200_000,
            rounds=6,
            most_shares=4,
        ),
    ),
}
