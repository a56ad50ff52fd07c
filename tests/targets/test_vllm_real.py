"""The adapter over the real vLLM: nothing papered over, nothing legal accused."""

from __future__ import annotations

import pytest

from poolproof.contract.commands import (
    Allocate,
    CacheChain,
    CachePartial,
    Command,
    Free,
    Lookup,
    LookupChain,
    Touch,
    Usage,
)
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.target import capabilities_of
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.random_driver import PoolCampaign
from poolproof.reference.dict_queue import DictQueue
from poolproof.targets.load import load_target
from poolproof.targets.target import Target
from poolproof.targets.vllm_requests import vllm_requests

pytestmark = pytest.mark.vllm

TOKENS = (0, 0, 0, 1, 1, 1, 1, 0)
PLAIN = TokenChain(TOKENS)
KEYED = TokenChain(TOKENS, ("adapter", "/a"), "tenant", (Image("cat", 3, 2),))


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target("vllm")


def session_of(target: Target, *commands: Command, num_blocks: int = 6) -> PoolSession:
    pool = target.make(num_blocks, True)
    session = PoolSession(pool, target.profile, num_blocks, block_size=target.block_size)
    for command in commands:
        assert session.step(command) is None, command
    return session


def test_profile_and_version(target):
    profile = target.profile
    assert (profile.null_block, profile.eviction, profile.events) == (
        0,
        "unhashed-first",
        "per-copy",
    )
    assert (profile.recache, profile.keys, profile.misuse) == ("forbidden", "partial", "undefined")
    assert "0.32" in target.version
    assert "block_pool.py" in target.source
    assert (target.block_size, target.hash_block_size) == (4, 2)
    assert any("metrics_collector" in note for note in target.notes)


def test_everything_is_seen(target):
    can = capabilities_of(target.make(3, True))
    assert len(can.observers) == 5
    assert {"cache_chain", "lookup_chain", "cache_partial", "usage", "evict", "reset"} <= can.verbs


@pytest.mark.parametrize("chain_block_size", [0, 4])
def test_no_false_accusation(target, chain_block_size):
    campaign = PoolCampaign(
        name="vllm",
        make=target.make,
        profile=target.profile,
        seed=7,
        chain_block_size=chain_block_size,
        hash_block_size=target.hash_block_size,
    )
    traces = [campaign.run(number).trace for number in range(300)]
    assert [trace for trace in traces if trace is not None] == []


def test_real_hashes_and_extra_keys_pass_through(target):
    session = session_of(
        target, Allocate(4), CacheChain(PLAIN, (1, 2), 0, 0), CacheChain(KEYED, (3, 4), 0, 0)
    )
    pool = session.target
    request = pool._requests[KEYED]
    assert type(request).__module__ == "vllm.v1.request"
    assert (request.lora_request.lora_name, request.cache_salt) == ("adapter", "tenant")
    assert request.mm_features[0].mm_position.offset == 3
    assert pool._blocks[3].block_hash[:-4] == request.block_hashes[1]
    assert pool.block_hash(3) == KEYED.prefix(4, 0)
    assert pool.lookup(KEYED.prefix(8, 0)) == 4
    assert pool.lookup(PLAIN.prefix(8, 0)) == 2


def test_groups_and_null_blocks(target):
    session = session_of(
        target,
        Allocate(3),
        CacheChain(PLAIN, (0, 1), 0, 1),
        LookupChain(PLAIN, 8, (0,)),
        LookupChain(PLAIN, 8, (0, 1)),
        CacheChain(PLAIN, (2, 3), 1, 0),
        LookupChain(PLAIN, 8, (0, 1)),
        Touch((0, 1)),
        Free((0, 1, 1)),
        Usage(),
    )
    assert session.target.lookup_chain(PLAIN, 8, [1, 0]) == [1, 3]
    assert session.target.lookup_chain(PLAIN, 4, [0]) is None
    assert session.target.lookup_chain(PLAIN, 3, [0]) is None


