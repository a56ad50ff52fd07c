"""Commands of one block, as moves between the states of a pool whose block ids are erased.

The relation of `exploration/orbit_space.py` with hashes kept apart, written for speed: a campaign
takes a move in most of its steps. What a state can do is a list of moves in a fixed order, so that
on a tape a move is one small number. Queues and sets of held blocks are few, so what can be done to
each is kept. Only for profiles under which a move has one outcome (`is_steerable`).
"""

from __future__ import annotations

from collections.abc import Iterator

from poolproof.contract.profile import Profile, joins_head
from poolproof.contract.target import Capabilities
from poolproof.exploration.scope import Scope
from poolproof.fuzz.state_keys import StateKeys

__all__ = [
    "ALLOCATE",
    "CACHE",
    "EVICT_FREE",
    "EVICT_HELD",
    "FREE",
    "MOST_KEYS",
    "RESET",
    "REVIVE",
    "TOUCH",
    "Move",
    "Moves",
    "OneBlockRules",
    "is_steerable",
    "spelled_out",
]

ALLOCATE, REVIVE, EVICT_FREE, RESET, TOUCH, FREE, EVICT_HELD, CACHE = range(8)

Move = tuple[int, int, int]
"""What is done; to the queue's block at this place or to a held one of this code; which hash."""

Moves = tuple[int, ...]
"""Moves in the short form that `spelled_out` reads."""

MOST_KEYS = 400_000
"""Up to so many states are numbered beforehand."""

_MOST_KEPT = 100_000
_NOBODY = -1
"""Stands for one block more than there are."""


def is_steerable(profile: Profile, can: Capabilities) -> bool:
    """Whether each move has one outcome that is known beforehand."""
    return (
        profile.duplicates == "kept"
        and profile.eviction != "unspecified"
        and profile.retention == "exact"
        and {"touch", "lookup"} <= can.verbs
    )


class _Queue:
    """What can be done to a queue: each move, the queue that it leaves, the label that it takes.

    The label is the place in `_Held.joined_by` of the held blocks afterwards. `joined_by` are the
    queues after one more block of each label has come, and, last, as it is. Queues are numbers.
    """

    def __init__(self, moves: list[tuple[Move, int, int]], joined_by: list[int]) -> None:
        self.moves: Moves = tuple(_shortened(move) for move, _, _ in moves)
        self.left = [(queue, label) for _, queue, label in moves]
        self.joined_by = joined_by


class _Held:
    """What can be done to held blocks: each move, the label that joins the queue, who stays.

    The other way round than in `_Queue`. Held blocks are numbers.
    """

    def __init__(self, moves: list[tuple[Move, int, int]], joined_by: list[int]) -> None:
        self.moves: Moves = tuple(_shortened(move) for move, _, _ in moves)
        self.left = [(label, held) for _, label, held in moves]
        self.joined_by = joined_by


