"""Transformers' paged cache behind the contract: it holds, and bugs planted into it are caught."""

from __future__ import annotations

import pytest

from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.targets.load import load_target

pytestmark = pytest.mark.vllm

RUN = ("full", "full-sectors", "full+sliding", "sliding", "full+sliding-page-1", "sliding-page-1")
LORA = (("lora", ("a", "/a"), 0, None),)


@pytest.fixture(scope="module")
def target():
    return load_target("transformers")


def campaign(target, layout, seed=0):
    chosen = target.layout(layout)
    return ManagerCampaign(target.name, chosen.make, chosen.profile, chosen.block_size, seed)


def built(target, layout="full", num_blocks=6, *, caching=True):
    return target.layout(layout).make(num_blocks, caching)


def computed(manager, seq_id, tokens, **named):
    """A sequence that was admitted and computed; how much of it was cached."""
    cached = manager.admit(seq_id, tokens, **named)
    manager.step([(seq_id, len(tokens) - cached)])
    return cached


@pytest.mark.parametrize("layout", RUN)
def test_it_holds_and_every_situation_occurs(target, layout):
    runs, facts = campaign(target, layout), set()
    for number in range(60):
        result = runs.run(number)
        assert result.trace is None, (result.trace.violation, result.trace.commands)
        facts |= result.facts
    can = manager_capabilities_of(built(target, layout))
    assert facts >= set(required_manager_facts(runs.profile, can))


def test_a_run_is_the_same_when_it_is_repeated(target):
    first, second = (campaign(target, "full").run(3) for _ in range(2))
    assert (first.num_steps, first.facts) == (second.num_steps, second.facts)


def test_duplicates_of_one_step_are_merged(target):
    manager = built(target)
    for seq_id in (0, 1):
        assert manager.admit(seq_id, [1, 2, 3, 4, 5]) == 0
    before = manager.block_table(1)
    manager.step([(0, 5), (1, 5)])
    assert manager.block_table(1)[0] == manager.block_table(0)[0] != before[0]
    assert manager.ref_count(before[0]) == 0


def test_a_finished_prefix_is_found_until_the_room_is_needed(target):
    manager = built(target, num_blocks=2)
    computed(manager, 0, [1, 2, 3, 4, 5])
    manager.finish(0)
    assert (manager.num_free(), manager.lookup_prefix([1, 2, 3, 4, 9])) == (2, 4)
    assert manager.admit(1, [7] * 8) == 0
    assert manager.lookup_prefix([1, 2, 3, 4, 9]) == 0


def test_a_refused_admission_gives_its_pinned_prefix_back(target):
    manager = built(target, num_blocks=3)
    computed(manager, 0, [1, 2, 3, 4, 5])
    assert manager.admit(1, [1, 2, 3, 4, 6, 6, 6, 6, 6]) == "later"
    assert manager.ref_count(manager.block_table(0)[0]) == 1


def test_an_adapter_has_tokens_of_its_own(target):
    manager = built(target)
    computed(manager, 0, [1, 2, 3, 4, 5], extra_keys=LORA)
    assert manager.lookup_prefix([1, 2, 3, 4, 5]) == 0
    assert manager.lookup_prefix([1, 2, 3, 4, 5], extra_keys=LORA) == 4


def test_without_sharing_nothing_is_cached_and_forks_copy_everything(target):
    manager = built(target, caching=False)
    computed(manager, 0, [1, 2, 3, 4, 5])
    assert manager.lookup_prefix([1, 2, 3, 4, 5]) == 0
    assert len(manager.fork(0, 1)) == 2


def test_a_fork_evicts_what_is_only_cached(target):
    manager = built(target, num_blocks=3)
    computed(manager, 0, [1, 2, 3, 4])
    manager.finish(0)
    computed(manager, 1, [5, 6, 7, 8, 9])
    assert len(manager.fork(1, 2)) == 1
    assert manager.fork(1, 3) == "later"


def test_reset_is_refused_while_anything_is_held(target):
    manager = built(target)
    computed(manager, 0, [1, 2, 3, 4])
    assert manager.reset() is False
    manager.abort(0)
    assert manager.is_cached(next(b for b in range(6) if manager.is_cached(b)))
    assert manager.reset() is True
    assert not any(map(manager.is_cached, range(6)))


