"""The same transition relation as `orbit_space.py` on states as they are, block by block.

Slower by as much as the orbits are large, and written without any thought of symmetry: it is what
the reduced form is compared with, and what small scopes are explored in when nothing shall rest
on the assumption that an allocator treats all ids and all hashes alike.
"""

from __future__ import annotations

from poolproof.contract.profile import joins_head
from poolproof.exploration.orbit_space import (
    ALLOCATE,
    CACHE,
    EVICT,
    FREE,
    RESET,
    TOUCH,
    OrbitSpace,
    Transition,
)
from poolproof.exploration.scope import Scope

__all__ = ["StateSpace"]

_NOBODY = 0xFF
_PADDING = bytes([_NOBODY])


class StateSpace:
    """The states of a scope, each as `width` bytes.

    First for each block references x (hashes + 1) + hash, 0 for no hash; then the free blocks,
    head first, padded to the number of blocks.
    """

    has_symmetry = False

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.width = 2 * scope.num_blocks
        self._blocks = scope.num_blocks
        self._radix = scope.num_hashes + 1
        self._orbits = OrbitSpace(scope)

    def initial(self) -> bytes:
        """All blocks free, in ascending order, no hash anywhere."""
        return bytes(self._blocks) + bytes(range(self._blocks))

    def split(self, state: bytes) -> tuple[list[tuple[int, int]], list[int]]:
        """References and hash of each block, and the free blocks, head first."""
        codes, queue = self._split(state)
        return [divmod(code, self._radix) for code in codes], list(queue)

    def orbit_of(self, state: bytes) -> bytes:
        """The orbit that the state lies in."""
        codes, queue = self._split(state)
        labels = bytes(codes[block] for block in queue)
        return self._orbits.canonical(labels, bytes(c for c in codes if c >= self._radix))

    def size(self, state: bytes) -> int:  # noqa: ARG002 -- as an orbit's
        """A state stands for itself."""
        return 1

    def successors(self, state: bytes) -> tuple[list[Transition], int]:
        """Every transition of the state, and how many there are."""
        codes, queue = self._split(state)
        found: list[Transition] = []
        radix, verbs = self._radix, self.scope.verbs
        if queue:
            taken = queue[0]
            found.append((ALLOCATE, self._joined(_with(codes, taken, radix), queue[1:])))
        if "reset" in verbs and len(queue) == self._blocks and any(codes):
            found.append((RESET, self._joined(bytes(self._blocks), queue)))
        for block, code in enumerate(codes):
            references, label = divmod(code, radix)
            if (references or label) and references < self.scope.max_references:
                after = queue if references else queue.replace(bytes([block]), b"")
                found.append((TOUCH, self._joined(_with(codes, block, code + radix), after)))
            if references:
                after = queue if references > 1 else self._queued(queue, block, label)
                found.append((FREE, self._joined(_with(codes, block, code - radix), after)))
                found += [
                    (CACHE, self._joined(cached, queue)) for cached in self._cached(codes, block)
                ]
            if label and "evict" in verbs:
                found.append((EVICT, self._joined(_with(codes, block, code - label), queue)))
        return found, len(found)

    def _queued(self, queue: bytes, block: int, label: int) -> bytes:
        to_head = joins_head(self.scope.eviction, bool(label))
        return bytes([block]) + queue if to_head else queue + bytes([block])

    def _cached(self, codes: bytes, block: int) -> list[bytes]:
        """The codes after each `cache` of a held block that changes any."""
        radix, duplicates = self._radix, self.scope.duplicates
        label = codes[block] % radix
        results = []
        for other in range(1, radix):
            if other == label or (label and self.scope.recache == "forbidden"):
                continue
            carriers = [b for b, code in enumerate(codes) if code % radix == other]
            after = _with(codes, block, codes[block] - label)
            if not (carriers and duplicates == "first"):
                after = _with(after, block, after[block] + other)
            if duplicates == "last":
                for carrier in carriers:
                    after = _with(after, carrier, after[carrier] - other)
            if after != codes:
                results.append(after)
        return results

    def _split(self, state: bytes) -> tuple[bytes, bytes]:
        return state[: self._blocks], state[self._blocks :].rstrip(_PADDING)

    def _joined(self, codes: bytes, queue: bytes) -> bytes:
        return codes + queue.ljust(self._blocks, _PADDING)


def _with(codes: bytes, block: int, code: int) -> bytes:
    return codes[:block] + bytes([code]) + codes[block + 1 :]
