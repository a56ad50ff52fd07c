"""`impl` and `reference`: the factories, the profiles, and both against the harness."""

from __future__ import annotations

import importlib.util

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.target import CHAIN_VERBS, capabilities_of
from poolproof.harness.random_driver import PoolCampaign
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.free_queue import FreeQueue
from poolproof.targets.catalogue import catalogue
from poolproof.targets.load import BUILT_INS, load_target
from poolproof.targets.target import Target

PROFILES = [
    "",
    "[eviction=unhashed-first,null_block=0,null_in_lists=ignored,recache=forbidden]",
    "[eviction=lifo,duplicates=first,events=per-hash]",
    "[duplicates=last,misuse=ignores,null_block=0]",
    "[misuse=undefined,keys=partial,recache=forbidden]",
    "[keys=partial]",
    "[events=none]",
    "[hash_bytes=1]",
    "[hash_bytes=32,duplicates=first]",
]
CHAIN = TokenChain((0, 0, 0, 1, 1, 1, 1, 0), ("adapter", "/a"), "tenant", (Image("cat", 3, 2),))


def violations(target: Target, runs: int = 40) -> list[object]:
    plain = PoolCampaign(name=target.name, make=target.make, profile=target.profile)
    chained = PoolCampaign(
        name=target.name,
        make=target.make_chained,
        profile=target.profile,
        chain_block_size=target.block_size,
        hash_block_size=target.hash_block_size,
    )
    results = [plain.run(number) for number in range(runs)]
    results += [chained.run(number) for number in range(1, 2 * runs, 2)]
    return [result.trace.violation for result in results if result.trace is not None]


@pytest.mark.parametrize("profile", PROFILES)
# The state machines drive the reference under every two rows.
@pytest.mark.some(3)
@pytest.mark.parametrize("name", ["impl", pytest.param("reference", marks=pytest.mark.deep)])
def test_every_profile_holds(name, profile):
    assert violations(load_target(name + profile)) == []


@pytest.mark.some(1)
@pytest.mark.parametrize("profile", ["[eviction=unspecified]", "[retention=may-drop]"])
def test_the_reference_takes_rows_that_impl_has_not(profile):
    assert violations(load_target(f"reference{profile}")) == []


def test_nothing_of_a_built_in_is_assumed():
    for name in ("impl", "reference"):
        profile = load_target(name).profile
        assert profile.assumed == ()
        assert (profile.eviction, profile.duplicates, profile.misuse) == ("lru", "kept", "raises")
        assert profile.events == "per-copy"


@pytest.mark.parametrize("name", ["impl", "reference"])
def test_the_index_beside_a_built_in_has_the_hashes_of_the_pool(name):
    index = load_target(f"{name}[hash_bytes=20]").part_at("index")
    assert index.profile.hash_bytes == 20
    assert load_target(index.name).profile == index.profile
    assert load_target(name).part_at("index").name == f"{name}-index"


def test_the_native_factory_of_impl_gives_the_bare_pool():
    pool = load_target("impl[eviction=lifo]").make(3, True)
    assert type(pool) is BlockPool
    assert pool.profile["eviction"] == "lifo"
    assert "cache_chain" not in capabilities_of(pool).verbs


def test_the_chained_factory_of_impl_leaves_the_pools_methods_alone():
    pool = load_target("impl[keys=partial]").make_chained(3, True)
    for method in ("allocate", "touch", "free", "cache", "evict", "reset", "num_free"):
        assert getattr(type(pool), method) is getattr(BlockPool, method)
    assert set(CHAIN_VERBS) <= capabilities_of(pool).verbs
    plain = capabilities_of(load_target("impl[keys=block]").make_chained(3, True)).verbs
    assert "cache_partial" not in plain


def test_impl_shows_contents():
    pool = load_target("impl[keys=partial]").make_chained(4, True)
    blocks = pool.allocate(2)
    pool.cache_chain(CHAIN, blocks, 0, 1)
    assert [pool.block_hash(block) for block in blocks] == [CHAIN.prefix(4, 1), CHAIN.prefix(8, 1)]
    assert pool.lookup(CHAIN.prefix(8, 1)) == blocks[1]
    assert pool.lookup(CHAIN.prefix(8, 0)) is None
    assert pool.lookup_chain(CHAIN, 4, [1]) == [blocks[0]]
    assert pool.lookup_chain(CHAIN, 4, [0, 1]) is None
    assert pool.lookup_chain(CHAIN, 3, [1]) is None
    assert [event["hashes"] for event in pool.take_events()] == [
        [CHAIN.prefix(4, 1)], [CHAIN.prefix(8, 1)],
    ]  # fmt: skip
    pool.cache_partial(CHAIN, blocks[0], 2, 1)
    assert pool.lookup(CHAIN.prefix(2, 1)) == blocks[0]


def test_an_override_of_the_null_block():
    target = load_target("impl[null_block=0,null_in_lists=ignored]")
    assert target.profile.null_block == 0
    assert target.make(4, True).allocate(3) == [1, 2, 3]
    assert load_target("impl[null_block=None]").profile.null_block is None


def test_companion_queues():
    queue = load_target("impl").companion_queue
    assert type(queue.make(3, True)) is FreeQueue
    for name in ("impl", "reference"):
        target = load_target(name).companion_queue
        assert load_target(target.name).real_class is target.real_class
        assert capabilities_of(target.make(3, True)).level == "queue"


def test_the_reference_queue_keeps_its_profiles_promise():
    raising = load_target("reference-queue").make(2, True)
    with pytest.raises(ValueError, match="is queued already"):
        raising.append(0)
    ignoring = load_target("reference-queue[misuse=ignores]").make(2, True)
    ignoring.append(0)
    ignoring.remove(7)
    assert ignoring.popleft_n(3) == []
    assert (ignoring.free_order(), ignoring.free_neighbours(1)) == ([0, 1], (0, None))


def test_the_catalogue_lists_every_built_in():
    rows = {row.name: row for row in catalogue()}
    assert set(rows) == set(BUILT_INS)
    assert rows["impl"].available
    assert rows["vllm"].available == (importlib.util.find_spec("vllm") is not None)
    assert rows["vllm"].available or "make vllm" in rows["vllm"].how
