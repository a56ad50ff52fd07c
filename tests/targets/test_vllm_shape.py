"""Classes in vLLM V1's shape that people wrote themselves, without vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolproof.contract.commands import (
    Allocate,
    Cache,
    CacheChain,
    Free,
    Lookup,
    LookupChain,
    Reset,
    Touch,
    Usage,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.target import TargetError, capabilities_of
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets import apart, vllm_target
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

TOY = Path(__file__).with_name("toy_pool.py")
KEYS = [bytes([number]) * 16 for number in range(4)]


def toy(name: str) -> Target:
    return load_target(f"{TOY}:{name}")


def run(target: Target, runs: int = 60) -> list[object]:
    campaign = PoolCampaign(
        name=target.name,
        make=target.make_chained or target.make,
        profile=target.profile,
        chain_block_size=target.block_size if target.make_chained else 0,
        hash_block_size=target.hash_block_size,
    )
    results = [campaign.run(number) for number in range(runs)]
    return [result.trace.violation for result in results if result.trace is not None]


def test_the_shape_is_found_and_the_profile_observed():
    target = toy("BlockPool")
    assert (target.level, target.shape) == ("pool", "vllm-v1")
    profile = target.profile
    assert (profile.eviction, profile.null_block, profile.events) == ("lru", 0, "none")
    assert (profile.recache, profile.null_in_lists, profile.keys) == (
        "forbidden",
        "ignored",
        "block",
    )
    assert any("eviction 'lru' was observed" in note for note in target.notes)
    assert any("written without vLLM" in note for note in target.notes)
    assert target.block_size == target.hash_block_size


@pytest.mark.parametrize("name", ["BlockPool", "NestedTouch", "NoGroups", "Wrapped"])
def test_a_right_pool_is_never_accused(name):
    assert run(toy(name)) == []


def test_what_is_missing_is_absent_and_not_faked():
    can = capabilities_of(toy("BlockPool").make(4, True))
    assert "evict" not in can.verbs
    assert "cache_partial" not in can.verbs
    assert "take_events" not in can.observers
    assert {"usage", "reset", "cache_chain", "lookup_chain"} <= can.verbs
    assert {"free_order", "free_neighbours", "ref_count", "block_hash"} <= can.observers


def test_without_groups_there_are_no_chains():
    target = toy("NoGroups")
    assert target.make_chained is None
    assert "cache_chain" not in capabilities_of(target.make(4, True)).verbs
    assert any("no cache groups" in note for note in target.notes)


def test_a_declared_profile_is_laid_over_the_shapes_own():
    target = toy("Reversed")
    assert (target.profile.eviction, target.profile.null_block) == ("lru", 0)
    violation = run(target)[0]
    assert violation.invariant == "ORD"


def test_an_override_is_laid_over_both():
    target = load_target(f"{TOY}:BlockPool[eviction=lifo]")
    assert target.profile.eviction == "lifo"
    assert target.companion_queue.name == f"{TOY}:FreeQueue"
    assert run(target)


@pytest.mark.parametrize("length", [8, 20, 32])
def test_hashes_of_one_length_are_given_with_and_without_tokens(length):
    target = load_target(f"{TOY}:BlockPool[hash_bytes={length}]")
    assert target.profile.hash_bytes == length
    seen = set()

    class Listens(vllm_target.VllmPool):
        def _find(self, block_hash, groups):
            seen.add(len(block_hash))
            return super()._find(block_hash, groups)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_target, "VllmPool", Listens)
        target = load_target(f"{TOY}:BlockPool[hash_bytes={length}]")
        assert run(target) == []  # token chains
        campaign = PoolCampaign(target.name, target.make, target.profile)
        assert [campaign.run(number).trace for number in range(20)] == [None] * 20
    assert seen == {length}


def test_tokens_are_not_hashed_to_so_few_bytes_that_they_collide():
    target = load_target(f"{TOY}:BlockPool[hash_bytes=4]")
    assert target.make_chained is None
    assert "hashes of 4 bytes collide by chance: token chains are not driven" in target.notes


def test_a_length_that_no_hash_has_is_refused():
    with pytest.raises(TargetError, match="'hash_bytes' must be 'any' or a number of bytes"):
        load_target(f"{TOY}:BlockPool[hash_bytes=0]")


def test_an_unknown_required_argument_is_named():
    with pytest.raises(TargetError) as caught:
        toy("NeedsMore")
    assert "NeedsMore.cache_full_blocks() needs 'tensor_parallel_rank'" in str(caught.value)


def test_missing_methods_are_named():
    with pytest.raises(TargetError) as caught:
        toy("Misses")
    assert "Misses lacks touch(), cache_full_blocks(), get_cached_block()" in str(caught.value)


def test_a_constructor_that_hangs_costs_a_guess_and_not_the_command(monkeypatch):
    monkeypatch.setattr(apart, "_SECONDS", 0.3)
    target = toy("Hangs")
    assert target.profile.eviction == "lru"
    assert any("is a guess" in note and "no end within" in note for note in target.notes)


def test_the_queue_stands_beside_the_pool_and_alone():
    beside = toy("BlockPool").companion_queue
    alone = toy("FreeQueue")
    assert beside.real_class.__name__ == alone.real_class.__name__ == "FreeQueue"
    for target in (beside, alone):
        queue = target.make(3, True)
        assert (target.level, queue.free_order(), queue.num_free()) == ("queue", [0, 1, 2], 3)
        queue.remove(1)
        assert queue.free_neighbours(1) is None
        assert queue.free_neighbours(0) == (None, 2)
        assert queue.popleft() == 0
        queue.append_n([1, 0])
        assert queue.free_order() == [2, 1, 0]
        assert queue.prepend_n is None


def test_commands_reach_the_pool_one_by_one():
    target = toy("BlockPool")
    session = PoolSession(target.make(6, True), target.profile, 6, block_size=target.block_size)
    chain = TokenChain((0, 0, 0, 1, 1, 1, 1, 0), salt="tenant")
    for command in (
        Allocate(3), CacheChain(chain, (1, 2), 0, 1), CacheChain(chain, (0, 3), 1, 0),
        LookupChain(chain, 8, (0, 1)), LookupChain(chain, 4, (0, 1)), Usage(), Free((2, 1, 3)),
        Lookup(chain.prefix(8, 1)), Touch((2, 0)), Allocate(9), Free((2,)), Reset(), Usage(),
    ):  # fmt: skip
        assert session.step(command) is None, command


def test_broken_links_look_broken():
    pool = toy("BlockPool").make(5, True)
    blocks = pool._blocks
    blocks[3].next_free_block = None
    assert pool.free_order() == [1, 2, 3]
    assert pool.free_neighbours(3) == (2, -1)
    blocks[3].next_free_block = pool._pool.free_block_queue.fake_free_list_head
    assert pool.free_neighbours(3) == (2, -1)


def test_an_endless_walk_ends():
    pool = toy("BlockPool").make(5, True)
    blocks = pool._blocks
    blocks[3].next_free_block = blocks[1]
    assert pool.free_order() == [1, 2, 3, 1, 2, 3]


def test_a_stale_hash_comes_back_as_it_is():
    target = toy("BlockPool")
    session = PoolSession(target.make(3, True), target.profile, 3)
    for command in (Allocate(1), Cache((1,), (KEYS[0],))):
        assert session.step(command) is None
    session.target._blocks[2].block_hash = (b"never given", 0)
    violation = session.step(Allocate(0))
    assert violation is not None


def test_an_id_without_a_block_is_refused_by_the_adapter():
    pool = toy("BlockPool").make(3, True)
    for block_id in (3, -1):
        with pytest.raises(ValueError, match="no block of this pool"):
            pool.free([block_id])


def test_no_blocks_list_is_said(tmp_path):
    path = tmp_path / "hidden.py"
    path.write_text(
        f"import sys; sys.path.insert(0, {str(TOY.parent)!r})\n"
        "from toy_pool import BlockPool\n"
        "class Hidden(BlockPool):\n"
        "    profile = {'eviction': 'lru', 'null_block': 0, 'events': 'none'}\n"
        "    def __init__(self, num_gpu_blocks, enable_caching, hash_block_size):\n"
        "        super().__init__(num_gpu_blocks, enable_caching, hash_block_size)\n"
        "        self._blocks = self.__dict__.pop('blocks')\n"
    )
    target = load_target(f"{path}:Hidden")
    with pytest.raises(TargetError, match="shows no list `blocks`"):
        target.make(3, True)


def test_the_probe_is_not_needed_where_all_is_declared(monkeypatch):
    monkeypatch.setattr(vllm_target, "apart", None)
    target = load_target(f"{TOY}:Hangs[eviction=lru,null_block=0,events=none]")
    assert target.profile.eviction == "lru"


def test_a_list_of_blocks_that_was_answered_must_not_change():
    target = toy("ReusesItsList")
    campaign = PoolCampaign(target.name, target.make, target.profile)
    found = [campaign.run(number).trace for number in (1, 17, 33)]
    assert all(trace is not None and trace.violation.invariant == "I2" for trace in found)
    assert "the list that get_new_blocks(" in found[0].violation.sentence
