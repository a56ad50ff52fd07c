"""A small engine: a native block pool, caches of two layers, requests that share, fork and swap.

The pool decides which block is whose; the kernels under test read and write. After each step every
new output is compared with a dense run over the request's own tokens in float64. A block that has
two owners, is handed out while it is held, or is found under the wrong hash shows as a wrong
output: `WrongOutputError` says whose, where, and who wrote what was read.

Outputs are near 1 and the numbers in between too, so float32 keeps them within about 1e-5;
somebody else's keys move them by 1e-2 and more. The tolerance stands between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.serving.model import LAYERS, TinyModel
from poolproof.kernels.serving.request import Request, block_hashes
from poolproof.kernels.target import KernelTarget

__all__ = ["TOLERANCE", "Engine", "PoolBrokeError", "WrongOutputError"]

TOLERANCE = 2e-3
REFUSALS = (MemoryError, ValueError)


class WrongOutputError(Exception):
    """An output differs from dense attention over the request's own tokens."""


class PoolBrokeError(Exception):
    """The pool raised where it may not, or answered with something else than blocks."""


class Engine:
    """`num_blocks` blocks, of which the pool hands out those that it likes."""

    def __init__(
        self, target: KernelTarget, pool: Any, num_blocks: int, block_size: int, model: TinyModel
    ) -> None:
        self.target, self.pool, self.model = target, pool, model
        self.block_size = block_size
        self.requests: dict[int, Request] = {}
        self.preempted: list[list[int]] = []
        self.steps = self.compared = self.shared = 0
        shape = (num_blocks, block_size, model.num_kv_heads, model.head_size)
        self.caches = [[torch.zeros(shape) for _ in "kv"] for _ in range(LAYERS)]
        self.host: dict[int, list[list[torch.Tensor]]] = {}
        self._names = 0
        # Which prefix each slot was written for, only to name the culprit.
        self._written: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        self._dense: dict[tuple[int, ...], torch.Tensor] = {}

    def admit(self, tokens: list[int]) -> Request | None:
        """A new request, with the cached prefix of its prompt; None where there is no room."""
        blocks: list[int] = []
        # The last token is always computed: it gives the first output.
        for block_hash in block_hashes(tokens[:-1], self.block_size):
            block = self._call("lookup", block_hash)
            if block is None:
                break
            blocks.append(block)
        if blocks:
            self._call("touch", blocks)
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
            self._forward(chosen)
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
        self._call("touch", child.blocks)
        if request.computed % self.block_size:
            place = request.computed // self.block_size
            taken = self._allocate(1)
            if taken is None:
                self._free(child)
                return None
            self._copy(child.blocks[place], taken[0])
            self._call("free", [child.blocks[place]])
            child.blocks[place] = taken[0]
        self.requests[child.name] = child
        return child

    def swap_out(self, request: Request) -> None:
        """Copy the blocks of a request to the host and give them back."""
        blocks = torch.tensor(request.blocks)
        self.host[request.name] = [
            [cache[blocks].clone() for cache in pair] for pair in self.caches
        ]
        self._free(request)
        request.host = request.blocks
        request.blocks, request.hashed = [], 0

    def swap_in(self, request: Request) -> bool:
        """Get blocks again and copy what they held; False where there is no room."""
        assert request.host is not None
        taken = self._allocate(len(request.host))
        if taken is None:
            return False
        for pair, kept in zip(self.caches, self.host.pop(request.name), strict=True):
            for cache, numbers in zip(pair, kept, strict=True):
                self._restore(cache, numbers, taken)
        for position in range(request.computed):
            slot = taken[position // self.block_size], position % self.block_size
            self._written[slot] = (request.name, tuple(request.tokens[: position + 1]))
        request.blocks, request.host = taken, None
        return True

    def finish(self, request: Request) -> None:
        """Give the blocks back, the tail first."""
        self._free(request)
        del self.requests[request.name]
        self.host.pop(request.name, None)

    def _forward(self, chosen: list[tuple[Request, int]]) -> None:
        states = torch.cat(
            [
                self.model.embed(
                    request.tokens[request.computed : request.computed + count],
                    request.computed,
                    torch.float32,
                )
                for request, count in chosen
            ]
        )
        slots = [self._slot(request, position)
                 for request, count in chosen
                 for position in range(request.computed, request.computed + count)]  # fmt: skip
        for request, count in chosen:
            for position in range(request.computed, request.computed + count):
                block, place = divmod(self._slot(request, position), self.block_size)
                prefix = tuple(request.tokens[: position + 1])
                self._written[block, place] = (request.name, prefix)
        for layer in range(LAYERS):
            queries, keys, values = self.model.project(layer, states)
            self._write(layer, keys, values, slots)
            attention = self.target(self._batch(layer, queries, chosen))
            states = self.model.after(layer, states, attention)
        row = 0
        for request, count in chosen:
            self._compare(request, count, states[row : row + count])
            row += count
            request.computed += count
            self._cache(request)

    def _batch(
        self, layer: int, queries: torch.Tensor, chosen: list[tuple[Request, int]]
    ) -> PagedBatch:
        width = max(len(request.blocks) for request, _ in chosen)
        table = torch.zeros(len(chosen), width, dtype=torch.int32)
        for index, (request, _) in enumerate(chosen):
            table[index, : len(request.blocks)] = torch.tensor(request.blocks)
        return PagedBatch(
            query=queries.contiguous(),
            key_cache=self.caches[layer][0],
            value_cache=self.caches[layer][1],
            block_tables=table,
            kv_lengths=torch.tensor([r.computed + n for r, n in chosen], dtype=torch.int32),
            query_lengths=torch.tensor([n for _, n in chosen], dtype=torch.int32),
            options=AttentionOptions(scale=self.model.head_size**-0.5),
        )

    def _compare(self, request: Request, count: int, found: torch.Tensor) -> None:
        tokens = request.tokens[: request.computed + count]
        key = tuple(tokens)
        if key not in self._dense:
            self._dense[key] = self.model.dense(tokens)
        expected = self._dense[key][request.computed :]
        error = (found.double() - expected).abs().amax(1)
        self.compared += count
        if bool((error <= TOLERANCE).all()):
            return
        place = int((~(error <= TOLERANCE)).nonzero()[0, 0])
        position = request.computed + place
        raise WrongOutputError(
            f"step {self.steps}: request {request.name}, position {position}: the output is off by "
            f"{float(error[place]):.3g}, allowed are {TOLERANCE:g}; "
            f"{self._culprit(request, position)}"
        )

    def _culprit(self, request: Request, last: int) -> str:
        for position in range(last + 1):
            block, place = divmod(self._slot(request, position), self.block_size)
            wanted = tuple(request.tokens[: position + 1])
            writer, prefix = self._written.get((block, place), (None, ()))
            if prefix != wanted:
                whose = "nobody wrote" if writer is None else f"request {writer} wrote"
                return (
                    f"its position {position} is in block {block} slot {place}, which {whose} last"
                )
        return "every slot that it reads was written for its own prefix: the kernel is wrong"

    def _slot(self, request: Request, position: int) -> int:
        return request.blocks[position // self.block_size] * self.block_size + (
            position % self.block_size
        )

    def _cache(self, request: Request) -> None:
        full = request.computed // self.block_size
        if full > request.hashed:
            hashes = block_hashes(request.tokens[: request.computed], self.block_size)
            self._call(
                "cache", request.blocks[request.hashed : full], hashes[request.hashed : full]
            )
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
            self._call("free", request.blocks[::-1])

    def _allocate(self, count: int) -> list[int] | None:
        if self._call("num_free") < count:
            return None
        try:
            taken = list(self.pool.allocate(count))
        except REFUSALS:
            return None
        except Exception as error:
            raise PoolBrokeError(f"allocate({count}) raised {error!r}") from error
        top = self.caches[0][0].shape[0]
        if len(taken) != count or any(not 0 <= block < top for block in taken):
            raise PoolBrokeError(f"allocate({count}) gave {taken}")
        return taken

    def _call(self, verb: str, *arguments: Any) -> Any:
        try:
            return getattr(self.pool, verb)(*arguments)
        except Exception as error:
            raise PoolBrokeError(f"{verb}{arguments} raised {error!r}") from error

    def _write(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor, slots: list[int]
    ) -> None:
        where = torch.tensor(slots)
        if self.target.storage is not None:
            self.target.storage.write(
                keys.contiguous(), values.contiguous(), *self.caches[layer], where,
                values_checked=True,
            )  # fmt: skip
            return
        for cache, numbers in zip(self.caches[layer], (keys, values), strict=True):
            cache[where // self.block_size, where % self.block_size] = numbers

    def _copy(self, source: int, destination: int) -> None:
        for pair in self.caches:
            if self.target.storage is not None:
                self.target.storage.copy(*pair, [(source, destination)])
            else:
                for cache in pair:
                    cache[destination] = cache[source]
        for place in range(self.block_size):
            if (source, place) in self._written:
                self._written[destination, place] = self._written[source, place]

    def _restore(self, cache: torch.Tensor, numbers: torch.Tensor, blocks: list[int]) -> None:
        if self.target.storage is not None:
            self.target.storage.swap(numbers, cache, list(enumerate(blocks)))
        else:
            cache[torch.tensor(blocks)] = numbers
