"""A small engine over a native block pool, and a session that drives it by choices.

Requests share, fork, are preempted and swapped. The pool decides who gets which block; the kernels
under test read and write (`forward.py`). In `manager_engine.py` a manager decides more instead of
the engine.

The session chooses the operation, the request and the tokens. Tokens are two symbols, so that
prefixes meet; prompts end at a block's edge, one before and one after it; the pool is nearly full.
`choose` is backed by Hypothesis or a seeded generator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.commands import Allocate, Cache, Command, Free, Lookup, Touch
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import USUAL_HASH_BYTES
from poolproof.kernels.grammar import Choose
from poolproof.kernels.serving.forward import AllocatorBrokeError, ForwardPass, Part
from poolproof.kernels.serving.memory import CacheMemory
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.target import KernelTarget

__all__ = [
    "OPERATIONS",
    "PoolEngine",
    "ServedRequest",
    "ServingSession",
    "block_hashes",
]


@dataclass(slots=True)
class ServedRequest:
    """Its tokens, the blocks of its table, and how many tokens have their keys in the cache.

    `host` are the places of its blocks in the host's cache while it is swapped out.
    """

    name: int
    tokens: list[int]
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    hashed: int = 0
    host: list[int] | None = None


def block_hashes(
    tokens: Sequence[int], block_size: int, hash_bytes: int = USUAL_HASH_BYTES
) -> list[bytes]:
    """One hash for each full block, of its tokens and of all blocks before it."""
    hashes: list[bytes] = []
    parent = b""
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = _digest(parent + bytes(tokens[end - block_size : end]), hash_bytes)
        hashes.append(parent)
    return hashes


def _digest(content: bytes, length: int) -> bytes:
    if length == USUAL_HASH_BYTES:
        return hashlib.blake2b(content, digest_size=length).digest()
    return hashlib.shake_128(content).digest(length)


REFUSALS = (MemoryError, ValueError)
HOST_BLOCKS_PER_BLOCK = 4
"""So many requests at once may be on the host, each with as many blocks as there are."""


class PoolEngine:
    """An engine over `num_blocks` blocks, which the pool hands out as it chooses.

    `commands` are what the pool was asked for so far, as a trace holds them.
    """

    def __init__(
        self,
        target: KernelTarget,
        pool: Any,
        num_blocks: int,
        block_size: int,
        model: TinyModel,
        *,
        hash_bytes: int = USUAL_HASH_BYTES,
    ) -> None:
        self.pool = pool
        self._hash_bytes = hash_bytes
        self.block_size = block_size
        self.requests: dict[int, ServedRequest] = {}
        self.preempted: list[list[int]] = []
        self.commands: list[Command] = []
        self.steps = self.shared = 0
        num_host_blocks = HOST_BLOCKS_PER_BLOCK * num_blocks
        self._memory = CacheMemory(target, model, num_blocks, block_size, num_host_blocks)
        self._forward = ForwardPass(target, model, self._memory, [block_size])
        self._free_on_host = list(range(num_host_blocks))
        self._num_blocks = num_blocks
        self._names = 0

    @property
    def compared(self) -> int:
        """Outputs that were compared so far."""
        return self._forward.compared

    def admit(self, tokens: list[int]) -> ServedRequest | None:
        """A new request, with the cached prefix of its prompt; None if there is no room."""
        blocks: list[int] = []
        # The last token is always computed: it gives the first output.
        for block_hash in block_hashes(tokens[:-1], self.block_size, self._hash_bytes):
            block = self._call(Lookup(block_hash), block_hash)
            if block is None:
                break
            blocks.append(block)
        if blocks:
            self._call(Touch(tuple(blocks)), blocks)
            self.shared += len(blocks)
        request = ServedRequest(
            self._names, tokens, blocks, len(blocks) * self.block_size, len(blocks)
        )
        self._names += 1
        if not self._grow(request, request.computed + 1):
            self._free(request)
            return None
        self.requests[request.name] = request
        return request

    def step(self, chunks: dict[int, int], next_token: Callable[[], int]) -> None:
        """Compute so many tokens of each of these requests, all writes before all reads.

        A request whose tokens are all computed first gets another one. One that finds no block is
        preempted: it loses its blocks and waits.
        """
        chosen: list[tuple[ServedRequest, int]] = []
        for name, count in chunks.items():
            request = self.requests[name]
            if request.computed == len(request.tokens):
                request.tokens.append(next_token())
            asked = min(count, len(request.tokens) - request.computed)
            if self._grow(request, request.computed + asked):
                chosen.append((request, asked))
            else:
                self.preempted.append(request.tokens)
                self.finish(request)
        if chosen:
            self._compute(chosen)
            self.steps += 1

    def fork(self, request: ServedRequest) -> ServedRequest | None:
        """A second request over the same blocks; a last block that is not full is copied."""
        child = ServedRequest(
            self._names,
            list(request.tokens),
            list(request.blocks),
            request.computed,
            request.hashed,
        )
        self._names += 1
        self._call(Touch(tuple(child.blocks)), child.blocks)
        if request.computed % self.block_size:
            place = request.computed // self.block_size
            taken = self._allocate(1)
            if taken is None:
                self._free(child)
                return None
            self._memory.copy([(child.blocks[place], taken[0])])
            self._release([child.blocks[place]])
            child.blocks[place] = taken[0]
        self.requests[child.name] = child
        return child

    def swap_out(self, request: ServedRequest) -> None:
        """Copy the blocks of a request to the host and give them back."""
        places = [self._free_on_host.pop() for _ in request.blocks]
        self._memory.swap_out(list(zip(request.blocks, places, strict=True)))
        self._free(request)
        request.host, request.blocks, request.hashed = places, [], 0

    def swap_in(self, request: ServedRequest) -> bool:
        """Get blocks again and copy what they held; False if there is no room."""
        assert request.host is not None
        taken = self._allocate(len(request.host))
        if taken is None:
            return False
        self._memory.swap_in(list(zip(request.host, taken, strict=True)))
        self._free_on_host += request.host
        request.blocks, request.host = taken, None
        # At once: after a fork two requests would each hash the same blocks.
        self._cache(request)
        return True

    def finish(self, request: ServedRequest) -> None:
        """Give the blocks back, the tail first."""
        self._free(request)
        del self.requests[request.name]
        self._free_on_host += request.host or []

    def _compute(self, chosen: list[tuple[ServedRequest, int]]) -> None:
        parts = [
            Part(
                request.name,
                TokenChain(tuple(request.tokens)),
                request.computed,
                count,
                [list(request.blocks)],
            )
            for request, count in chosen
        ]
        self._forward.run(parts)
        for request, count in chosen:
            request.computed += count
            self._cache(request)

    def _cache(self, request: ServedRequest) -> None:
        full = request.computed // self.block_size
        if full > request.hashed:
            computed = request.tokens[: request.computed]
            hashes = block_hashes(computed, self.block_size, self._hash_bytes)
            blocks, new = request.blocks[request.hashed : full], hashes[request.hashed : full]
            held = self._call(Cache(tuple(blocks), tuple(new)), blocks, new)
            # A pool that merges duplicates says which blocks the request holds from now on.
            if isinstance(held, list) and len(held) == len(blocks):
                request.blocks[request.hashed : full] = held
            request.hashed = full

    def _grow(self, request: ServedRequest, length: int) -> bool:
        missing = -(-length // self.block_size) - len(request.blocks)
        if missing <= 0:
            return True
        taken = self._allocate(missing)
        if taken is None:
            return False
        request.blocks += taken
        return True

    def _free(self, request: ServedRequest) -> None:
        if request.blocks:
            self._release(request.blocks[::-1])

    def _release(self, blocks: list[int]) -> None:
        self._call(Free(tuple(blocks)), blocks)

    def _allocate(self, count: int) -> list[int] | None:
        if self._asked(self.pool.num_free, "num_free()") < count:
            return None
        command = Allocate(count)
        self.commands.append(command)
        try:
            taken = list(self.pool.allocate(count))
        except REFUSALS:
            return None
        except Exception as error:
            raise AllocatorBrokeError(f"{command} raised {error!r}") from error
        if len(taken) != count or any(not 0 <= block < self._num_blocks for block in taken):
            raise AllocatorBrokeError(f"{command} gave {taken}")
        return taken

    def _call(self, command: Command, *arguments: Any) -> Any:
        self.commands.append(command)
        # Copies: a list that was handed in is the pool's to keep or to change.
        copies = [list(value) if isinstance(value, list) else value for value in arguments]
        return self._asked(getattr(self.pool, command.verb), str(command), *copies)

    def _asked(self, method: Callable[..., Any], words: str, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise AllocatorBrokeError(f"{words} raised {error!r}") from error


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
        self.engine = PoolEngine(target, pool, num_blocks, block_size, model, hash_bytes=hash_bytes)

    def run(self, operations: int) -> None:
        """Carry out so many random operations. Raises what `PoolEngine` raises."""
        for _ in range(operations):
            getattr(self, OPERATIONS[self.choose(len(OPERATIONS))])()

    def admit(self) -> None:
        """Admit a prompt of one to three blocks, shared with others by chance."""
        if len(self.engine.requests) < MOST_REQUESTS:
            size = self.engine.block_size
            length = max(2, (1 + self.choose(3)) * size - 1 + self.choose(3))
            # One choice a block: prefixes have to meet often.
            tokens = [self.choose(2)] * size + [self.choose(2)] * size + [self.choose(2)] * size
            self.engine.admit((tokens + [self.token()] * size)[:length])

    def resume(self) -> None:
        """Bring a preempted request back with all its tokens."""
        if self.engine.preempted and len(self.engine.requests) < MOST_REQUESTS:
            tokens = self.engine.preempted.pop()
            if self.engine.admit(list(tokens)) is None:
                self.engine.preempted.append(tokens)

    def step(self) -> None:
        """Compute a chunk or the whole rest of every request that is not swapped out."""
        chunks = {
            request.name: 1 + self.choose(8) if self.choose(2) else 64
            for request in self.engine.requests.values()
            if request.host is None
        }
        if chunks:
            self.engine.step(chunks, self.token)

    def fork(self) -> None:
        """Fork a request whose tokens are all computed."""
        able = [r for r in self._running() if r.computed == len(r.tokens)]
        if able and len(self.engine.requests) < MOST_REQUESTS:
            self.engine.fork(able[self.choose(len(able))])

    def swap_out(self) -> None:
        """Swap a request out to the host."""
        able = [request for request in self._running() if request.computed]
        if able:
            self.engine.swap_out(able[self.choose(len(able))])

    def swap_in(self) -> None:
        """Swap a request back in from the host."""
        away = [r for r in self.engine.requests.values() if r.host is not None]
        if away:
            self.engine.swap_in(away[self.choose(len(away))])

    def finish(self) -> None:
        """Finish a request."""
        requests = list(self.engine.requests.values())
        if requests:
            self.engine.finish(requests[self.choose(len(requests))])

    def token(self) -> int:
        """Choose the next token of a request."""
        return self.choose(2)

    def _running(self) -> list[ServedRequest]:
        return [request for request in self.engine.requests.values() if request.host is None]