def test_a_partial_entry_and_its_promotion(target):
    session = session_of(target, Allocate(1), CachePartial(PLAIN, 1, 2, 0))
    pool = session.target
    assert pool.block_hash(1) == PLAIN.prefix(2, 0)
    assert session.step(CacheChain(PLAIN, (1,), 0, 0)) is None
    assert pool.block_hash(1) == PLAIN.prefix(4, 0)
    assert pool.lookup(PLAIN.prefix(2, 0)) is None
    assert session.step(CachePartial(PLAIN, 1, 2, 0)) is None
    assert (pool.lookup(PLAIN.prefix(2, 0)), pool.block_hash(1)) == (1, PLAIN.prefix(4, 0))
    for command in (Free((1,)), Lookup(PLAIN.prefix(2, 0)), Touch((1,)), Free((1,)), Allocate(5)):
        assert session.step(command) is None


def test_events_name_contents(target):
    pool = target.make(4, True)
    block = pool.allocate(1)
    pool.cache_chain(KEYED, block, 0, 1)
    pool.evict(block)
    pool.free(block)
    pool.reset()
    key = KEYED.prefix(4, 1)
    assert pool.take_events() == [
        {
            "type": "stored", "hashes": [key], "group": 1,
            "parent": None, "tokens": [0, 0, 0, 1], "block_size": 4,
            "extra_keys": [[("lora", "adapter"), ("image", "cat", 3), ("salt", "tenant")]],
        },
        {"type": "removed", "hashes": [key], "group": 1},
        {"type": "cleared", "hashes": [], "group": 0},
    ]  # fmt: skip
    assert pool.take_events() == []


@pytest.mark.parametrize("images", [(), (Image("cat", 3, 2),)])
def test_a_request_that_grows_has_the_hashes_of_one_that_does_not(target, images):
    chain = TokenChain((*TOKENS[:-1], 1), images=images)
    # The seed of all hashes is drawn when either of them is made.
    whole_of, grown_of = vllm_requests(2), vllm_requests(2, grow=True)
    whole, grown = whole_of(chain), grown_of(chain)
    assert (whole.num_output_tokens, grown.num_output_tokens) == (0, 3 if images else 4)
    assert grown.block_hashes == whole.block_hashes
    assert len(grown.block_hashes) == 4


def test_shortened_hashes_in_events_are_not_judged(target, monkeypatch):
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1")
    shortened = load_target("vllm")
    assert (shortened.profile.events, target.profile.events) == ("none", "per-copy")
    assert any("EVT is not checked" in note for note in shortened.notes)
    assert "take_events" not in capabilities_of(shortened.make(3, True)).observers


def test_extra_keys_that_collide_are_seen(target, monkeypatch):
    """As when adapter and salt were hashed without saying which is which (vllm#44701)."""
    from vllm.v1.core import kv_cache_utils

    monkeypatch.setattr(kv_cache_utils, "_gen_lora_extra_hash_keys", lambda request: [])
    session = session_of(target, Allocate(2), CacheChain(PLAIN, (1,), 0, 0))
    adapter = TokenChain(TOKENS, ("adapter", "/a"))
    violation = session.step(CacheChain(adapter, (2,), 0, 0))
    assert violation.invariant == "DATA"
    assert "only the adapter differs" in violation.sentence


def test_a_collision_is_seen_by_lookup_too(target, monkeypatch):
    from vllm.v1.core import kv_cache_utils

    monkeypatch.setattr(
        kv_cache_utils, "generate_block_hash_extra_keys", lambda *arguments: (None, 0)
    )
    session = session_of(target, Allocate(2), CacheChain(PLAIN, (1,), 0, 0))
    assert session.step(LookupChain(KEYED, 4, (0,))).invariant == "DATA"


def test_a_hash_that_is_not_stable_is_seen(target, monkeypatch):
    from vllm.v1.core import kv_cache_utils

    session = session_of(target, Allocate(2), CacheChain(PLAIN, (1,), 0, 0))
    monkeypatch.setattr(kv_cache_utils, "NONE_HASH", b"another seed")
    longer = TokenChain((*TOKENS, 1, 1))
    violation = session.step(LookupChain(longer, 4, (0,)))
    assert violation.invariant == "IDX"
    assert "one content has two block hashes" in violation.sentence


