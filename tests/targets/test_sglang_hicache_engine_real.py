"""SGLang's tier in host memory behind the engine shape: it holds, and planted bugs are found."""

from __future__ import annotations

import importlib

import pytest

from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.targets.load import load_target

pytestmark = pytest.mark.vllm

CACHE = "sglang.srt.mem_cache"
PROMPT = list(range(1, 18))


@pytest.fixture(scope="module")
def target():
    return load_target("sglang-hicache-engine")


@pytest.fixture(scope="module")
def classes(target):
    """The engine's classes in which bugs are planted."""
    components = importlib.import_module(f"{CACHE}.unified_cache.components")
    controllers = importlib.import_module(f"{CACHE}.hybrid_cache.hybrid_cache_controller")
    cores = importlib.import_module(f"{CACHE}.unified_cache.unified_tree_core")
    return {
        "tree": importlib.import_module(f"{CACHE}.unified_radix_cache").UnifiedRadixCache,
        "core": cores.UnifiedTreeCore,
        "full": components.FullComponent,
        "controller": controllers.HybridCacheController,
    }


def findings(target, layout, make=None, runs=60, seed=0):
    """The invariants that so many runs find broken, at most one in each run."""
    chosen = target.layout(layout)
    campaign = EngineCampaign(
        target.name, make or chosen.make, chosen.profile, chosen.block_size, seed
    )
    traces = [campaign.run(number).trace for number in range(runs)]
    return {trace.violation.invariant for trace in traces if trace is not None}


def stepped(engine, num_steps=1, token=5, arrives=True):
    """Steps that are planned and answered; their copies end in between, unless told otherwise."""
    outputs = []
    for _ in range(num_steps):
        plan = engine.plan()
        if arrives:
            for transfer in plan.transfers:
                if not transfer.waits:
                    engine.arrived(transfer.transfer_id, True)
        outputs += engine.answer({part.request_id: [token] for part in plan.parts}, {})
    return outputs


LAYOUTS = (
    "write-through",
    "write-through+overlap+chunks",
    "write-through+overlap+small-host",
    "write-through+page-1",
    "selective+overlap",
    "write-back",
    "write-back+overlap+chunks",
    "write-back+overlap+small-host",
)


def test_these_set_ups_are_driven(target):
    assert tuple(layout.name for layout in target.layouts) == LAYOUTS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_holds(target, layout):
    assert findings(target, layout, runs=30) == set()


def ends_store_lock_at_once(monkeypatch, tree, **_classes):
    track = tree._track_write_through_node

    def tracked(self, node_id, lock_params, publish_node_ids):
        if lock_params is not None:
            self.dec_lock_ref(node_id, lock_params)
        track(self, node_id, None, publish_node_ids)

    monkeypatch.setattr(tree, "_track_write_through_node", tracked)


def takes_every_copy_as_done(monkeypatch, tree, **classes):
    does_not_stand_still_for_a_write_back(monkeypatch, **classes)
    monkeypatch.setattr(tree, "_count_ready_acks", lambda _self, queue: len(queue))


def does_not_stand_still_for_a_write_back(monkeypatch, **_classes):
    copies = importlib.import_module("poolproof.targets.sglang_hicache_parts").TierCopies
    monkeypatch.setattr(copies, "wait_for", staticmethod(lambda _copies: None))


def starts_a_load_and_does_not_wait(monkeypatch, tree, **_classes):
    ready = tree.ready_to_load_host_cache

    def ready_without_consumer(self):
        ready(self)
        return -1

    monkeypatch.setattr(tree, "ready_to_load_host_cache", ready_without_consumer)


def gives_a_parent_the_wrong_half(monkeypatch, full, **_classes):
    split = full.redistribute_on_node_split

    def swapped(self, new_parent, child):
        split(self, new_parent, child)
        above = new_parent.component_data[self.component_type]
        below = child.component_data[self.component_type]
        if above.host_value is not None and len(above.host_value) == len(below.host_value):
            above.host_value, below.host_value = below.host_value, above.host_value

    monkeypatch.setattr(full, "redistribute_on_node_split", swapped)


