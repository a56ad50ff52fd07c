"""The grammar of pool workloads: the next command, chosen from what is legal now.

Tuned to what found real bugs (docs/workloads.md): tiny pools that are nearly full, a handful of
hashes, exact fits and one more than fits, lists with repeats, caching again, misuse where the
profile says what it does. Every method asks `Choices` for integers and returns one legal
command, or None when the state offers none. Token chains are in `chain_workload.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Cache,
    Command,
    Evict,
    Free,
    Lookup,
    Reset,
    Touch,
)
from poolproof.contract.content import Key
from poolproof.contract.profile import USUAL_HASH_BYTES, Profile
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.reference.dict_pool import DictPool

__all__ = ["PoolWorkload", "alphabet", "different_hashes"]

_BYTES_SHOWN = 4

LENGTHS = (1, 1, 1, 1, 1, 2, 2, 3)
"""How long the lists in commands are, each as likely as the others."""


def different_hashes(source: random.Random, number: int, length: int) -> list[bytes]:
    """So many different hashes of `length` random bytes; fewer only where there are not so many."""
    found: dict[bytes, None] = {}
    while len(found) < min(number, 256**length):
        found[source.randbytes(length)] = None
    return list(found)


def alphabet(size: int, seed: int | str, length: int = USUAL_HASH_BYTES) -> list[Key]:
    """`size` hashes of `length` random bytes; a target that tests for one value gains nothing.

    The second differs from the first in four bytes alone, so that a target whose index keeps only
    the end of a hash takes the one for the other. These are the first bytes, which reports show.
    """
    hashes = different_hashes(random.Random(f"alphabet {seed}"), size, length)
    if length > _BYTES_SHOWN:
        hashes[1:2] = [key[:_BYTES_SHOWN] + hashes[0][_BYTES_SHOWN:] for key in hashes[1:2]]
    return [*hashes]


SMALL_ALLOCATIONS = (Allocate(0), Allocate(1), Allocate(2), Allocate(3))


class PoolWorkload:
    """Chooses commands for one session, and remembers which references are outstanding.

    `references` holds a block id for each outstanding reference, so that a random one is found in
    constant time however large the pool is: the code that applies a command appends the blocks that
    it took, and a `free` gives its references back when it is drawn.
    """

    def __init__(
        self, choices: Choices, pool: DictPool, can: Capabilities, hashes: Sequence[Key]
    ) -> None:
        self.below = choices.below
        self.pool = pool
        self.can = can
        self.profile: Profile = pool.profile
        self.hashes = hashes
        self.references: list[int] = []
        listed = self.profile.null_in_lists != "misuse"
        self._null_allowed = pool.null_block if listed else None
        self._caches_null = listed and self.profile.null_in_lists != "uncached"
        self.verbs: dict[str, Callable[[], Command | None]] = {
            "allocate": self.allocate,
            "touch": self.touch,
            "free": self.free,
            "cache": self.cache,
            "lookup": self.lookup,
        }
        if "acquire" in can.verbs:
            self.verbs["acquire"] = self.acquire
        if "touch" not in can.verbs:
            del self.verbs["touch"]
        if "lookup" not in can.verbs:
            del self.verbs["lookup"]
        if "evict" in can.verbs:
            self.verbs["evict"] = self.evict
        if "reset" in can.verbs:
            self.verbs["reset"] = self.reset
        self._urn: list[Callable[[], Command | None]] = []
        self.set_weights({})

    def set_weights(self, weights: dict[str, int]) -> None:
        """How often each verb is drawn, relative to the others; the rest keep their usual weight.

        A refusal, a reset and an eviction from the index are rarer than the daily round.
        """
        usual = {"allocate": 6, "touch": 5, "free": 7, "cache": 6, "lookup": 1, "acquire": 4,
                 "evict": 2, "reset": 2}  # fmt: skip
        self._urn = [
            method
            for verb, method in self.verbs.items()
            for _ in range(weights.get(verb, usual.get(verb, 2)))
        ]

    def bias(self) -> None:
        """Draw weights for this run: mostly the usual ones, sometimes one verb dominates."""
        if self.below(3) == 0:
            verbs = list(self.verbs)
            self.set_weights({verbs[self.below(len(verbs))]: 40})

    def next(self) -> Command:
        """The next legal command."""
        urn, below = self._urn, self.below
        tries = 20
        while tries:
            command = urn[below(len(urn))]()
            if command is not None:
                return command
            tries -= 1
        return Allocate(0)

    def allocate(self) -> Command:
        """Small counts mostly, sometimes exactly what is free, or one or two more than that."""
        free = len(self.pool.free)
        kind = self.below(32)
        if kind < 24:
            return SMALL_ALLOCATIONS[kind % (min(free, 3) + 1)]
        if kind < 28 and free <= 16:
            return Allocate(free)
        return Allocate(min(free + 1 + kind % 2, self.pool.num_blocks + 1))

    def touch(self) -> Command | None:
        """Blocks found under a hash, or held ones; an id may stand twice."""
        touchable = self._touchable
        ids = [block for _ in range(LENGTHS[self.below(8)]) if (block := touchable()) is not None]
        return Touch(tuple(ids)) if ids else None

    def free(self) -> Command | None:
        """Some outstanding references, sometimes all of them, in any order."""
        count = len(self.references)
        if not count:
            return None
        kind = self.below(32)
        wanted = count if kind > 28 and count <= 12 else min(count, LENGTHS[kind & 7])
        ids = self._each_once(self._draw_references(wanted))
        return Free(tuple(ids) if self._null_allowed is None else self._with_null(ids))

    def cache(self) -> Command | None:
        """Distinct held blocks get hashes from the small alphabet."""
        ids = self._distinct_held(LENGTHS[self.below(8)])
        if self.profile.recache == "forbidden":
            ids = [block for block in ids if not self.pool.keys[block]]
        if not ids:
            return None
        blocks = self._with_null(ids) if self._caches_null else tuple(ids)
        hashes, below = self.hashes, self.below
        return Cache(blocks, tuple([hashes[below(len(hashes))] for _ in blocks]))

    def lookup(self) -> Command:
        return Lookup(self.hashes[self.below(len(self.hashes))])

    def acquire(self) -> Command:
        """A chain of distinct hashes that starts anywhere in the alphabet."""
        start = self.below(len(self.hashes))
        length = 1 + self.below(min(3, len(self.hashes)))
        rotated = [*self.hashes[start:], *self.hashes[:start]]
        return Acquire(tuple(rotated[:length]))

    def evict(self) -> Command | None:
        """Cached blocks, free or held, and now and then an unhashed one (a no-op)."""
        ids = []
        for _ in range(1 + self.below(2)):
            kind = self.below(4)
            carriers = self._carriers()
            if kind and carriers:
                ids.append(carriers[self.below(len(carriers))])
            elif self.references:
                ids.append(self.references[self.below(len(self.references))])
        return Evict(tuple(dict.fromkeys(ids))) if ids else None

    def reset(self) -> Command:
        return Reset()

    def misuse(self) -> Command | None:
        """A command that the profile calls misuse (`legality.misuse_of` says why)."""
        outside = self._outside()
        held = self._held_beside_the_wrong_one()
        free = next(reversed(self.pool.free), None)
        kinds: list[Command] = [
            Allocate(-1 - self.below(2)),
            # Legal entries before the wrong one: a target that checks as it goes has changed them.
            Free((*held, outside)),
            Touch((*held, outside)),
        ]
        if free is not None:
            kinds += [Free((free,)), Free((*held, free))]
        if held:
            kinds.append(Free((*held[:1] * (len(self.pool.holders[held[0]]) + 1),)))
        null = self.pool.null_block if self.profile.null_in_lists == "misuse" else None
        if self.pool.enable_caching:
            kinds += self._misuse_of_caching(held, outside, free, null)
            if "evict" in self.can.verbs:
                kinds.append(Evict((*held, outside)))
                if null is not None:
                    kinds.append(Evict((*held, null)))
        if null is not None:
            kinds += [Free((*held, null)), Touch((*held, null))]
        command = kinds[self.below(len(kinds))]
        return command if command.verb in self.can.verbs else None

    def _misuse_of_caching(
        self, held: list[int], outside: int, free: int | None, null: int | None
    ) -> list[Command]:
        """Blocks that must not be cached, behind held ones, and lists of unequal length.

        A missing or surplus hash follows pairs that are right: a target that stops only there has
        already cached them.
        """
        some, one_more = self.hashes[0], len(held) + 1
        kinds: list[Command] = [
            Cache((*held, outside), (some,) * one_more),
            Cache(tuple(held), (some,) * one_more),
        ]
        if free is not None:
            kinds += [Cache((free,), (some,)), Cache((*held, free), (some,) * one_more)]
        if held:
            kinds += [
                Cache(tuple(held), (some,) * (len(held) - 1)),
                Cache((*held, held[0]), (some,) * one_more),
            ]
        if null is not None:
            kinds.append(Cache((*held, null), (some,) * one_more))
        return kinds

    def _outside(self) -> int:
        """The id of no block."""
        return (self.pool.num_blocks, self.pool.num_blocks + 7, -1)[self.below(3)]

    def _held_beside_the_wrong_one(self) -> list[int]:
        """Held blocks that stand in a list of misuse before the wrong one."""
        return self._distinct_held(2)

    def opening(self) -> Iterator[Command]:
        """What comes before the first command of a run: nothing."""
        yield from ()

    def empty(self, number: int) -> Command:
        """A call with nothing in its list, each verb in turn: legal in every state, a no-op.

        A server makes it for a request without a hit, or without a full block. It is drawn from
        nothing, so that the other commands of a run stay what they are.
        """
        empty = [Touch(()), Free(()), Cache((), ()), Evict(())]
        there = [command for command in empty if command.verb in self.can.verbs]
        return there[number % len(there)]

    def drain(self) -> Command | None:
        """The next `free` on the way to a pool without holders."""
        count = len(self.references)
        if not count:
            return None
        return Free(tuple(self._each_once(self._draw_references(min(count, 1 + self.below(4))))))

    def give_everything_back(self) -> Iterator[Command]:
        """Give every reference back, then empty the index."""
        while (command := self.drain()) is not None:
            yield command
        if "reset" in self.verbs:
            yield Reset()

    def around_a_reset(self) -> Iterator[Command]:
        """What shows what a pool keeps over a reset: everything is given back."""
        yield from self.give_everything_back()

    def put_back(self, command: Command) -> None:
        """Take back a command that was drawn and is not applied."""
        if isinstance(command, Free):
            null = self.pool.null_block
            self.references.extend(block for block in command.block_ids if block != null)

    def remap(self, remapped: Sequence[tuple[int, int]]) -> None:
        """Follow a `cache` call that moved references from old blocks to new ones."""
        for old, new in remapped:
            self.references[self.references.index(old)] = new

    def _carriers(self) -> Sequence[int]:
        return self.pool.carriers.get(self.hashes[self.below(len(self.hashes))], ())

    def _touchable(self) -> int | None:
        kind = self.below(8)
        if kind == 0 and self._null_allowed is not None:
            return self._null_allowed
        if kind < 5:
            carriers = self._carriers()
            if carriers:
                return carriers[0] if len(carriers) == 1 else carriers[self.below(len(carriers))]
        references = self.references
        return references[self.below(len(references))] if references else None

    def _draw_references(self, count: int) -> list[int]:
        """Take `count` random outstanding references out of the list."""
        references, below = self.references, self.below
        ids = []
        for _ in range(count):
            position = below(len(references))
            ids.append(references[position])
            last = references.pop()
            if position < len(references):
                references[position] = last
        return ids

    def _each_once(self, drawn: list[int]) -> list[int]:
        """The ids for one `free`: where none may stand twice, the others stay outstanding."""
        if self.profile.repeats_in_free == "allowed":
            return drawn
        once: dict[int, None] = {}
        for block in drawn:
            if block in once:
                self.references.append(block)
            once[block] = None
        return list(once)

    def _distinct_held(self, count: int) -> list[int]:
        references, below = self.references, self.below
        if not references:
            return []
        if count == 1:
            return [references[below(len(references))]]
        return list(dict.fromkeys([references[below(len(references))] for _ in range(count)]))

    def _with_null(self, ids: list[int]) -> tuple[int, ...]:
        """Now and then the null block stands among the ids, where the profile lets it."""
        if self._null_allowed is not None and self.below(4) == 0:
            ids.insert(self.below(len(ids) + 1), self._null_allowed)
        return tuple(ids)
