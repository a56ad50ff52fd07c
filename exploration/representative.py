"""One state of an orbit, with ids and hashes drawn at random, and the commands that build it.

Any state is a few calls away from a fresh pool: everything is allocated, what carries a hash is
cached, further references are taken, and what shall be free is freed in the order of the queue.
Ids and hashes are new for each orbit: an allocator that treats one id or one hash value apart
would otherwise be safe wherever the representatives happen not to use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Touch
from poolproof.contract.content import Key
from poolproof.contract.profile import USUAL_HASH_BYTES, joins_head
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.state_space import StateSpace
from poolproof.harness.pool_workload import different_hashes

__all__ = ["Representative", "of_orbit", "of_state"]


@dataclass(frozen=True, slots=True)
class Representative:
    """A state of a pool: the free blocks, head first, and the held ones.

    `label_of` is the number of each block's hash, 0 for none; `keys[label - 1]` that hash itself.
    """

    free: tuple[int, ...]
    references: dict[int, int]
    label_of: dict[int, int]
    keys: tuple[Key, ...]
    spare_keys: tuple[Key, ...]
    """Hashes that no block carries in the end, one for each block."""
    eviction: str

    def key_of(self, block: int) -> Key:
        """The hash of a block that carries one."""
        return self.keys[self.label_of[block] - 1]

    def distinct_held(self) -> list[int]:
        """Held blocks, one of each kind: of two that are alike the one is as good as the other."""
        kinds: dict[tuple[int, int], int] = {}
        for block, count in self.references.items():
            kinds.setdefault((count, self.label_of[block]), block)
        return list(kinds.values())

    def first_unhashed(self) -> int | None:
        """Some block that carries no hash."""
        return next((block for block, label in self.label_of.items() if not label), None)

    def counts(self) -> list[int]:
        """How many blocks to allocate: one, two, and all that are free."""
        num_free = len(self.free)
        return sorted({1, 2, num_free} & set(range(1, num_free + 1)))

    def building(self) -> tuple[Command, ...]:
        """The commands that lead from a fresh pool to this state."""
        held = self.references
        extra = [block for block, count in held.items() for _ in range(count - 1)]
        first: tuple[Command, ...] = (Allocate(len(self.free) + len(held)),)
        if extra:
            first = (*first, Touch(tuple(extra)))
        return (*first, *self._furnishing([*held, *self.free]))

    def restoring(self, num_free: int) -> tuple[Command, ...]:
        """The commands that lead back, once the held blocks are as they were.

        `num_free` blocks are free, and what is not yet held as it should be is held once.
        """
        first: tuple[Command, ...] = (Allocate(num_free),) if num_free else ()
        return (*first, *self._furnishing(self.free))

    def requeueing(self, block: int) -> tuple[Command, ...]:
        """The commands that lead back after the revival of a free block."""
        place = self.free.index(block)
        behind = self.free[place + 1 :]
        if self.eviction == "lifo" or not all(self.label_of[other] for other in behind):
            # The revived block has kept its hash: caching it again may be forbidden.
            others = [other for other in self.free if other != block]
            first: tuple[Command, ...] = (Allocate(len(others)),) if others else ()
            return (*first, *self._furnishing(others))
        freed = Free((block, *behind))
        return (Touch(behind), freed) if behind else (freed,)

    def _furnishing(self, blocks: Sequence[int]) -> tuple[Command, ...]:
        """Of blocks that are all held: cache those with a hash, free those that shall be free."""
        hashed = [(block, self.key_of(block)) for block in blocks if self.label_of[block]]
        passing = self._needing_a_passing_hash()
        hashed += zip(passing, self.spare_keys, strict=False)
        commands: list[Command] = []
        if hashed:
            ids, keys = zip(*hashed, strict=True)
            commands.append(Cache(ids, keys))
        if self.free:
            commands.append(Free(self._order_to_free(has_passing=bool(passing))))
        if passing:
            commands.append(Evict(passing))
        return tuple(commands)

    def _order_to_free(self, *, has_passing: bool) -> tuple[int, ...]:
        """In which order one `free` names what shall be free; all have hashes if `has_passing`."""
        if self.eviction == "lifo":
            return self.free[::-1]
        if self.eviction != "unhashed-lifo" or has_passing:
            return self.free
        useless = [block for block in self.free if not self.label_of[block]]
        return (*useless[::-1], *self.free[len(useless) :])

    def _needing_a_passing_hash(self) -> tuple[int, ...]:
        """A block without a hash gets behind one with a hash only while it has one too.

        That is so where blocks without one go to the head and the others to the tail.
        """
        labels = [bool(self.label_of[block]) for block in self.free]
        splits = joins_head(self.eviction, False) and not joins_head(self.eviction, True)
        if not splits or labels == sorted(labels):
            return ()
        return tuple(block for block in self.free if not self.label_of[block])


def of_orbit(
    space: OrbitSpace,
    orbit: bytes,
    blocks: Sequence[int],
    random: Random,
    hash_bytes: int = USUAL_HASH_BYTES,
) -> Representative:
    """A representative that plays its parts with the given ids, shuffled, and with new hashes."""
    ids = list(blocks)
    random.shuffle(ids)
    queue, live = space.split(orbit)
    free, held = ids[: len(queue)], ids[len(queue) :]
    kinds = [space.parts(code) for code in live]
    labels = [*queue, *(label for _, label in kinds)]
    num_hashes = space.scope.num_hashes
    hashes = different_hashes(random, num_hashes + len(queue), hash_bytes)
    return Representative(
        free=tuple(free),
        references={block: count for block, (count, _) in zip(held, kinds, strict=True)},
        label_of=dict(zip(ids, labels, strict=True)),
        keys=tuple(hashes[:num_hashes]),
        spare_keys=tuple(hashes[num_hashes:]),
        eviction=space.scope.eviction,
    )


def of_state(
    space: StateSpace, state: bytes, blocks: Sequence[int], keys: Sequence[Key]
) -> Representative:
    """The state as it is: block i of the space is the i-th of the ids, hash i the i-th key."""
    found, queue = space.split(state)
    return Representative(
        free=tuple(blocks[place] for place in queue),
        references={b: count for b, (count, _) in zip(blocks, found, strict=True) if count},
        label_of={b: label for b, (_, label) in zip(blocks, found, strict=True)},
        keys=tuple(keys[: space.scope.num_hashes]),
        spare_keys=tuple(keys[space.scope.num_hashes :]),
        eviction=space.scope.eviction,
    )
