"""The grammar of pool workloads at the sizes of servers: episodes instead of single verbs.

A server gives a pool one request after another: a prompt whose cached prefix is held and whose
other blocks are taken and cached in one call, tokens one at a time, an end that gives everything
back. Between them come the extremes of the same calls: the whole pool in one list, hundreds of
owners of one block or of carriers of one hash, prompts of which a part is held and a part waits,
hundreds of refusals, every count in turn. Daily
commands of the small grammar fill the gaps (`pool_workload.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

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
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.harness.pool_workload import PoolWorkload
from poolproof.harness.production import MOST_SWEPT, ProductionRun, size_near_a_border
from poolproof.reference.dict_pool import DictPool

__all__ = ["ProductionWorkload", "required_production_facts"]

MOST_IN_DAILY_LISTS = 64
"""Most lists stay below this."""

SMALL_BLOCKS = 8
"""In a pool of up to so many blocks all can be given back again and again."""

LONG_LISTS_SHARE = 12
"""Lists beyond that may have so many entries in all for each command of the run: a step costs what
its list is long, and a run of many steps shows more than one of a few huge ones."""

Episode = Callable[[], Iterator[Command]]


_LONG_MISUSE = 300
"""About so many held blocks stand in the longest lists of misuse."""

_BORDERS = (16, 100, 256, 1_000)
"""By how much lists of misuse differ in length, or up to where they are equal."""


class ProductionWorkload(PoolWorkload):
    """Chooses commands for one session, an episode after another.

    An episode is a generator: it reads the state, yields a command, and is resumed when that
    command has been applied.
    """

    def __init__(
        self,
        choices: Choices,
        pool: DictPool,
        can: Capabilities,
        hashes: Sequence[Key],
        run: ProductionRun,
    ) -> None:
        super().__init__(choices, pool, can, hashes)
        self._run = run
        self._choices = choices
        self._episode: Iterator[Command] = iter(())
        self._taken_back: Command | None = None
        self._next_count = run.first_count
        self._entries_left = LONG_LISTS_SHARE * max(run.num_steps, 4 * pool.num_blocks)
        self._next_hash = 0
        self._num_commands = 0
        touches = "touch" in can.verbs
        episodes: list[tuple[int, Episode, bool]] = [
            (6, self._request, True),
            (4, self._decode, True),
            (5, self._end, True),
            (4, self._daily, True),
            (2, self._each_count, True),
            (2, self._shared_prompt, True),
            (1, self._many_owners, touches),
            (1, self._hit_again, touches),
            (1, self._many_carriers, True),
            (1, self._refusals, True),
            (1, self._whole_pool, True),
            (1, self._questions, "lookup" in can.verbs),
            (1, self._evictions, "evict" in can.verbs),
            (3 if run.is_steady else 1, self._reset_all, "reset" in can.verbs),
            (1, self._resets_in_a_row, "reset" in can.verbs and run.num_blocks <= SMALL_BLOCKS),
        ]
        self._episodes = [
            episode for weight, episode, able in episodes if able for _ in range(weight)
        ]

    def bias(self) -> None:
        """The first episodes are the extremes, so that short runs have them too."""
        self._episode = self._opening()

    def next(self) -> Command:
        """The next legal command."""
        self._num_commands += 1
        if self._run.is_steady and self._num_commands == self._run.num_steps // 4:
            self.set_weights({"reset": 0})
        if self._taken_back is not None:
            command, self._taken_back = self._taken_back, None
            return command
        while True:
            for command in self._episode:
                return command
            self._episode = self._episodes[self.below(len(self._episodes))]()

    def drain(self) -> Command | None:
        """As in small pools, in larger shares; what was taken back gives its references first."""
        taken_back, self._taken_back = self._taken_back, None
        if isinstance(taken_back, Free):
            return taken_back
        if not self.references:
            return None
        share = 1 + self.below(max(len(self.references) // 8, 4))
        return self._give_back(share, ("last", "first", "any")[self.below(3)])

    def put_back(self, command: Command) -> None:
        """The episode goes on as if the command had been applied, so it comes next."""
        self._taken_back = command

    def _outside(self) -> int:
        """Also ids that wrap around a list of Python's, or in 8 or 16 bits.

        None is beyond an int32, which is what programs in other languages read.
        """
        num_blocks = self.pool.num_blocks
        some = self.below(num_blocks)
        far = (num_blocks + some, 2**20 + some, 2**31 - 1 - some, -num_blocks, -1 - some)
        kind = self.below(8)
        return far[kind] if kind < len(far) else super()._outside()

    def _held_beside_the_wrong_one(self) -> list[int]:
        kind = self.below(16)
        return self._distinct_held(2 if kind < 8 else MOST_IN_DAILY_LISTS if kind else _LONG_MISUSE)

    def _misuse_of_caching(
        self, held: list[int], outside: int, free: int | None, null: int | None
    ) -> list[Command]:
        """Also lists whose lengths are equal in their last digits or bits, or up to a border."""
        kinds = super()._misuse_of_caching(held, outside, free, null)
        some, border = self.hashes[0], _BORDERS[self.below(len(_BORDERS))]
        held = [block for block in held if not self.pool.keys[block]] or held
        kinds.append(Cache(tuple(held), (some,) * (len(held) + border)))
        if len(held) >= border:
            kinds += [
                Cache(tuple(held), (some,) * (len(held) - border)),
                Cache(tuple(held[:border]), (some,) * (border + 1 + self.below(8))),
            ]
        return kinds

    def _opening(self) -> Iterator[Command]:
        yield from self._whole_pool()
        if "reset" in self.can.verbs and self.below(2):
            yield from self._reset_all()
        yield from self._shared_prompt()
        yield from self._request()
        if "touch" in self.can.verbs:
            yield from self._many_owners()
        if self._run.careful:
            # A second long answer, while the first one is kept.
            yield Allocate(len(self.pool.free))
            yield self._give_back(len(self.references), "any")
        yield from self._many_carriers(go=True)

    def _size(self, most: int) -> int:
        """A length from 1 to `most`: small as a rule, up to all of it now and then."""
        kind = self.below(64)
        if kind < 40:
            return 1 + self.below(min(most, 8))
        daily = min(most, MOST_IN_DAILY_LISTS)
        size = size_near_a_border(self._choices, daily if kind < 63 else most)
        return size if self._affords(size) else daily

    def _affords(self, entries: int) -> bool:
        """Whether lists of so many entries may still be given; then they are counted."""
        if entries > MOST_IN_DAILY_LISTS:
            if entries > self._entries_left:
                return False
            self._entries_left -= entries
        return True

    # --- what a server does all day -----------------------------------------------------------

    def _request(self) -> Iterator[Command]:
        """A prompt: its cached prefix is held, the rest is taken and cached in one call."""
        usable = self.pool.num_blocks - (self.pool.null_block is not None)
        hashes = self._prompt(self._size(max(usable, 1)))
        held = self.pool.longest_prefix(hashes)
        if "acquire" in self.can.verbs:
            before = len(self.references)
            yield Acquire(hashes)
            held = len(self.references) - before
        elif held and "touch" in self.can.verbs:
            if "lookup" in self.can.verbs:
                yield Lookup(hashes[held - 1])
            carriers = [self.pool.lookup(key) for key in hashes[:held]]
            yield Touch(tuple(blocks[self.below(len(blocks))] for blocks in carriers))
        else:
            held = 0
        missing = hashes[held:]
        if not missing:
            return
        if len(missing) > len(self.pool.free):
            yield Allocate(len(missing))  # refused, as a server is when its pool is full
            return
        yield Allocate(len(missing))
        yield from self._cache_in_parts(missing)

    def _shared_prompt(self) -> Iterator[Command]:
        """Several requests of one prompt, of which a part waits in the queue and a part is held."""
        count = min(self._size(max(len(self.pool.free), 1)), len(self.pool.free))
        if not count or not self._affords(6 * count):
            return
        hashes = self._prompt(count)
        yield Allocate(len(hashes))
        yield from self._cache_in_parts(hashes)
        blocks = self.references[-len(hashes) :]
        if gone := self.below(len(hashes) + 1):
            yield self._give_back(gone, "last")
            if self.below(2):
                # The first ones wait, and the last ones are held.
                blocks = blocks[::-1]
        for _ in range(1 + self.below(4)):
            again = [b for b in blocks if self.pool.holders[b] or self.pool.keys[b]]
            if not again:
                return
            before = len(self.references)
            if "acquire" in self.can.verbs:
                yield Acquire(hashes)
            elif "touch" in self.can.verbs:
                yield Touch(tuple(again * 2 if self.below(8) == 0 else again))
            if self.below(3) == 0 and len(self.references) > before:
                yield self._give_back(len(self.references) - before, "last")

    def _decode(self) -> Iterator[Command]:
        """Tokens one at a time: a block now and then, cached when it is full."""
        for _ in range(self._size(48)):
            if not self.pool.free:
                return
            yield Allocate(1)
            if self.below(4):
                yield from self._cache(self.references[-1:], self._prompt(1))

    def _end(self) -> Iterator[Command]:
        """A request gives its blocks back, the last one first as a rule."""
        if self.references:
            how = self.below(4)
            yield self._give_back(self._size(len(self.references)), "any" if how == 0 else "last")

    def _daily(self) -> Iterator[Command]:
        for _ in range(8):
            command = super().next()
            yield command

    # --- the extremes of the same calls -------------------------------------------------------

    def _whole_pool(self) -> Iterator[Command]:
        """All that is free in one call, cached in one call, given back in one call."""
        if not self._affords(4 * self.pool.num_blocks):
            return
        if not self.pool.free and self.references:
            yield self._give_back(len(self.references), "any")
        count = len(self.pool.free)
        yield Allocate(count)
        yield Allocate(1)
        if count:
            yield from self._cache(self.references[-count:], self._prompt(count))
        if self.references:
            yield self._give_back(len(self.references), ("last", "first", "any")[self.below(3)])
        yield Allocate(len(self.pool.free) + 1)

    def _each_count(self) -> Iterator[Command]:
        """The next counts in turn, in every call that takes a list."""
        most = self.pool.num_blocks - (self.pool.null_block is not None)
        for _ in range(4):
            count = self._next_count
            self._next_count = 1 if count >= min(most, MOST_SWEPT) else count + 1
            if not self._affords(4 * count):
                return
            if count > len(self.pool.free) and self.references:
                yield self._give_back(len(self.references), "last")
            if count > len(self.pool.free):
                return
            yield Allocate(count)
            blocks = self.references[-count:]
            yield from self._cache(blocks, self._prompt(count))
            if "touch" in self.can.verbs:
                yield Touch(tuple(blocks))
                yield self._give_back(count, "last")
            yield self._give_back(count, "last")

    def _many_owners(self) -> Iterator[Command]:
        """One block for hundreds of requests, as the blocks of a system prompt have them."""
        if not self.references:
            return
        block = self.references[self.below(len(self.references))]
        before = len(self.references)
        for _ in range(min(20, self._run.num_steps // 40)):
            yield Touch((block,))
        missing = self._run.most_references - len(self.pool.holders[block])
        if missing > 0:
            count = missing if self.below(2) else 1 + self.below(missing)
            if self._affords(2 * count):
                yield Touch((block,) * count)
                yield Touch((block,))
        # All but the former owners, some by one call and the others one at a time.
        added = len(self.references) - before
        alone = min(added, 5)
        if added > alone:
            yield self._give_back(added - alone, "last")
        for _ in range(alone):
            yield self._give_back(1, "last")

    def _hit_again(self) -> Iterator[Command]:
        """One cached block is taken from the free queue and comes back, again and again."""
        cached = [block for block in self.pool.free if self.pool.keys[block]]
        if not cached:
            return
        block = cached[self.below(len(cached))]
        for _ in range(min(1 << self.below(9), self._run.num_steps // 8)):
            yield Touch((block,))
            yield self._give_back(1, "last")

    def _many_carriers(self, *, go: bool = False) -> Iterator[Command]:
        """Many blocks under one hash, held and free ones; then they go, in any order.

        Where a block may get another hash, they had one each before. Often they stay, unless `go`.
        """
        most = min(len(self.pool.free), MOST_SWEPT)
        if not most:
            return
        count = size_near_a_border(self._choices, most) if self.below(2) else self._size(most)
        if not self._affords(4 * count):
            count = min(count, MOST_IN_DAILY_LISTS)
        yield Allocate(count)
        if self.profile.recache != "forbidden" and self.below(2) and not go:
            yield from self._cache(self.references[-count:], self._prompt(count))
        key = self._prompt(1)
        blocks = self.references[-count:]
        # So many that their number needs another bit: it is reached by one block.
        border = 1 << (count.bit_length() - 1)
        for first, end in pairwise((0, border - 1, border, min(border + 1, count), count)):
            if first < end:
                yield from self._cache(blocks[first:end], key * (end - first))
        if "lookup" in self.can.verbs:
            yield Lookup(key[0])
        yield self._give_back(1 + self.below(count), "last")
        if "evict" in self.can.verbs and (self.below(2) or go):
            yield from self._fewer_carriers(key[0], self.below(2 if go else 3))

    def _fewer_carriers(self, key: Key, kind: int) -> Iterator[Command]:
        """They are evicted until one is left: the first, the last, or any of them."""
        while len(carriers := self.pool.lookup(key)) > 1:
            some = len(carriers) - 1 if kind < 2 else max(len(carriers) // 8, 1)
            first = (1, 0)[kind] if kind < 2 else self.below(len(carriers) - some)
            yield Evict(tuple(carriers[first : first + some]))

    def _refusals(self) -> Iterator[Command]:
        """The same refusal again and again, and then what fits."""
        for _ in range(self._size(min(300, self._run.num_steps // 8) or 1)):
            yield Allocate(len(self.pool.free) + 1 + self.below(2))
        most = self.pool.num_blocks
        yield Allocate(len(self.pool.free) + (most, 2 * most, 2**16, 2**20)[self.below(4)])
        if self.pool.free:
            yield Allocate(len(self.pool.free))
            yield self._give_back(self._size(len(self.references)), "last")

    def _questions(self) -> Iterator[Command]:
        for _ in range(self._size(64)):
            yield Lookup(self.hashes[self.below(len(self.hashes))])

    def _evictions(self) -> Iterator[Command]:
        """Blocks lose their hashes, up to all of them in one call; some have none."""
        count = self._size(self.pool.num_blocks)
        first = self.below(self.pool.num_blocks)
        ids = [(first + place) % self.pool.num_blocks for place in range(count)]
        if self.pool.null_block is not None:
            ids = [block for block in ids if block != self.pool.null_block]
        if ids:
            held = self._held_with_hashes(ids)
            yield Evict(tuple(ids))
            if self.below(2):
                yield from self._cache(list(held), list(held.values()))

    def _reset_all(self) -> Iterator[Command]:
        """Refused while a block is held; now and then everything is given back for it.

        What comes next takes blocks that had hashes, and gives them the same ones. A small pool
        is reset many times, and a steady one never after its first quarter: there are counters of
        resets, and counters that a reset clears.
        """
        is_small = self.pool.num_blocks <= SMALL_BLOCKS
        if self._run.is_steady and self._num_commands >= self._run.num_steps // 4:
            return
        yield Reset()
        rounds = 1 + self.below(32 if self._run.is_steady else 8) if is_small else 1
        for _ in range(rounds):
            if self.references:
                if not is_small and self.below(4):
                    return
                yield self._give_back(len(self.references), "any")
            before = {block: keys[0] for block, keys in self.pool.keys.items() if keys}
            yield Reset()
            count = min(len(self.pool.free), MOST_IN_DAILY_LISTS)
            yield Allocate(count)
            blocks = [block for block in self.references[-count:] if block in before]
            yield from self._cache(blocks, [before[block] for block in blocks])

    def _resets_in_a_row(self) -> Iterator[Command]:
        """1, 2, 4, ... resets while nothing is taken: what was cached before is found never again.

        A count of resets in few bits comes round by then.
        """
        if self._run.is_steady and self._num_commands >= self._run.num_steps // 4:
            return
        if self.references:
            yield self._give_back(len(self.references), "any")
        count = len(self.pool.free)
        yield Allocate(count)
        if len(self.references) == count:
            yield from self._cache(self.references, self._prompt(count))
            yield self._give_back(count, "any")
        for _ in range(min(1 << self.below(11), self._run.num_steps // 2)):
            yield Reset()

    def _held_with_hashes(self, blocks: Sequence[int]) -> dict[int, Key]:
        keys, holders = self.pool.keys, self.pool.holders
        return {block: keys[block][0] for block in blocks if keys[block] and holders[block]}

    # --- their parts --------------------------------------------------------------------------

    def _prompt(self, count: int) -> tuple[Key, ...]:
        """The hashes of a prompt: different ones, often those of an earlier prompt."""
        count = min(count, len(self.hashes))
        if self.below(3) == 0:
            start = self.below(len(self.hashes))
        else:
            start = self._next_hash
            self._next_hash = (start + count) % len(self.hashes)
        twice = [*self.hashes[start : start + count]]
        return (*twice, *self.hashes[: count - len(twice)])

    def _cache_in_parts(self, hashes: Sequence[Key]) -> Iterator[Command]:
        """The blocks that were taken last get the hashes: at once, or a part of them first.

        Who has cached a part of a prompt may name all of it when the rest is full.
        """
        count = len(hashes)
        kind = self.below(6) if count > 1 and self.pool.enable_caching else 2
        if kind < 2:
            part = 1 + self.below(count - 1)
            first, last = (0, part) if kind == 0 else (part, count)
            yield from self._cache(self.references[-count:][first:last], hashes[first:last])
        blocks = self.references[-count:]
        if len(set(blocks)) == count:
            yield from self._cache(blocks, hashes)

    def _cache(self, blocks: Sequence[int], hashes: Sequence[Key]) -> Iterator[Command]:
        """The blocks get the hashes, as many as there are of both, where the profile lets them."""
        pairs = [
            (block, key)
            for block, key in zip(blocks, hashes, strict=False)
            if self.profile.recache != "forbidden" or not self.pool.keys[block]
        ]
        if pairs:
            yield Cache(tuple(block for block, _ in pairs), tuple(key for _, key in pairs))

    def _give_back(self, count: int, which: str) -> Command:
        """`free` of outstanding references: the "last" ones (in reverse), the "first", or "any"."""
        references = self.references
        count = min(count, len(references))
        if which == "any":
            ids = self._draw_references(count)
        elif which == "first":
            ids = references[:count]
            del references[:count]
        else:
            ids = references[len(references) - count :][::-1]
            del references[len(references) - count :]
        return Free(tuple(self._each_once(ids)))


def required_production_facts(profile: Profile, can: Capabilities) -> list[str]:
    """The facts that runs at production sizes must reach under this profile."""
    facts = [
        "several blocks were allocated at once",
        "the queue was emptied",
        "an allocation was refused",
        "everything was freed at the end",
    ]
    keeps = profile.retention != "while-held"
    facts += ["an allocation evicted a cached block"] if keeps else []
    if "touch" in can.verbs:
        facts += ["a free cached block was touched"] if keeps else []
        facts.append("a block had more than 255 owners")
    if profile.duplicates == "kept":
        facts.append("two blocks came under one hash")
    return facts
