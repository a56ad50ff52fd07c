"""A worker whose tokens depend on what it reads: wrong KV makes wrong outputs, through everybody.

Memory has a few layers. In each a position's value is written into its slot for all requests of a
step; then every position reads, through the block table that the plan gave, all that its cache
group sees, and its value for the next layer follows from what stood there. The token sampled
follows from the last. So a request that reads wrong KV writes wrong KV, as in a model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.manager_profile import CacheGroup

__all__ = ["DependentWorker", "Served"]

_LAYERS = 4
_VOCABULARY = 4096
_ROOM = 64


@dataclass(slots=True)
class Served:
    """A request: its tokens as far as they are known, and what its user was given."""

    tokens: list[int]
    extra: object = None
    given: list[int] = field(default_factory=list)


class DependentWorker:
    """Carries out plans for `requests`, which it adds sampled tokens to."""

    def __init__(self, groups: tuple[CacheGroup, ...], block_size: int) -> None:
        self.requests: dict[int, Served] = {}
        self._groups = [(group, group.block_size or block_size) for group in groups]
        self._memory: dict[tuple[int, int], int] = {}

    def step(self, plan: EnginePlan) -> dict[int, list[int]]:
        """One forward pass: what is sampled of each request whose last token is computed."""
        self._copy(plan.copies)
        parts = [part for part in plan.parts if part.request_id in self.requests]
        values = [self._embedded(part) for part in parts]
        for layer in range(_LAYERS):
            for part, mine in zip(parts, values):
                self._write(layer, part, mine)
            values = [self._attended(layer, part, mine) for part, mine in zip(parts, values)]
        sampled = {}
        for part, mine in zip(parts, values):
            request = self.requests[part.request_id]
            if mine and part.first + part.count == len(request.tokens):
                token = 2 + mine[-1] % _VOCABULARY
                request.tokens.append(token)
                sampled[part.request_id] = [token]
        return sampled

    def _copy(self, copies: tuple[tuple[int, int], ...]) -> None:
        read = [
            (layer, destination * _ROOM + slot, self._memory.get((layer, source * _ROOM + slot)))
            for source, destination in copies
            for layer in range(_LAYERS)
            for slot in range(_ROOM)
        ]
        for layer, place, value in read:
            if value is None:
                self._memory.pop((layer, place), None)
            else:
                self._memory[layer, place] = value

    def _embedded(self, part: PlannedPart) -> list[int]:
        request = self.requests[part.request_id]
        tokens = request.tokens[part.first : part.first + part.count]
        return [_mixed(token, request.extra) for token in tokens]

    def _write(self, layer: int, part: PlannedPart, values: list[int]) -> None:
        for number, value in enumerate(values):
            for place in self._places(layer, part, part.first + number):
                if place is not None:
                    self._memory[place] = value

    def _attended(self, layer: int, part: PlannedPart, values: list[int]) -> list[int]:
        attended = []
        for number, value in enumerate(values):
            position = part.first + number
            seen: list[object] = [value]
            for index, (group, _) in enumerate(self._groups):
                for earlier in range(group.first_read(position), position):
                    place = self._places(layer, part, earlier)[index]
                    seen.append(None if place is None else self._memory.get(place))
            attended.append(_mixed(*seen))
        return attended

    def _places(self, layer: int, part: PlannedPart, position: int) -> list[tuple[int, int] | None]:
        """Where a position stands: a block has one slot for each token, in every group."""
        places: list[tuple[int, int] | None] = []
        for (_, size), table in zip(self._groups, part.blocks):
            entry, slot = divmod(position, size)
            place = (layer, table[entry] * _ROOM + slot) if entry < len(table) else None
            places.append(place)
        return places


def _mixed(*seen: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(seen).encode(), digest_size=8).digest(), "big")
