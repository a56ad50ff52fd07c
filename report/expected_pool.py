"""What a correct pool does with the commands of a trace: the reference, one command at a time.

A trace holds commands and no answers. Where the profile leaves the target a choice (an unspecified
eviction order), the blocks that later commands use are taken for the ones that it chose.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    Lookup,
    LookupChain,
    Reset,
    Touch,
    Usage,
)
from poolproof.contract.content import Key
from poolproof.contract.trace import Trace
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import misuse_of, undefined_in
from poolproof.report.key_letters import KeyLetters
from poolproof.report.wording import shortened

__all__ = ["ExpectedPool", "LostTrackError"]


class LostTrackError(Exception):
    """A command that makes no sense in the state of the reference: the target's own differs."""


class ExpectedPool:
    """The reference of a trace; `apply` returns, in words, what a right pool does."""

    def __init__(self, trace: Trace, letters: KeyLetters) -> None:
        self.pool = DictPool(trace.num_blocks, trace.profile, enable_caching=trace.enable_caching)
        size = trace.options.get("block_size", 1)
        self.pool.block_size = size if isinstance(size, int) and size > 0 else 1
        self._letters = letters

    def apply(self, command: Command, later: Sequence[Command] = ()) -> str:
        """Carry out the command; `later` are those that follow it. Raises LostTrackError."""
        pool = self.pool
        pool.command_number += 1
        misuse = misuse_of(pool, command)
        if misuse is not None:
            return f"misuse: {misuse}; {_promise(pool.profile.misuse)}"
        undefined = undefined_in(pool, command)
        if undefined is not None:
            raise LostTrackError(undefined)
        match command:
            case Allocate(count=count):
                return self._allocate(count, later)
            case Touch(block_ids=ids):
                revived = [b for b in dict.fromkeys(ids) if b in pool.free]
                pool.touch(ids)
                return f"revives {_ids(revived)}" if revived else ""
            case Free(block_ids=ids):
                freed = pool.release(ids)
                return f"{_ids(freed)} free" if freed else "still held"
            case Evict(block_ids=ids):
                dropped = [key for block in ids for key in pool.keys[block]]
                pool.evict(ids)
                return f"{self._letters.names(dropped)} gone" if dropped else "nothing to evict"
            case Reset():
                done = pool.reset()
                return "True" if done else "False, blocks are held"
            case Usage():
                return f"{pool.usage():.3g}"
            case _:
                return self._cache_or_lookup(command)

    def _cache_or_lookup(self, command: Command) -> str:
        pool = self.pool
        match command:
            case Cache(block_ids=ids, hashes=hashes):
                pool.cache(ids, hashes)
                return "" if pool.enable_caching else "caching is off"
            case Lookup(block_hash=key):
                return self._hit(key)
            case Acquire(hashes=hashes):
                return self._acquire(hashes)
            case CacheChain(chain=chain, block_ids=ids, num_cached=cached, group=group):
                for position in range(cached, len(ids)):
                    num_tokens = (position + 1) * pool.block_size
                    pool.cache_full(ids[position], chain.prefix(num_tokens, group), num_tokens)
                return "" if pool.enable_caching else "caching is off"
            case CachePartial(chain=chain, block_id=block, num_tokens=num_tokens, group=group):
                pool.cache_partial(block, chain.prefix(num_tokens, group), num_tokens)
                return "" if pool.enable_caching else "caching is off"
            case LookupChain(chain=chain, num_tokens=num_tokens, groups=groups):
                keys = [chain.prefix(num_tokens, group) for group in groups]
                return "; ".join(map(self._hit, keys))
            case _:
                raise LostTrackError(f"{command.verb} is not a command of a pool")

    def _allocate(self, count: int, later: Sequence[Command]) -> str:
        pool = self.pool
        if count > len(pool.free):
            return f"refused: {len(pool.free)} free"
        chosen = None
        if pool.profile.eviction == "unspecified":
            chosen = _used_later(list(pool.free), count, later)
        head = list(pool.free)[:count] if chosen is None else chosen
        dropped = [key for block in head for key in pool.keys[block]]
        taken = pool.allocate(count, chosen)
        got = f"gives {_ids(taken)}" if taken else "gives none"
        return f"{got}, evicts {self._letters.names(dropped)}" if dropped else got

    def _acquire(self, hashes: Sequence[Key]) -> str:
        taken: list[int] = []
        for key in hashes:
            carriers = self.pool.lookup(key)
            if not carriers:
                break
            taken.append(carriers[0])
        self.pool.touch(taken)
        return f"gives {_ids(taken)}" if taken else "gives none"

    def _hit(self, key: Key) -> str:
        letter, carriers = self._letters.letter(key), self.pool.lookup(key)
        return f"{letter} is in {' or '.join(map(str, carriers))}" if carriers else f"no {letter}"


def _used_later(free: list[int], count: int, later: Sequence[Command]) -> list[int]:
    """The `count` free blocks that later commands name first, then those at the head."""
    named: list[int] = []
    for command in later:
        if isinstance(command, Free | Cache | CacheChain | Touch):
            named += [block for block in command.block_ids if block in free]
        if isinstance(command, CachePartial) and command.block_id in free:
            named.append(command.block_id)
    return list(dict.fromkeys((*named, *free)))[:count]


def _ids(blocks: Sequence[int]) -> str:
    return shortened(list(map(str, blocks)))


def _promise(misuse: str) -> str:
    return {"raises": "must raise ValueError", "ignores": "must be ignored"}.get(
        misuse, "the profile promises nothing"
    )
