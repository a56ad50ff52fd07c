"""SGLang's radix cache behind the contract: it holds, and bugs planted into it are caught."""

from __future__ import annotations

from array import array

import pytest

from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.targets.load import load_target

pytestmark = pytest.mark.vllm

LORA = (("lora", ("a", "/a"), 0, None),)
OTHER_LORA = (("lora", ("a", "/b"), 0, None),)
SALT = (("salt", "s", 0, None),)
IMAGE = (("image", "p2", 1, 3),)
TOKENS = [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def target():
    return load_target("sglang")


def campaign(target, layout, seed=0):
    chosen = target.layout(layout)
    return ManagerCampaign(target.name, chosen.make, chosen.profile, chosen.block_size, seed)


def built(target, layout="page-4", num_blocks=6, *, caching=True):
    return target.layout(layout).make(num_blocks, caching)


def computed(manager, seq_id, tokens, **named):
    """A sequence that was admitted and computed; how much of it was cached."""
    cached = manager.admit(seq_id, tokens, **named)
    manager.step([(seq_id, len(tokens) - cached)])
    return cached


@pytest.mark.parametrize("layout", ["page-4", "page-4-sorted", "page-1", "page-1-sorted"])
def test_it_holds_and_every_situation_occurs(target, layout):
    runs, facts = campaign(target, layout), set()
    for number in range(60):
        result = runs.run(number)
        assert result.trace is None, (result.trace.violation, result.trace.commands)
        facts |= result.facts
    can = manager_capabilities_of(built(target, layout))
    assert facts >= set(required_manager_facts(runs.profile, can))


def test_a_run_is_the_same_when_it_is_repeated(target):
    first, second = (campaign(target, "page-4").run(3) for _ in range(2))
    assert (first.num_steps, first.facts) == (second.num_steps, second.facts)


def test_duplicates_of_one_step_are_merged(target):
    manager = built(target)
    for seq_id in (0, 1):
        assert manager.admit(seq_id, TOKENS) == 0
    before = manager.block_table(1)
    manager.step([(0, 5), (1, 5)])
    assert manager.block_table(1)[0] == manager.block_table(0)[0] != before[0]
    assert (manager.ref_count(before[0]), manager.ref_count(manager.block_table(0)[0])) == (0, 2)


def test_sampled_tokens_are_published_when_the_sequence_finishes(target):
    manager = built(target)
    computed(manager, 0, [1, 2, 3])
    manager.append(0, [4])
    manager.step([(0, 1)])
    assert manager.lookup_prefix(TOKENS) == 0
    manager.finish(0)
    assert manager.lookup_prefix(TOKENS) == 4


@pytest.mark.parametrize("end", ["preempt", "abort"])
def test_what_was_sampled_is_lost_with_an_aborted_or_retracted_sequence(target, end):
    manager = built(target)
    computed(manager, 0, [1, 2, 3])
    manager.append(0, [4])
    manager.step([(0, 1)])
    getattr(manager, end)(0)
    assert (manager.lookup_prefix(TOKENS), manager.num_free()) == (0, 6)


def test_a_sequence_that_ends_before_its_step_publishes_nothing(target):
    manager = built(target)
    manager.admit(0, TOKENS)
    manager.finish(0)
    assert (manager.lookup_prefix(TOKENS), manager.num_free()) == (0, 6)


def test_tokens_appended_together_are_published_after_their_step(target):
    manager = built(target)
    computed(manager, 0, [1, 2])
    manager.append(0, [3, 4])
    manager.step([(0, 2)])
    assert manager.lookup_prefix(TOKENS) == 4


def test_adapters_salts_and_images_are_kept_apart(target):
    manager = built(target, num_blocks=12)
    kinds = (None, LORA, OTHER_LORA, SALT, IMAGE)
    assert [computed(manager, i, TOKENS, extra_keys=keys) for i, keys in enumerate(kinds)] == [
        0
    ] * 5
    assert [manager.lookup_prefix(TOKENS, extra_keys=keys) for keys in kinds] == [4] * 5


def test_with_the_cache_off_nothing_is_found(target):
    manager = built(target, caching=False)
    computed(manager, 0, TOKENS)
    manager.finish(0)
    assert (manager.lookup_prefix(TOKENS), manager.num_free()) == (0, 6)


def test_a_refused_admission_unlocks_its_prefix(target):
    manager = built(target, num_blocks=3)
    computed(manager, 0, TOKENS)
    assert manager.admit(1, [*TOKENS[:4], 6, 6, 6, 6, 6]) == "later"
    assert manager.ref_count(manager.block_table(0)[0]) == 1


def test_refused_growth_takes_nothing(target):
    manager = built(target, num_blocks=1)
    assert manager.admit(0, [1, 2, 3, 4], num_tokens=3) == 0
    assert manager.schedule(0, 1) == []
    manager.step([(0, 4)])
    assert (manager.append(0, [5]), manager.append(0, [5, 6])) == ("later", "later")
    assert manager.block_table(0) == [0]
    other = built(target, num_blocks=1)
    other.admit(0, TOKENS, num_tokens=4)
    assert other.schedule(0, 1) == "later"


def test_reset_is_refused_while_anything_is_held(target):
    manager = built(target)
    computed(manager, 0, TOKENS)
    assert manager.reset() is False
    manager.finish(0)
    assert (manager.is_cached(0), manager.reset(), manager.is_cached(0)) == (True, True, False)


def test_an_extend_evicts_although_the_free_pages_suffice(target):
    """sglang#32217: it asks for one page more than it needs."""
    manager = built(target, num_blocks=3)
    computed(manager, 0, [1, 2, 3, 4])
    manager.finish(0)
    assert manager.lookup_prefix(TOKENS) == 4
    assert manager.admit(1, [7] * 5) == 0
    assert manager.lookup_prefix(TOKENS) == 0
    exact = load_target("sglang[retention=exact]")
    runs = campaign(exact, "page-4")
    found = next(t for n in range(20) if (t := runs.run(n).trace) is not None)
    assert found.violation.severity.value == "lost-hit"


def test_layouts_of_the_unified_tree_are_not_run(target):
    with pytest.raises(TargetError, match="certify sglang-unified"):
        target.layout("full+sliding")
    with pytest.raises(TargetError, match="one group"):
        load_target("sglang[groups=sliding:8]")


def radix(monkeypatch, name, change):
    from sglang.srt.mem_cache.radix_cache import RadixCache

    monkeypatch.setattr(RadixCache, name, change(getattr(RadixCache, name)))


def key(monkeypatch, name, change):
    from sglang.srt.mem_cache.radix_cache import RadixKey

    monkeypatch.setattr(RadixKey, name, change(getattr(RadixKey, name)))


def pages(monkeypatch, name, change):
    from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator

    cls = PagedTokenToKVPoolAllocator
    monkeypatch.setattr(cls, name, change(getattr(cls, name)))


def without_a_lock(lock):
    def locked(self, node):
        return lock(self, self.root_node)

    return locked


def losing_the_lock(split):
    def splitting(self, *arguments):
        node = split(self, *arguments)
        node.lock_ref = 0
        return node

    return splitting


def keeping_duplicates(insert):
    def inserted(self, *arguments, **named):
        allocator = self.token_to_kv_pool_allocator
        allocator.free_segment = lambda *_, **__: None
        try:
            return insert(self, *arguments, **named)
        finally:
            del allocator.free_segment

    return inserted


def leaving_the_row(checkpoint):
    def checkpointed(self, req, *, up_to):
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        before = row.clone()
        checkpoint(self, req, up_to=up_to)
        row.copy_(before)

    return checkpointed


def scattering_the_row(checkpoint):
    def checkpointed(self, req, *, up_to):
        checkpoint(self, req, up_to=up_to)
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        row[:up_to] = row[:up_to].flip(0)

    return checkpointed


def offering_what_is_locked(_):
    def updated(self, node):
        if any(not child.evicted for child in node.children.values()):
            self.evictable_leaves.discard(node)
        else:
            self.evictable_leaves.add(node)

    return updated


def without_namespaces(_):
    def child_key(self, offset, page_size=1):
        tokens = self.token_ids[offset : offset + page_size]
        return array("q", tokens).tobytes()

    return child_key


def freeing_twice(free):
    def freed(self, page_ids):
        free(self, page_ids)
        free(self, page_ids)

    return freed


@pytest.mark.parametrize(
    ("plant", "layout", "caught_as"),
    [
        ((radix, "inc_lock_ref", without_a_lock), "page-4", {"I1", "OWN"}),
        ((radix, "inc_lock_ref", without_a_lock), "page-1", {"I1", "OWN"}),
        ((radix, "_split_node", losing_the_lock), "page-4", {"OWN", "I1"}),
        ((radix, "_insert_cache", keeping_duplicates), "page-4-sorted", {"I1", "OWN", "LEAK"}),
        ((radix, "checkpoint", leaving_the_row), "page-4", {"I1", "OWN"}),
        ((radix, "checkpoint", scattering_the_row), "page-4", {"I2"}),
        ((radix, "_update_leaf_status", offering_what_is_locked), "page-4", {"I2", "I1", "OWN"}),
        ((key, "child_key_at", without_namespaces), "page-4", {"CRASH"}),
        ((pages, "free_page_ids", freeing_twice), "page-4", {"OWN"}),
    ],
)
def test_a_bug_planted_into_the_real_classes_is_caught(
    target, monkeypatch, plant, layout, caught_as
):
    where, name, change = plant
    where(monkeypatch, name, change)
    runs = campaign(target, layout, seed=3)
    traces = (runs.run(number).trace for number in range(60))
    trace = next(trace for trace in traces if trace is not None)
    assert trace.violation.invariant in caught_as, trace.violation