def test_misuse_reaches_the_real_code(target):
    """vLLM leaves it undefined; whoever drives it must see what really happens."""
    pool = target.make(4, True)
    assert pool.allocate(-1) == []
    assert pool.num_free() == 4, "the counter was raised"
    assert pool.allocate(3) == [1, 2, 3]
    assert -1 in pool.allocate(1), "the queue's sentinel was handed out"

    pool = target.make(4, True)
    pool.free([2])
    assert pool.ref_count(2) == -1
    block = pool.allocate(1)
    pool.free(block * 2)
    assert pool.ref_count(block[0]) == -1


def test_a_corrupted_queue_can_still_be_read(target):
    pool = target.make(4, True)
    first = pool.allocate(1)
    pool.free(first)
    pool._pool.free_block_queue.append(pool._blocks[first[0]])
    assert len(pool.free_order()) <= 5
    assert pool.num_free() == 4
    for block in range(4):
        pool.free_neighbours(block)


def test_refusals_and_caching_off(target):
    pool = target.make(3, False)
    with pytest.raises(ValueError, match="3 free blocks"):
        pool.allocate(3)
    blocks = pool.allocate(2)
    pool.cache(blocks, [bytes(16), bytes(16)])
    pool.cache_chain(PLAIN, blocks, 0, 0)
    assert pool.block_hash(blocks[0]) is None
    assert pool.lookup(PLAIN.prefix(4, 0)) is None


def test_the_same_class_by_its_module(target):
    named = load_target("vllm.v1.core.block_pool:BlockPool")
    assert named.real_class is target.real_class
    assert named.profile == target.profile
    assert "0.32" in named.version
    assert named.companion_queue.real_class is target.companion_queue.real_class
    assert load_target(named.companion_queue.name).level == "queue"


def test_a_fork_is_read_with_real_requests(target, tmp_path):
    path = tmp_path / "fork.py"
    path.write_text(
        "from vllm.v1.core.block_pool import BlockPool\n"
        "class Fork(BlockPool):\n"
        "    def free_blocks(self, ordered_blocks):\n"
        "        blocks = list(ordered_blocks)\n"
        "        for block in blocks:\n"
        "            block.ref_cnt -= 1\n"
        "        self.free_block_queue.append_n(\n"
        "            [b for b in blocks if b.ref_cnt == 0 and not b.is_null])\n"
    )
    fork = load_target(f"{path}:Fork")
    assert fork.profile.eviction == "lru"
    assert not any("without vLLM" in note for note in fork.notes)
    session = session_of(fork, Allocate(1), Touch((1,)))
    violation = session.step(Free((1, 1)))
    assert violation is not None, "the same block was queued twice"


def test_the_real_queue(target):
    queue_target = target.companion_queue
    assert queue_target.name == "vllm-queue"
    assert load_target("vllm-queue").real_class is queue_target.real_class
    queue, model = queue_target.make(5, True), DictQueue(5)
    for verb, *arguments in (
        ("popleft",), ("popleft_n", 2), ("remove", 4), ("append", 4), ("append_n", [0, 2]),
        ("prepend_n", [1]), ("popleft_n", 0),
    ):  # fmt: skip
        assert getattr(queue, verb)(*arguments) == getattr(model, verb)(*arguments)
        order = list(model.order)
        assert (queue.free_order(), queue.num_free()) == (order, len(order))
        links = dict(
            zip(order, zip([None, *order[:-1]], [*order[1:], None], strict=True), strict=True)
        )
        assert [queue.free_neighbours(block) for block in range(5)] == [
            links.get(block) for block in range(5)
        ]
    for _ in range(5):
        queue.popleft()
    with pytest.raises(ValueError, match="No free blocks"):
        queue.popleft()
