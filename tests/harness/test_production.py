"""The sizes of servers: which sizes runs have, which hashes, and what their commands reach."""

from __future__ import annotations

import zlib
from functools import reduce
from itertools import pairwise

import pytest

from poolproof.certification.depths import BUDGETS
from poolproof.contract.commands import Allocate, Cache, Free, Touch
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.harness.choices import SeededChoices
from poolproof.harness.extent import Extent
from poolproof.harness.pool_production import ProductionWorkload
from poolproof.harness.production import ProductionSizes, size_near_a_border
from poolproof.harness.production_hashes import hashes_that_look_alike
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.reference.dict_pool import DictPool
from poolproof.targets.load import load_target

SMALL = ProductionSizes(20, 2, 2_000, 600, 400)


@pytest.mark.parametrize("length", [4, 5, 8, 16, 33, 64])
def test_hashes_of_a_run_are_different_and_of_one_length(length):
    hashes = hashes_that_look_alike(3_000, length, "a seed")
    assert len(hashes) == len(set(hashes)) == 3_000
    assert {len(key) for key in hashes} == {length}


def test_there_are_no_more_hashes_than_their_length_has():
    assert sorted(hashes_that_look_alike(9_999, 1, "a seed")) == [bytes([n]) for n in range(256)]


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(lambda key: key[:4], id="four bytes"),
        pytest.param(lambda key: key[:-1], id="all but the last byte"),
        pytest.param(lambda key: key[1:], id="all but the first byte"),
        pytest.param(lambda key: key[:9] + key[10:], id="all but one in the middle"),
        pytest.param(lambda key: key.split(b"\0")[0], id="up to a zero byte"),
        pytest.param(sum, id="the sum of the bytes"),
        pytest.param(lambda key: bytes(sorted(key)), id="the bytes in any order"),
        pytest.param(bytes.lower, id="case left out"),
        pytest.param(bytes.rstrip, id="blanks left out"),
        pytest.param(lambda key: int.from_bytes(key, "big") & 0xFFFFFFFF, id="the last 32 bits"),
        pytest.param(lambda key: key[:-4], id="the cache group left out"),
        pytest.param(zlib.crc32, id="CRC-32"),
        pytest.param(zlib.adler32, id="Adler-32"),
        pytest.param(lambda key: int.from_bytes(key, "big") % (2**61 - 1), id="hash of a number"),
        pytest.param(lambda key: reduce(lambda h, b: h * 31 + b, key), id="a polynomial, base 31"),
        pytest.param(lambda key: frozenset((key[:8], key[8:])), id="a set of words"),
    ],
)
def test_some_hashes_of_a_run_are_alike_in_any_part(part):
    hashes = hashes_that_look_alike(1_200, 16, "a seed")
    assert len({part(key) for key in hashes}) < len(hashes)


def test_sizes_crowd_around_the_powers_of_two():
    choices = SeededChoices("sizes")
    sizes = [size_near_a_border(choices, 4_096) for _ in range(4_000)]
    assert min(sizes) == 1
    assert max(sizes) == 4_096
    assert {255, 256, 257, 1_023, 1_025, 2_047} <= set(sizes)
    assert sum(size % 2 for size in sizes) > len(sizes) / 2


@pytest.mark.parametrize("depth", ["quick", "standard", "deep"])
def test_each_level_reaches_the_sizes_that_it_promises(depth):
    sizes = BUDGETS[depth].production
    runs = [sizes.run(0, number) for number in range(sizes.num_runs)]
    blocks = [run.num_blocks for run in runs]
    assert min(blocks) == 1
    assert set(range(1, 17)) <= set(blocks)
    assert max(blocks) == (70_000 if depth == "deep" else 4_096)
    assert max(run.num_steps for run in runs) >= {"quick": 10_000}.get(depth, 70_000)
    assert max(run.most_references for run in runs) > (65_535 if depth == "deep" else 4_096)
    assert {4, 16, 64} <= {run.hash_bytes for run in runs}
    assert max(run.events_every for run in runs) > 1_000


