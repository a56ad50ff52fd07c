"""The fast oracle of the watch: it says what the specification says, and what only it can say."""

from __future__ import annotations

import random

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import FULL, CacheGroup
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.reference.step_oracle import StepOracle
from poolproof.watch.digests import Digests
from poolproof.watch.live_memory import LiveMemory

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
                table.extend(fresh)
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
    for seed in range(12):
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
    assert number > 30


def wrong(found):
    return [(one.invariant, one.request_id, one.because_of) for one in found]


def test_computing_growing_and_hits_are_right_and_counted():
    watch = memory()
    assert watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1, 2)),))) == []
    assert watch.record(StepRecord(2, (tokens("b", [1, 2, 4], 2, (1, 3)),))) == []
    assert watch.counts.admissions_with_hits == 1
    assert watch.counts.checked_reads == 1


def test_a_wrong_read_names_reader_writer_step_and_place():
    watch = memory()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1, 2)),)))
    (found,) = watch.record(StepRecord(2, (tokens("b", [9, 2, 3], 2, (1, 3)),)))
    assert (found.invariant, found.request_id, found.step) == ("DATA", "b", 2)
    assert (found.writer, found.written_in) == (Digests(b"key").name("a"), 1)
    assert (found.group, found.block, found.slot, found.position) == (0, 1, 0, 0)
    assert found.sentence.startswith("step 2: request r-")
    assert found.sentence.endswith(" in step 1; it is not that of its own prefix")


def test_what_a_reader_of_wrong_kv_computes_is_wrong_for_whoever_reads_it():
    watch = memory()
    watch.record(StepRecord(1, (tokens("a", [1, 2], 0, (1,)), tokens("z", [9, 2], 0, (3,)))))
    first = watch.record(StepRecord(2, (tokens("b", [9, 2, 3, 4], 2, (1, 2)),), ended=("a",)))
    second = watch.record(StepRecord(3, (tokens("c", [9, 2, 3, 4, 5], 4, (3, 2, 4)),)))
    third = watch.record(StepRecord(4, (tokens("d", [9, 2, 3, 4, 5, 6, 7], 5, (3, 2, 4, 5)),)))
    assert wrong(first) == [("DATA", "b", None)]
    assert ("DATA", "c", first[0].number) in wrong(second)
    assert any(one.request_id == "d" and one.because_of is not None for one in third)


def test_what_was_there_before_the_watch_is_unknown_and_never_wrong():
    watch = memory(is_running=True)
    assert watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 2, (1, 2)),))) == []
    assert watch.counts.unknown_reads == 1
    watch.record(StepRecord(2, (tokens("b", [7, 7], 0, (1,)),), ended=("a",)))
    assert len(watch.record(StepRecord(3, (tokens("c", [1, 2, 3], 2, (1, 4)),)))) == 1


@pytest.mark.parametrize("block", [-1, 8, 10**12])
def test_a_block_outside_the_pool_is_a_finding_and_the_request_is_followed_no_more(block):
    watch = memory()
    (found,) = watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1, block)),)))
    assert (found.invariant, found.block) == ("PLAN", block)
    assert watch.record(StepRecord(2, (tokens("a", [1, 2, 3, 4], 3, replaced=False),))) == []


def test_a_table_that_is_too_short_is_a_finding():
    (found,) = memory().record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1,)),)))
    assert (found.invariant, found.position) == ("PLAN", 2)


def test_a_block_that_two_requests_write_is_a_finding_before_they_meet_in_a_slot():
    watch = memory()
    watch.record(StepRecord(1, (tokens("a", [1], 0, (1,)),)))
    parts = (tokens("a", [1, 2], 1, replaced=False), tokens("b", [5], 0, (1,)))
    found = watch.record(StepRecord(2, parts))
    assert ("I2", "b", None) in wrong(found)


def test_a_block_that_is_free_and_used_is_a_finding():
    watch = memory()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1, 2)),)))
    watch.begin(freed=[1, 5])
    part = tokens("a", [1, 2, 3, 4], 3, replaced=False)
    watch.compute(watch._part_of(part))
    (found,) = watch.end()
    assert (found.invariant, found.blocks) == ("I2", (1,))


def test_who_goes_on_behind_what_it_has_not_computed_reads_it():
    watch = memory()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1, 2, 3)),)))
    part = tokens("a", [1, 2, 3, 4, 5], 4, replaced=False)
    (found,) = watch.record(StepRecord(2, (part,)))
    assert (found.invariant, found.position, found.written_in) == ("DATA", 3, None)


def test_groups_that_are_not_watched_are_passed_over():
    watch = LiveMemory(8, [None, CacheGroup()], [SIZE, SIZE], Digests(b"key"))
    assert watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (-7,), (1, 2)),))) == []
    (found,) = watch.record(StepRecord(2, (tokens("b", [9, 2, 3], 2, (), (1, 3)),)))
    assert found.group == 1


def test_what_a_connector_brings_is_unknown():
    watch = memory()
    watch.record(StepRecord(1, (tokens("a", [1, 2], 0, (1,)),)))
    watch.load(0, (1,), 0, 2)
    assert watch.record(StepRecord(2, (tokens("b", [8, 9, 3], 2, (1, 2)),), ended=("a",))) == []


def test_beyond_the_budget_reads_at_admissions_are_skipped_and_writes_are_followed():
    watch = memory()
    watch.stride = 4
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1, 2)),)))
    assert watch.record(StepRecord(2, (tokens("b", [9, 2, 3], 2, (1, 3)),))) == []
    assert watch.counts.skipped_reads == 1
    parts = (tokens("c", [5, 6], 0, (2,)), tokens("a", [1, 2, 3, 4], 3, replaced=False))
    assert ("DATA", "a", None) in wrong(watch.record(StepRecord(3, parts)))


def test_ended_requests_are_dropped():
    watch = memory()
    for number in range(1, 50):
        name = f"r{number}"
        step = StepRecord(number, (tokens(name, [1, 2, 3], 0, (1, 2)),), ended=(f"r{number - 1}",))
        assert watch.record(step) == []
    assert list(watch.requests) == ["r49"]
    assert sum(map(len, watch._holders.values())) == 2


def test_decoding_in_one_loop_says_what_computing_says():
    quick, slow = memory(), memory()
    for watch in (quick, slow):
        watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, (1, 2)),)))
    for end in range(4, 9):
        chain = list(range(1, end + 1))
        added = ([end],) if end % 2 else None
        part = tokens("a", chain, end - 1, *(added or ((),)), replaced=False)
        assert slow.record(StepRecord(end, (part,))) == []
        quick.requests["a"].tokens = chain
        quick.begin()
        assert quick.decode(["a"], [end - 1], [added], {"a": 1}, {}) == []
        assert quick.end() == []
    assert quick._slots == slow._slots
    assert quick._wrote == slow._wrote
    assert quick.counts == slow.counts
