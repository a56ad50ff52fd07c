"""Drives the small engine by choices: which operation, on whom, with which tokens.

Tokens are two symbols, so that prefixes meet; prompts end at a block's edge, one before and one
behind it; the pool is nearly full. Behind `choose` stands Hypothesis or a seeded generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poolproof.contract.profile import USUAL_HASH_BYTES
from poolproof.kernels.grammar import Choose
from poolproof.kernels.serving.engine import Engine
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.serving.request import Request
from poolproof.kernels.target import KernelTarget

__all__ = ["OPERATIONS", "ServingSession"]

OPERATIONS = ("admit", "step", "step", "step", "fork", "swap_out", "swap_in", "finish", "resume")
MOST_REQUESTS = 4


class ServingSession:
    """One engine over one pool of 6 to 11 blocks."""

    def __init__(
        self,
        target: KernelTarget,
        make_pool: Callable[[int], Any],
        choose: Choose,
        *,
        block_size: int = 4,
        head_size: int = 16,
        num_kv_heads: int = 1,
        queries_per_kv_head: int = 2,
        hash_bytes: int = USUAL_HASH_BYTES,
    ) -> None:
        self.choose = choose
        num_blocks = 6 + choose(6)
        model = TinyModel.random(
            num_kv_heads * queries_per_kv_head, num_kv_heads, head_size, seed=choose(100)
        )
        pool = make_pool(num_blocks)
        self.engine = Engine(target, pool, num_blocks, block_size, model, hash_bytes=hash_bytes)

    def run(self, operations: int) -> None:
        """So many operations, each a random one. Raises what `Engine` raises."""
        for _ in range(operations):
            getattr(self, OPERATIONS[self.choose(len(OPERATIONS))])()

    def admit(self) -> None:
        """A prompt of one to three blocks, shared with others by chance."""
        if len(self.engine.requests) < MOST_REQUESTS:
            size = self.engine.block_size
            length = max(2, (1 + self.choose(3)) * size - 1 + self.choose(3))
            # One choice a block: prefixes have to meet often.
            tokens = [self.choose(2)] * size + [self.choose(2)] * size + [self.choose(2)] * size
            self.engine.admit((tokens + [self.token()] * size)[:length])

    def resume(self) -> None:
        """A preempted request comes back with all its tokens."""
        if self.engine.preempted and len(self.engine.requests) < MOST_REQUESTS:
            tokens = self.engine.preempted.pop()
            if self.engine.admit(list(tokens)) is None:
                self.engine.preempted.append(tokens)

    def step(self) -> None:
        """Everybody who is not swapped out, each with a chunk or the whole rest."""
        chunks = {
            request.name: 1 + self.choose(8) if self.choose(2) else 64
            for request in self.engine.requests.values()
            if request.host is None
        }
        if chunks:
            self.engine.step(chunks, self.token)

    def fork(self) -> None:
        """Somebody whose tokens are all computed goes on twice."""
        able = [r for r in self._running() if r.computed == len(r.tokens)]
        if able and len(self.engine.requests) < MOST_REQUESTS:
            self.engine.fork(able[self.choose(len(able))])

    def swap_out(self) -> None:
        """Somebody's blocks go to the host."""
        able = [request for request in self._running() if request.computed]
        if able:
            self.engine.swap_out(able[self.choose(len(able))])

    def swap_in(self) -> None:
        """Somebody comes back from the host."""
        away = [r for r in self.engine.requests.values() if r.host is not None]
        if away:
            self.engine.swap_in(away[self.choose(len(away))])

    def finish(self) -> None:
        """Somebody is done."""
        requests = list(self.engine.requests.values())
        if requests:
            self.engine.finish(requests[self.choose(len(requests))])

    def token(self) -> int:
        """The next token of somebody."""
        return self.choose(2)

    def _running(self) -> list[Request]:
        return [request for request in self.engine.requests.values() if request.host is None]