def locks_nothing_for_a_request(monkeypatch, tree, **_classes):
    monkeypatch.setattr(tree, "lock", lambda *_arguments, **_named: None)


def gives_up_host_pages_that_a_load_reads(monkeypatch, core, **_classes):
    def can_reclaim(self, node):
        data = node.component_data[self.components[0].component_type]
        return data.value is not None and data.host_value is not None

    monkeypatch.setattr(core, "_can_reclaim_full_host_duplicate", can_reclaim)


def pairs_the_slots_in_another_order(monkeypatch, controller, **_classes):
    move = controller.move_hybrid_indices

    def reversed_pages(self, operation, **named):
        host, device, pools = move(self, operation, **named)
        pages = host.reshape(-1, self.page_size).flip(0)
        return pages.reshape(-1), device, pools

    monkeypatch.setattr(controller, "move_hybrid_indices", reversed_pages)


PLANTED = {
    ends_store_lock_at_once: "write-through",
    takes_every_copy_as_done: "write-through",
    does_not_stand_still_for_a_write_back: "write-back",
    starts_a_load_and_does_not_wait: "write-through",
    gives_a_parent_the_wrong_half: "write-through",
    locks_nothing_for_a_request: "write-through",
    gives_up_host_pages_that_a_load_reads: "write-back+overlap+small-host",
    pairs_the_slots_in_another_order: "selective+overlap",
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(target, classes, monkeypatch, plant):
    plant(monkeypatch, **classes)
    assert "DATA" in findings(target, PLANTED[plant])


def changed(chosen, change):
    """A maker of engines, each of which is changed once it is built."""

    def make(num_blocks, enable_caching):
        engine = chosen.make(num_blocks, enable_caching)
        change(engine)
        return engine

    return make


def test_a_load_that_does_not_wait_for_the_steps_in_flight_is_found(target):
    def unfenced(engine):
        engine._tree.cache_controller.load_fence_stream = None

    name = "write-back+overlap+chunks"
    assert findings(target, name, changed(target.layout(name), unfenced)) == {"DATA"}


def test_a_reset_that_keeps_the_tree_is_found(target):
    def keeping(engine):
        engine._tree.reset = lambda: None

    name = "write-through"
    assert findings(target, name, changed(target.layout(name), keeping))


def store_after_a_stop(engine):
    """The store of a request that ends while the step behind its last token is in flight."""
    engine.submit(0, PROMPT[:7], max_new_tokens=9)
    engine.plan()
    engine.plan()
    engine.answer({0: [5]}, {})
    engine.plan()
    engine.answer({0: [0]}, {})
    (store,) = engine.plan().transfers
    return store


def test_a_store_waits_for_the_step_that_writes_its_last_token(target):
    assert store_after_a_stop(target.layout("write-through+overlap+chunks").make(8, True)).follows


def test_without_its_fence_it_does_not(target):
    engine = target.layout("write-through+overlap+chunks").make(8, True)
    engine._tree.cache_controller.write_fence_stream = None
    assert not store_after_a_stop(engine).follows


def evicted_to_the_host(engine):
    """A prompt of four pages is computed and stored, and another one takes its pages."""
    engine.submit(0, PROMPT, max_new_tokens=1)
    stepped(engine, 3)
    engine.submit(1, list(range(101, 130)), max_new_tokens=1)
    stepped(engine, 3)


def test_a_prompt_that_is_in_host_memory_alone_is_loaded_for_its_step(target):
    engine = target.layout("write-through").make(9, True)
    evicted_to_the_host(engine)
    engine.submit(2, PROMPT, max_new_tokens=1)
    plan = engine.plan()
    loads = [transfer for transfer in plan.transfers if transfer.is_load]
    assert [(load.waits, len(load.blocks)) for load in loads] == [(True, 4)]
    (part,) = plan.parts
    assert (part.first, part.count) == (16, 1)
    assert part.blocks[0][:4] == loads[0].blocks


def test_what_is_evicted_under_write_back_is_over_before_its_pages_are_written(target):
    engine = target.layout("write-back").make(9, True)
    engine.submit(0, PROMPT, max_new_tokens=1)
    stepped(engine, 3)
    engine.submit(1, list(range(101, 130)), max_new_tokens=1)
    plan = engine.plan()
    stored = {page for transfer in plan.transfers for page in transfer.blocks}
    assert stored & set(plan.parts[0].blocks[0])
    assert {transfer.transfer_id for transfer in plan.transfers} == set(plan.flushes)


def test_under_selective_a_prefix_is_stored_when_it_comes_again(target):
    engine = target.layout("selective+overlap").make(16, True)
    told = []
    for number in range(2):
        engine.submit(number, PROMPT, max_new_tokens=1)
        plans = []
        for _ in range(4):
            plan = engine.plan()
            plans.append(plan)
            if len(plans) > 1:
                engine.answer({part.request_id: [5] for part in plans[-2].parts}, {})
        engine.answer({}, {})
        told.append(sum(len(plan.transfers) for plan in plans))
    assert told[0] == 0
    assert told[1] > 0


def test_a_running_request_is_computed_once_more_after_its_cancel(target):
    engine = target.layout("write-through").make(9, True)
    engine.submit(0, PROMPT, max_new_tokens=9)
    assert stepped(engine) == [(0, [5], False)]
    engine.cancel(0)
    assert [part.request_id for part in engine.plan().parts] == [0]
    assert engine.answer({0: [5]}, {}) == []
    assert engine.unfinished() == []


def test_a_cancelled_prompt_gives_its_chunks_back(target):
    engine = target.layout("write-through+overlap+chunks").make(9, True)
    engine.submit(0, list(range(1, 26)), max_new_tokens=1)
    engine.plan()
    engine.cancel(0)
    assert engine.plan().parts == ()
    assert engine.answer({}, {}) == []
    assert engine.answer({}, {}) == []
    assert engine.unfinished() == []
    assert engine.num_free() == 9


def test_a_reset_is_refused_until_the_last_copy_is_acknowledged(target):
    engine = target.layout("write-through").make(9, True)
    engine.submit(0, PROMPT, max_new_tokens=1)
    stepped(engine)
    store = engine.plan().transfers[0]
    engine.answer({}, {})
    assert not engine.reset()
    engine.arrived(store.transfer_id, True)
    assert not engine.reset()
    stepped(engine)
    assert engine.reset()
    engine.submit(1, PROMPT, max_new_tokens=1)
    assert engine.plan().parts[0].first == 0


def test_every_path_between_the_tiers_is_taken(target, classes, monkeypatch):
    seen, tree_class = set(), classes["tree"]
    for name in ("_demote", "evict_host", "_drop_subtree_no_host", "load_back"):
        method = getattr(tree_class, name)

        def noting(self, *arguments, _method=method, _name=name, **named):
            done = _method(self, *arguments, **named)
            seen.add(_name) if done or _name == "_demote" else None
            return done

        monkeypatch.setattr(tree_class, name, noting)
    assert findings(target, "write-back+overlap+small-host", runs=60) == set()
    assert seen == {"_demote", "evict_host", "_drop_subtree_no_host", "load_back"}


def test_rows_in_brackets_are_refused():
    with pytest.raises(TargetError, match="its set-ups state all rows; choose one with --layout"):
        load_target("sglang-hicache-engine[max_running=3]")


def test_a_request_is_ended_while_the_pages_it_needs_are_being_stored(target):
    """docs/engines.md tells which lines of the scheduler decide so."""
    engine = target.layout("write-through").make(8, True)
    engine.submit(0, [1, 2, 3, 4], max_new_tokens=13)
    stepped(engine, 2, arrives=False)
    engine.submit(1, [6], max_new_tokens=18)
    outputs = stepped(engine, 17, arrives=False)
    assert (1, [], True) in outputs
