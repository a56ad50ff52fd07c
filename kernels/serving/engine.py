"""A small engine over a native block pool: requests that share, fork, are preempted and swapped.

The pool decides which block is whose; the kernels under test read and write (`forward.py`). What a
manager decides, and not the engine, is in `manager_engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poolproof.contract.commands import Allocate, Cache, Command, Free, Lookup, Touch
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import USUAL_HASH_BYTES
from poolproof.kernels.serving.forward import ForwardPass, Part
from poolproof.kernels.serving.memory import CacheMemory
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.serving.request import Request, block_hashes
from poolproof.kernels.target import KernelTarget

__all__ = ["AllocatorBrokeError", "Engine"]

REFUSALS = (MemoryError, ValueError)
HOST_BLOCKS_PER_BLOCK = 4
"""So many requests at once may be on the host, each with as many blocks as there are."""


class AllocatorBrokeError(Exception):
    """The allocator raised where it may not, or answered with something else than blocks."""


class Engine:
    """`num_blocks` blocks, of which the pool hands out those that it likes.

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
        self.requests: dict[int, Request] = {}
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

    def admit(self, tokens: list[int]) -> Request | None:
        """A new request, with the cached prefix of its prompt; None where there is no room."""
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
        request = Request(self._names, tokens, blocks, len(blocks) * self.block_size, len(blocks))
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
        chosen: list[tuple[Request, int]] = []
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

    def fork(self, request: Request) -> Request | None:
        """A second request over the same blocks; a last block that is not full is copied."""
        child = Request(
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

    def swap_out(self, request: Request) -> None:
        """Copy the blocks of a request to the host and give them back."""
        places = [self._free_on_host.pop() for _ in request.blocks]
        self._memory.swap_out(list(zip(request.blocks, places, strict=True)))
        self._free(request)
        request.host, request.blocks, request.hashed = places, [], 0

    def swap_in(self, request: Request) -> bool:
        """Get blocks again and copy what they held; False where there is no room."""
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

    def finish(self, request: Request) -> None:
        """Give the blocks back, the tail first."""
        self._free(request)
        del self.requests[request.name]
        self._free_on_host += request.host or []

    def _compute(self, chosen: list[tuple[Request, int]]) -> None:
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

    def _cache(self, request: Request) -> None:
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

    def _grow(self, request: Request, length: int) -> bool:
        missing = -(-length // self.block_size) - len(request.blocks)
        if missing <= 0:
            return True
        taken = self._allocate(missing)
        if taken is None:
            return False
        request.blocks += taken
        return True

    def _free(self, request: Request) -> None:
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