def test_a_sector_of_several_blocks_is_taken_apart(target):
    manager = built(target, "full-sectors", 8)
    manager.admit(0, [1, 2, 3, 4])
    assert (manager.num_free(), sorted(manager.free_order() + manager.block_table(0))) == (
        7, list(range(8)),
    )  # fmt: skip


def test_a_window_goes_round_over_the_same_blocks(target):
    manager = built(target, "sliding")
    computed(manager, 0, list(range(10)))
    first, second, third = manager.block_table(0)
    assert first == third != second


def test_layouts_that_are_not_run_say_why(target):
    with pytest.raises(TargetError, match="no multiple of the page"):
        target.layout("sliding-6")
    with pytest.raises(TargetError, match="chosen with --layout"):
        load_target("transformers[groups=full]")


def ledger(monkeypatch, name, change):
    from transformers.generation.continuous_batching.cache_allocators import cache_allocator

    cls = cache_allocator.BlockLedger
    monkeypatch.setattr(cls, name, change(getattr(cls, name)))


def allocator(monkeypatch, name, change):
    from transformers.generation.continuous_batching.cache_allocators import cache_allocator

    cls = cache_allocator.CacheAllocator
    monkeypatch.setattr(cls, name, change(getattr(cls, name)))


def ring(monkeypatch, name, change):
    from transformers.generation.continuous_batching import cache_allocators

    cls = cache_allocators.SlidingAttentionCacheAllocator
    monkeypatch.setattr(cls, name, change(getattr(cls, name)))


def uncounted(_):
    return lambda self, block: self.cached_blocks.pop(block, None)


def keeping_hashes(_):
    def evict(self):
        evicted = list(self.cached_blocks)
        self.cached_blocks.clear()
        return evicted

    return evict


def keeping_the_hash_of_what_is_freed(release):
    def released(self, block, no_cache=False):
        return self.shared_ref_counts.get(block, 1) == 1 if no_cache else release(self, block)

    return released


def copying_one_block_less(fork):
    def forked(self, *arguments):
        sources, destinations = fork(self, *arguments)
        return sources[:-1], destinations[:-1]

    return forked


def sharing_the_last_block(_):
    return lambda self, request_id, _: len(self.block_table[request_id])


def finding_everything(match):
    return lambda self, tokens: match(self, [*tokens, 0])


def counting_one_block_more(mark):
    return lambda self, request_id, tokens, count: mark(self, request_id, tokens, count + 1)


def losing_the_first_block(_):
    def free(self, request_id, no_cache=False):
        for block in self.block_table.pop(request_id, [])[1:]:
            if self.ledger.release(block, no_cache):
                self.pool.free_blocks(self.index, [block])

    return free


def one_slot_on(write):
    def written(self, request_id, past, count):
        return write(self, request_id, past + (past >= self.sliding_window), count)

    return written


def one_position_short(read):
    def given(self, request_id, past, count):
        slots = read(self, request_id, past, count)
        return slots[1:] + slots[-1:] if past >= self.sliding_window else slots

    return given


@pytest.mark.parametrize(
    ("plant", "layout", "caught_as"),
    [
        ((ledger, "acquire", uncounted), "full", {"OWN"}),
        ((ledger, "acquire", uncounted), "full+sliding", {"OWN"}),
        ((ledger, "evict_cached_blocks", keeping_hashes), "full", {"IDX", "I2", "CRASH"}),
        ((ledger, "release", keeping_the_hash_of_what_is_freed), "full", {"IDX", "I2", "OWN"}),
        ((allocator, "fork_blocks", copying_one_block_less), "sliding", {"I2"}),
        ((allocator, "count_shareable_blocks", sharing_the_last_block), "full", {"DATA"}),
        ((allocator, "match_prefix_blocks", finding_everything), "full", {"ADM"}),
        ((allocator, "mark_complete_blocks", counting_one_block_more), "full", {"IDX", "I2"}),
        ((allocator, "free_blocks", losing_the_first_block), "sliding", {"I1", "LEAK", "OWN"}),
        ((ring, "get_write_indices", one_slot_on), "sliding", {"I2"}),
        ((ring, "get_read_indices", one_position_short), "sliding", {"CRASH"}),
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
