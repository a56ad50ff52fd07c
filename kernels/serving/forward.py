"""The forward pass of the small engine: all writes before all reads, then every output compared.

The scheduler passes parts: whose tokens are computed now, through which tables. Each output is
compared with a dense run over the request's own tokens in float64. A block that has two owners, is
handed out while it is held, or is found under the wrong key shows as a wrong output:
`WrongOutputError` says whose, where, and which request wrote what was read.

Outputs are near 1 and the numbers in between too, so float32 keeps them within about 1e-5;
another request's keys move them by 1e-2 and more. The tolerance lies in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from poolproof.contract.content import TokenChain
from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.serving.memory import CacheMemory, Written
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.target import KernelTarget

__all__ = ["TOLERANCE", "AllocatorBrokeError", "ForwardPass", "Part", "WrongOutputError"]

TOLERANCE = 2e-3


class AllocatorBrokeError(Exception):
    """The allocator raised where it must not, or answered with something other than blocks."""


class WrongOutputError(Exception):
    """An output differs from dense attention over the request's own tokens."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of one request that a pass computes: `count` positions of `chain` from `first` on.

    `tables` has the request's blocks in each cache group.
    """

    request: int
    chain: TokenChain
    first: int
    count: int
    tables: Sequence[Sequence[int]]

    @property
    def end(self) -> int:
        """Behind the last position that is computed."""
        return self.first + self.count


class ForwardPass:
    """Layers over caches. `block_sizes` has the slots that a block has in each group.

    With `rings` a table goes round over its window, and one pass computes one token of each
    request: the next one may overwrite what this one reads. `watch` sees every batch.
    """

    def __init__(
        self,
        target: KernelTarget,
        model: TinyModel,
        memory: CacheMemory,
        block_sizes: Sequence[int],
        *,
        rings: bool = False,
        watch: Callable[[PagedBatch], None] | None = None,
    ) -> None:
        assert len(block_sizes) == len(model.windows)
        self._target, self._model, self._memory = target, model, memory
        self._block_sizes = block_sizes
        self._rings = rings
        self._watch = watch
        self._dense: dict[TokenChain, torch.Tensor] = {}
        self.passes = self.compared = 0

    def run(self, parts: Sequence[Part]) -> None:
        """One step. Raises WrongOutputError."""
        if not self._rings:
            self._run(parts)
            return
        for offset in range(max((part.count for part in parts), default=0)):
            self._run(
                [replace(part, first=part.first + offset, count=1)
                 for part in parts if offset < part.count]
            )  # fmt: skip

    def _run(self, parts: Sequence[Part]) -> None:
        self.passes += 1
        model = self._model
        states = torch.cat(
            [model.embed(part.chain, part.first, part.end, torch.float32) for part in parts]
        )
        num_groups = len(model.windows)
        slots = [self._slots(parts, group) for group in range(num_groups)]
        for layer in range(model.num_layers):
            depth, group = divmod(layer, num_groups)
            queries, keys, values = model.project(layer, states)
            self._memory.write(depth, self._block_sizes[group], keys, values, slots[group])
            batch = self._batch(layer, queries, parts)
            if self._watch is not None:
                self._watch(batch)
            states = model.after(layer, states, self._target(batch))
        row = 0
        for part in parts:
            self._compare(part, states[row : row + part.count])
            row += part.count

    def _slots(self, parts: Sequence[Part], group: int) -> torch.Tensor:
        """The slots of the new tokens in a group, and the notes of which request writes them."""
        size = self._block_sizes[group]
        slots = []
        for part in parts:
            for position in range(part.first, part.end):
                block, place = part.tables[group][position // size], position % size
                slots.append(block * size + place)
                prefix = _prefix(part.chain, position + 1)
                self._memory.note(block, place, Written(part.request, prefix))
        return torch.tensor(slots)

    def _batch(self, layer: int, queries: torch.Tensor, parts: Sequence[Part]) -> PagedBatch:
        depth, group = divmod(layer, len(self._model.windows))
        size = self._block_sizes[group]
        width = max(-(-part.end // size) for part in parts)
        table = torch.zeros(len(parts), width, dtype=torch.int32)
        for index, part in enumerate(parts):
            row = list(part.tables[group][: -(-part.end // size)])
            table[index, : len(row)] = torch.tensor(row)
        keys, values = self._memory.caches(depth, size)
        return PagedBatch(
            query=queries.contiguous(),
            key_cache=keys,
            value_cache=values,
            block_tables=table,
            kv_lengths=torch.tensor([part.end for part in parts], dtype=torch.int32),
            query_lengths=torch.tensor([part.count for part in parts], dtype=torch.int32),
            options=AttentionOptions(
                scale=self._model.head_size**-0.5, sliding_window=self._model.window_of(layer)
            ),
        )

    def _compare(self, part: Part, found: torch.Tensor) -> None:
        chain = _prefix(part.chain, part.end)
        if chain not in self._dense:
            self._dense[chain] = self._model.dense(chain)
        error = (found.double() - self._dense[chain][part.first :]).abs().amax(1)
        self.compared += part.count
        if bool((error <= TOLERANCE).all()):
            return
        place = int((~(error <= TOLERANCE)).nonzero()[0, 0])
        position = part.first + place
        raise WrongOutputError(
            f"step {self.passes - 1}: request {part.request}, position {position}: the output is "
            f"off by {float(error[place]):.3g}, allowed are {TOLERANCE:g}; "
            f"{self._culprit(part, position)}"
        )

    def _culprit(self, part: Part, last: int) -> str:
        for group, (size, window) in enumerate(
            zip(self._block_sizes, self._model.windows, strict=True)
        ):
            for position in range(0 if window is None else max(0, last - window + 1), last + 1):
                block, place = part.tables[group][position // size], position % size
                written = self._memory.who_wrote(block, place)
                if written is None:
                    return f"its position {position} is in block {block} slot {place}, {_NOBODY}"
                if written.prefix != _prefix(part.chain, position + 1):
                    return (
                        f"its position {position} is in block {block} slot {place}, which request "
                        f"{written.request} wrote last"
                    )
        return _THE_KERNEL


_NOBODY = "which nobody wrote last"
_THE_KERNEL = "every slot that it reads was written for its own prefix: the kernel is wrong"


def _prefix(chain: TokenChain, count: int) -> TokenChain:
    """The first tokens of a chain, with what tells them apart from others."""
    images = tuple(image for image in chain.images if image.offset < count)
    return TokenChain(chain.tokens[:count], chain.lora, chain.salt, images)