@pytest.mark.parametrize("seed", range(4))
def test_quick_meets_sizes_of_every_kind_between_the_small_and_the_largest(seed):
    sizes = BUDGETS["quick"].production
    blocks = sorted({sizes.run(seed, number).num_blocks for number in range(sizes.num_runs)})
    between = [size for size in blocks if size > 130]
    assert any(size % 1_000 == 0 for size in between)
    assert any(size & (size + 1) == 0 for size in between)
    assert any(all(size % d for d in range(2, 65)) for size in between)
    steps = [larger / smaller for smaller, larger in pairwise([130, *between, 4_096])]
    assert max(steps) < 1.6


def test_every_run_belongs_to_one_group_and_long_ones_are_alone():
    sizes = ProductionSizes(50, 2, 1_000, 600, 400, wide_runs=30, steady_runs=1)
    groups = sizes.groups(24)
    assert sorted(number for group in groups for number in group) == list(range(sizes.num_runs))
    assert [len(g) for g in groups if sizes.place_of_long(g.start) is not None] == [1, 1]
    assert [sizes.run(0, g.start).is_steady for g in groups].count(True) == 1


def test_standard_meets_hashes_of_every_length():
    sizes = BUDGETS["standard"].production
    lengths = {sizes.run(0, number).hash_bytes for number in range(sizes.num_runs)}
    assert lengths == set(range(4, 65))


def test_what_was_taken_back_for_misuse_at_the_end_of_a_run_gives_its_references():
    pool = DictPool(8)
    can = capabilities_of(load_target("impl").make(8, True))
    workload = ProductionWorkload(SeededChoices("it"), pool, can, [b"hash"], SMALL.run(0, 7))
    pool.allocate(2)
    workload.put_back(Free((0, 1)))
    assert workload.drain() == Free((0, 1))
    assert workload.drain() is None


def test_ids_that_no_block_has_are_of_either_sign_and_fit_an_int32():
    pool = DictPool(40)
    can = capabilities_of(load_target("reference").make(40, True))
    workload = ProductionWorkload(SeededChoices("ids"), pool, can, [b"hash"], SMALL.run(0, 7))
    ids = [workload._outside() for _ in range(400)]
    assert all(block < 0 or block >= 40 for block in ids)
    assert {-40, 2**31 - 1} & set(ids)
    assert min(ids) >= -(2**31)
    assert 2**31 - 41 <= max(ids) < 2**31


def test_a_run_follows_from_seed_and_number():
    assert SMALL.run(3, 7) == SMALL.run(3, 7)
    assert SMALL.run(3, 7) != SMALL.run(4, 7)


def extent_and_facts(campaign):
    extent, facts = Extent(), set()
    for number in range(SMALL.num_runs):
        run = campaign.run(number)
        assert run.trace is None
        extent.take_in(run.extent)
        facts |= run.facts
    return extent, facts


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["impl", "impl[eviction=lifo]", "reference[duplicates=first]"])
def test_a_right_pool_holds_and_its_runs_reach_far(name):
    target = load_target(name)
    campaign = PoolCampaign(name, target.make, target.profile, production=SMALL)
    extent, facts = extent_and_facts(campaign)
    assert extent.get("blocks") == (1, 600)
    assert extent.get("blocks in one allocation")[1] >= 600
    assert extent.get("entries in one list")[1] >= 400
    assert extent.get("references to one block")[1] >= 400
    assert extent.get("commands in a run")[1] >= 2_000
    assert "an allocation evicted a cached block" in facts
    assert "a block had more than 255 owners" in facts


def test_a_right_queue_holds_and_its_runs_reach_far():
    target = load_target("impl-queue")
    extent, _ = extent_and_facts(QueueCampaign("impl-queue", target.make, production=SMALL))
    assert extent.get("blocks") == (1, 600)
    assert extent.get("blocks in one allocation")[1] == 600


def test_an_extent_counts_what_was_applied():
    campaign = PoolCampaign("it", load_target("impl").make, Profile())
    setup = campaign.setup(0)
    commands = [Allocate(3), Cache((0, 1), (b"aaaa", b"bb")), Touch((0,) * 7), Free((0,))]
    assert dict(Extent.of_run(setup, commands)) == {
        "blocks": (setup.num_blocks, setup.num_blocks),
        "commands in a run": (4, 4),
        "blocks in one allocation": (3, 3),
        "entries in one list": (7, 7),
        "hashes": (2, 2),
        "bytes of a hash": (2, 4),
        "commands between readings of events": (1, 1),
    }
