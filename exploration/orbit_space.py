"""The transition relation of the reference pool, with block ids and hash labels erased.

Two states that differ only in which block plays which part, or in which hash is called what, lie
in one orbit, and every command leads from orbits to orbits. No search for a normal form is
needed: the free queue orders the free blocks, so their ids can be dropped; held blocks are told
apart by references and hash alone, so they are sorted; and hashes are numbered in the order in
which the queue meets them, only those that it does not meet have to be tried in every order.

The relation, one block a command (a call for several blocks is a sequence of these):

    allocate   the head of the queue is held once and loses its hash
    touch      a held block, or a free one with a hash, gets a reference, up to the bound; a free
               one leaves the queue
    free       a held block loses a reference; at none it joins the queue, as `eviction` says
    cache      a held block gets another hash than it has, as `recache` and `duplicates` say
    evict      a block with a hash loses it
    reset      all blocks are free, at least one with a hash: all hashes go

Commands that change nothing are no transitions. `tests/exploration/test_relation.py` holds this
against the reference (`reference/dict_pool.py`), state by state and command by command.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, permutations
from math import factorial

from poolproof.contract.profile import joins_head
from poolproof.exploration.scope import ALL_VERBS, Scope

__all__ = ["OrbitSpace", "Transition"]

ALLOCATE, TOUCH, FREE, CACHE, EVICT, RESET = range(len(ALL_VERBS))

Transition = tuple[int, bytes]
"""Which verb of `ALL_VERBS`, and the state that it leads to."""

# For each renaming of hashes a table for bytes.translate; None where nothing is renamed.
Tables = tuple[bytes, ...] | None


class OrbitSpace:
    """The orbits of a scope. An orbit is `width` bytes.

    First the hashes of the free blocks, head first, 0 for none; then the held blocks, ascending,
    each as references x (hashes + 1) + hash. Hashes are numbered from 1; of all renamings the
    smallest bytes are taken.
    """

    has_symmetry = True

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.width = scope.num_blocks
        self._radix = scope.num_hashes + 1
        codes = range(self._radix * (scope.max_references + 1))
        self._codes = [bytes([code]) for code in codes]
        self._live = bytes(codes[self._radix :])
        self._parts = [divmod(code, self._radix) for code in codes]
        self._renamings = dict(self._all_renamings())
        self._without = [self._table_without(label) for label in range(self._radix)]
        self._can_evict = "evict" in scope.verbs
        self._can_reset = "reset" in scope.verbs
        self._sizes: dict[tuple[int, bytes], int] = {}

    def initial(self) -> bytes:
        """All blocks free, no hash anywhere."""
        return bytes(self.width)

    def split(self, orbit: bytes) -> tuple[bytes, bytes]:
        """The queue's hashes, head first, and the codes of the held blocks."""
        queue = orbit.rstrip(self._live)
        return queue, orbit[len(queue) :]

    def parts(self, code: int) -> tuple[int, int]:
        """References and hash of a held block's code."""
        return self._parts[code]

    def successors(self, orbit: bytes) -> tuple[list[Transition], int]:
        """Every transition up to symmetry, and how many there are from each of its states."""
        queue, live = self.split(orbit)
        found: list[Transition] = []
        if queue:
            found.append((ALLOCATE, self.canonical(queue[1:], self._codes[self._radix] + live)))
            self._from_queue(queue, live, found)
        degree = len(found)
        for place, code in enumerate(live):
            times = 1
            if place and live[place - 1] == code:
                continue  # in the same orbit as its twin
            while place + times < len(live) and live[place + times] == code:
                times += 1
            before = len(found)
            self._from_held(queue, live[:place] + live[place + 1 :], code, found)
            degree += times * (len(found) - before)
        return found, degree

    def size(self, orbit: bytes) -> int:
        """How many states the orbit has: ways to name its blocks, times ways to name its hashes."""
        queue, live = self.split(orbit)
        met = max(queue, default=0)
        known = self._sizes.get((met, live))
        if known is None:
            known = factorial(self.width)
            for _, twins in groupby(live):
                known //= factorial(len(list(twins)))
            known *= self._distinct_renamings(met, live)
            self._sizes[met, live] = known
        return known

    def canonical(self, queue: bytes, held: bytes) -> bytes:
        """The orbit of a queue and of held blocks in any order."""
        tables = self._renamings[bytes(dict.fromkeys(queue.replace(b"\0", b"")))]
        return _smallest(queue, held, tables)

    def _from_queue(self, queue: bytes, live: bytes, found: list[Transition]) -> None:
        """Touches and evictions of free blocks, and the reset."""
        for place, label in enumerate(queue):
            if label:
                head, tail = queue[:place], queue[place + 1 :]
                revived = self._codes[self._radix + label]
                found.append((TOUCH, self.canonical(head + tail, live + revived)))
                if self._can_evict:
                    found.append((EVICT, self.canonical(head + b"\0" + tail, live)))
        if self._can_reset and not live and any(queue):
            found.append((RESET, bytes(self.width)))

    def _from_held(self, queue: bytes, rest: bytes, code: int, found: list[Transition]) -> None:
        """What can be done to one held block; `rest` are the others."""
        references, label = self._parts[code]
        radix, codes, scope = self._radix, self._codes, self.scope
        # The queue is as it was, and with it the names of the hashes that it meets.
        tables = self._renamings[bytes(range(1, max(queue, default=0) + 1))]
        if references < scope.max_references:
            found.append((TOUCH, _smallest(queue, rest + codes[code + radix], tables)))
        if references > 1:
            found.append((FREE, _smallest(queue, rest + codes[code - radix], tables)))
        else:
            to_head = joins_head(scope.eviction, bool(label))
            joined = codes[label] + queue if to_head else queue + codes[label]
            found.append((FREE, self.canonical(joined, rest)))
        if label and self._can_evict:
            found.append((EVICT, _smallest(queue, rest + codes[code - label], tables)))
        if label and scope.recache == "forbidden":
            return
        for other in range(1, radix):
            if other == label:
                continue
            if scope.duplicates == "kept":
                result = _smallest(queue, rest + codes[code - label + other], tables)
            else:
                merged = self._cached_alone(queue, rest, code - label, other)
                if not label and merged == queue + rest + codes[code]:
                    continue  # the hash has a carrier, and the block had none before
                result = self.canonical(merged[: len(queue)], merged[len(queue) :])
            found.append((CACHE, result))

    def _cached_alone(self, queue: bytes, rest: bytes, bare: int, label: int) -> bytes:
        """A block without its hash is cached under a hash that has one carrier at most."""
        others = queue + rest
        alone = others.translate(self._without[label])
        if alone != others and self.scope.duplicates == "first":
            return others + self._codes[bare]
        return alone + self._codes[bare + label]

    def _all_renamings(self) -> Iterator[tuple[bytes, Tables]]:
        """For each order in which a queue may meet hashes, the renamings that may be smallest."""
        labels = range(1, self._radix)
        for length in range(self._radix):
            for met in permutations(labels, length):
                others = [label for label in labels if label not in met]
                orders = [(*met, *order) for order in permutations(others)]
                only = orders[0] == tuple(labels) and len(orders) == 1
                yield bytes(met), None if only else tuple(map(self._table, orders))

    def _table(self, order: tuple[int, ...]) -> bytes:
        """A translation that gives the hashes their numbers in this order."""
        names = {0: 0, **{label: number for number, label in enumerate(order, 1)}}
        table = bytearray(range(256))
        for code, (references, label) in enumerate(self._parts):
            table[code] = references * self._radix + names[label]
        return bytes(table)

    def _table_without(self, label: int) -> bytes:
        """A translation that takes a hash away wherever it is."""
        table = bytearray(range(256))
        for code, (references, carried) in enumerate(self._parts):
            if carried == label:
                table[code] = references * self._radix
        return bytes(table)

    def _distinct_renamings(self, met: int, live: bytes) -> int:
        """How many different states renaming the hashes makes: all, but for exchanges of twins.

        Hashes that the queue meets have a place each; two that it does not meet are twins when
        as many held blocks carry the one as the other, at each number of references.
        """
        carried = sorted(
            bytes(self._parts[code][0] for code in live if self._parts[code][1] == label)
            for label in range(met + 1, self._radix)
        )
        number = factorial(self.scope.num_hashes)
        for _, twins in groupby(carried):
            number //= factorial(len(list(twins)))
        return number


def _smallest(queue: bytes, held: bytes, tables: Tables) -> bytes:
    if tables is None:
        return queue + bytes(sorted(held))
    if len(tables) == 1:
        return queue.translate(tables[0]) + bytes(sorted(held.translate(tables[0])))
    return min(queue.translate(table) + bytes(sorted(held.translate(table))) for table in tables)