class OneBlockRules:
    """What the moves are and where they lead, within the bounds and under the rules of a scope.

    A state is bytes: the labels of the free blocks, head first, then the codes of the held ones,
    ascending. A label is the number of a hash, from 1, or 0; a code is
    references x (hashes + 1) + label, so that it is above all labels. Moves lead from key to key.
    """

    def __init__(self, scope: Scope, most_keys: int = MOST_KEYS) -> None:
        self.scope = scope
        self.radix = radix = scope.num_hashes + 1
        self.codes = bytes(range(radix, radix * (scope.max_references + 1)))
        self.keys = StateKeys(scope.num_blocks, radix, self.codes, most_keys)
        self._can_evict = "evict" in scope.verbs
        self._can_reset = "reset" in scope.verbs
        self._may_recache = scope.recache != "forbidden"
        self._queues: dict[bytes, _Queue] = {}
        self._helds: dict[bytes, _Held] = {}

    def key_of(self, state: bytes) -> int:
        """The key of a state."""
        queue = state.rstrip(self.codes)
        return self.keys.of(queue, state[len(queue) :])

    def moves(self, key: int) -> tuple[Moves, list[int]]:
        """All moves from a state, and the states that they lead to, as keys."""
        queue, held = self.keys.state(key)
        of_queue = self._queues.get(queue) or self._learn_queue(queue)
        of_held = self._helds.get(held) or self._learn_held(held)
        joined_by = of_held.joined_by
        found = [left + joined_by[label] for left, label in of_queue.left]
        joined_by = of_queue.joined_by
        found += [joined_by[label] + left for label, left in of_held.left]
        if not held and self._can_reset and any(queue):
            found.append(self.keys.of(bytes(len(queue)), b""))
            return (*of_queue.moves, RESET), found
        return of_queue.moves + of_held.moves, found

    def forget(self) -> None:
        """Forget what was learnt; keys that were given out on demand mean nothing any more."""
        self._queues.clear()
        self._helds.clear()
        self.keys.clear()

    def joins_head(self, label: int) -> bool:
        """Whether a block with this label that becomes free is the next to be handed out."""
        return joins_head(self.scope.eviction, bool(label))

    def _learn_queue(self, queue: bytes) -> _Queue:
        if len(self._queues) > _MOST_KEPT:
            self._queues.clear()
        number = self.keys.queue
        moves = [(move, number(left), label) for move, left, label in self._on_queue(queue)]
        joined_by = []
        if len(queue) < self.scope.num_blocks:
            for label in range(self.radix):
                joined = bytes((label,))
                joined = joined + queue if self.joins_head(label) else queue + joined
                joined_by.append(number(joined))
        else:
            joined_by += [_NOBODY] * self.radix
        learnt = self._queues[queue] = _Queue(moves, [*joined_by, number(queue)])
        return learnt

    def _learn_held(self, held: bytes) -> _Held:
        if len(self._helds) > _MOST_KEPT:
            self._helds.clear()
        number = self.keys.held
        moves = [(move, label, number(left)) for move, label, left in self._on_held(held)]
        joined_by = [_NOBODY] * self.radix
        if len(held) < self.scope.num_blocks:
            joined_by = [number(_with(held, code)) for code in range(self.radix, 2 * self.radix)]
        learnt = self._helds[held] = _Held(moves, [*joined_by, number(held)])
        return learnt

    def _on_queue(self, queue: bytes) -> Iterator[tuple[Move, bytes, int]]:
        if queue:
            yield (ALLOCATE, 0, 0), queue[1:], 0
        for place, label in enumerate(queue):
            if label:
                head, tail = queue[:place], queue[place + 1 :]
                yield (REVIVE, place, label), head + tail, label
                if self._can_evict:
                    yield (EVICT_FREE, place, label), head + b"\0" + tail, self.radix

    def _on_held(self, held: bytes) -> Iterator[tuple[Move, int, bytes]]:
        radix = self.radix
        for code in sorted(set(held)):
            references, label = divmod(code, radix)
            rest = held.replace(bytes((code,)), b"", 1)
            if references < self.scope.max_references:
                yield (TOUCH, code, 0), radix, _with(rest, code + radix)
            if references > 1:
                yield (FREE, code, 0), radix, _with(rest, code - radix)
            else:
                yield (FREE, code, 0), label, rest
            if label and self._can_evict:
                yield (EVICT_HELD, code, 0), radix, _with(rest, code - label)
            if not label or self._may_recache:
                for other in range(1, radix):
                    if other != label:
                        yield (CACHE, code, other), radix, _with(rest, code - label + other)


def _shortened(move: Move) -> int:
    kind, where, label = move
    return kind | where << 3 | label << 11


def spelled_out(short: int) -> Move:
    """The move behind its short form."""
    return short & 7, short >> 3 & 255, short >> 11


def _with(held: bytes, code: int) -> bytes:
    return bytes(sorted((*held, code)))
