"""The fast oracle of the watch: it says what the specification says, and what only it can say."""

from __future__ import annotations

import random

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import FULL, CacheGroup
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.reference.step_oracle import StepOracle
from poolproof.watch.digests import Digests
from poolproof.watch.live_memory import LiveMemory, Part

SIZE = 2
LAYOUTS = {
    "full": FULL,
    "sliding": (CacheGroup("sliding", 0, 3),),
    "full+sliding": (CacheGroup(), CacheGroup("sliding", 0, 3)),
    "chunked": (CacheGroup("chunked", 0, 4),),
}


def tokens(name, chain, first, *tables, replaced=True):
    """Everything of the chain from `first` on is computed, through one table for each group."""
    if not isinstance(chain, TokenChain):
        chain = TokenChain(tuple(chain))
    return ComputedTokens(name, chain, first, len(chain.tokens) - first, tables, replaced)


def memory(*groups, num_blocks=8, **options):
    chosen = groups or FULL
    return LiveMemory(num_blocks, chosen, [SIZE] * len(chosen), Digests(b"key"), **options)


def careless_steps(seed, groups, num_blocks=12):
    """Steps of an engine that now and then shares, reuses, frees and copies what it must not."""
    choose = random.Random(seed)
    live: dict[str, tuple[TokenChain, int, list[list[int]]]] = {}
    texts = [tuple(choose.randrange(3) for _ in range(9)) for _ in range(2)]
    for number in range(1, 60):
        ended = [name for name in live if choose.random() < 0.15]
        for name in ended:
            del live[name]
        parts = []
        for name in list(live):
            if choose.random() < 0.3:
                continue
            chain, first, tables = live[name]
            first = max(0, first - (choose.random() < 0.1))
            end = min(first + choose.randint(1, 3), 12)
            if end <= first:
                continue
            more = tuple(choose.randrange(3) for _ in range(end - first))
            chain = TokenChain((*chain.tokens[:first], *more), None, chain.salt, chain.images)
            needed = -(-end // SIZE)
            added = []
            for table in tables:
                fresh = [choose.randrange(num_blocks) for _ in range(needed - len(table))]
                table += fresh
                added.append(tuple(fresh))
            live[name] = chain, end, tables
            parts.append(ComputedTokens(name, chain, first, end - first, tuple(added), False))
        if len(live) < 3:
            text = choose.choice(texts)[: choose.randint(1, 9)]
            images = (Image("cat", 1, 2),) if choose.random() < 0.2 else ()
            chain = TokenChain(text, None, choose.choice([None, "x"]), images)
            first = choose.randrange(len(text))
            old = choose.choice([t for _, _, t in live.values()] or [None])
            tables = [
                [
                    old[g][e] if old and e < len(old[g]) else choose.randrange(num_blocks)
                    for e in range(-(-len(text) // SIZE))
                ]
                for g in range(len(groups))
            ]
            name = f"{seed}-{number}"
            live[name] = chain, len(text), tables
            told = tuple(map(tuple, tables))
            parts.append(ComputedTokens(name, chain, first, len(text) - first, told, True))
        copies = [
            (choose.randrange(num_blocks), choose.randrange(num_blocks))
            for _ in range(choose.random() < 0.1)
        ]
        yield StepRecord(number, tuple(parts), tuple(copies), tuple(ended))


def first_wrong_reads(found):
    """Of each reader and group the first: later ones are told by different rules."""
    first = {}
    for one in found:
        first.setdefault((one.reader, one.group), (one.step, one.position, one.block, one.slot))
    return first


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_first_wrong_read_of_everybody_is_that_of_the_specification(layout):
    groups = LAYOUTS[layout]
    number = 0
    for seed in range(40):
        slow = StepOracle(12, groups, [SIZE] * len(groups))
        fast = memory(*groups, num_blocks=12)
        wanted, got = [], []
        for step in careless_steps(seed, groups):
            wanted += slow.record(step)
            got += fast.record(step)
        names = {Digests(b"key").name(name): name for name in {one.reader for one in wanted}}
        mine = first_wrong_reads(
            [one for one in got if one.invariant == "DATA" and one.because_of is None]
        )
        mine = {(names.get(reader, reader), group): at for (reader, group), at in mine.items()}
        assert mine == first_wrong_reads(wanted), seed
        number += len(mine)
    assert number > 100
