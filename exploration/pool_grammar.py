"""Every command that is worth trying next on a pool: the grammar of exhaustive search.

Counts up to a bound and one more than fits; lists up to a bound, with repeats where they are
legal; a few representatives of misuse where the profile defines it. Blocks that nobody can tell
apart (held as often, under the same keys, with the same history) are tried once, and of the
hashes that no command named so far only the first. The order is fixed, simplest commands first:
it decides which of several shortest failures is reported. Token chains are not in this grammar.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

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
from poolproof.exploration.recorded_session import RecordedPool
from poolproof.reference.legality import misuse_of

__all__ = ["PoolGrammar"]


class PoolGrammar:
    """The commands to try in a state, for given hashes and bounds on counts and lists."""

    def __init__(self, hashes: Sequence[Key], *, max_count: int, max_list: int) -> None:
        self.hashes = hashes
        self.max_count = max_count
        self.max_list = max_list

    def commands(self, session: RecordedPool) -> Iterator[Command]:
        """All commands that are defined in the session's state, in a fixed order."""
        pool = session.reference
        for command in self._legal(session):
            if session.is_defined(command) and misuse_of(pool, command) is None:
                yield command
        for command in self._misuse(session):
            if session.is_defined(command) and misuse_of(pool, command) is not None:
                yield command

    def _legal(self, session: RecordedPool) -> Iterator[Command]:
        pool = session.reference
        num_free = len(pool.free)
        yield from map(Allocate, range(min(num_free, self.max_count) + 1))
        yield Allocate(num_free + 1)
        held = [b for b, holders in pool.holders.items() if holders]
        cached_free = [b for b in pool.free if pool.keys[b]]
        null = [] if pool.null_block is None else [pool.null_block]
        for ids in self._lists(session, [*held, *cached_free, *null], repeats=True):
            yield Touch(ids)
        for ids in self._lists(session, [*held, *null], repeats=True):
            yield Free(ids)
        for ids in self._lists(session, [*held, *null], repeats=False):
            yield from (Cache(ids, keys) for keys in self._hashes(session, len(ids)))
        yield from (Lookup(key) for (key,) in self._hashes(session, 1))
        for length in range(1, self.max_list + 1):
            yield from map(Acquire, self._hashes(session, length))
        for ids in self._lists(session, [*held, *cached_free], repeats=False):
            yield Evict(ids)
        yield Reset()

    def _misuse(self, session: RecordedPool) -> Iterator[Command]:
        pool = session.reference
        some = self.hashes[0]
        outside = (pool.num_blocks,)
        yield from (Allocate(-1), Touch(outside), Free(outside), Free((-1,)), Evict(outside))
        yield Cache(outside, (some,))
        yield Cache((), (some,))
        held = [b for b, holders in pool.holders.items() if holders]
        some_held = [ids[0] for ids in self._lists(session, held, repeats=False) if len(ids) == 1]
        for block in [*some_held, *list(pool.free)[-1:]]:
            yield Free((block,) * (len(pool.holders[block]) + 1))
            yield Cache((block,), (some,))
            yield Cache((block, block), (some, some))
        if pool.null_block is not None:
            null = (pool.null_block,)
            yield from (Touch(null), Free(null), Cache(null, (some,)))

    def _hashes(self, session: RecordedPool, length: int) -> Iterator[tuple[Key, ...]]:
        """Lists of hashes; those that no command named so far come in their order."""
        fresh = [key for key in self.hashes if key not in session.keys]
        for keys in product(self.hashes, repeat=length):
            new = [key for key in dict.fromkeys(keys) if key in fresh]
            if new == fresh[: len(new)]:
                yield keys

    def _lists(
        self, session: RecordedPool, blocks: Sequence[int], *, repeats: bool
    ) -> Iterator[tuple[int, ...]]:
        """Lists of the blocks, shortest first, up to the exchange of indistinguishable ones."""
        for length in range(1, self.max_list + 1):
            seen = set()
            tuples = product(blocks, repeat=length) if repeats else permutations(blocks, length)
            for ids in tuples:
                shape = session.shape_of(ids)
                if shape not in seen:
                    seen.add(shape)
                    yield ids
