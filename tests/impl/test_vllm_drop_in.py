"""Poolproof's manager under vLLM's real schedulers: what they plan, and where vLLM's own stays."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import RunStep, Submit
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_session import EngineSession
from poolproof.targets.load import load_target
from poolproof.targets.vllm_engine import VllmEngine
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import CONNECTOR_SETUPS, SETUPS

pytestmark = pytest.mark.vllm

NAMES = [setup.name for setup in SETUPS]
# Those whose groups read everything: there vLLM keeps what we keep.
ALIKE = [setup.name for setup in SETUPS if all(group.kind == "full" for group in setup.groups)]


@pytest.fixture(scope="module")
def drop_in():
    from poolproof.impl import vllm_drop_in

    return vllm_drop_in


@pytest.fixture(scope="module")
def parts():
    """By set-up what builds schedulers, over vLLM's manager and over ours."""
    from poolproof.targets.vllm_drop_in_engine import DropInParts

    return {setup.name: (SchedulerParts(setup), DropInParts(setup)) for setup in SETUPS}


@pytest.fixture(scope="module")
def layouts():
    return {layout.name: layout for layout in load_target("vllm-drop-in").layouts}


def scheduler_of(parts, num_blocks=9, caching=True):
    return parts.make_scheduler(num_blocks, enable_caching=caching)


def served(parts, seed):
    """Every plan of a busy minute, the blocks that are free after it, and what users are given."""
    engine = VllmEngine(parts, 12, enable_caching=True)
    choose, told, in_flight = random.Random(seed), [], []
    number = 0
    for step in range(150):
        if len(engine.scheduler.requests) < 6 and step < 120:
            tokens = [choose.randrange(1, 3) for _ in range(choose.randint(1, 17))]
            engine.submit(
                number, tokens, max_new_tokens=choose.randint(1, 9), priority=choose.randrange(3)
            )
            number += 1
        if choose.random() < 0.04 and engine.scheduler.requests:
            engine.cancel(min(map(int, engine.scheduler.requests)))
        if choose.random() < 0.04:
            told.append(engine.reset())
        plan = engine.plan()
        told.append([(part.request_id, part.first, part.count) for part in plan.parts])
        told.append((plan.preempted, engine.num_free()))
        in_flight.append(plan)
        if len(in_flight) > choose.randrange(2):
            done = in_flight.pop(0)
            samples = {part.request_id: [choose.randrange(3)] for part in done.parts}
            told.append(engine.answer(samples, {}))
    return told


# What is planned.


@pytest.mark.parametrize("name", NAMES)
def test_no_set_up_without_a_connector_keeps_vllms_manager(parts, drop_in, name):
    for caching in (True, False):
        scheduler = scheduler_of(parts[name][1], caching=caching)
        assert isinstance(scheduler.kv_cache_manager, drop_in.DropInManager)


@pytest.mark.parametrize("name", ["fcfs", "fcfs+chunks", "adapters"])
@pytest.mark.parametrize("seed", range(6))
def test_it_is_scheduled_as_over_vllms_manager(parts, name, seed):
    own, ours = parts[name]
    assert served(own, seed) == served(ours, seed)


@pytest.mark.parametrize("name", NAMES)
def test_no_run_finds_anything(layouts, name):
    layout = layouts[name]
    campaign = EngineCampaign(name, layout.make, layout.profile, layout.block_size)
    for number in range(15):
        assert campaign.run(number).trace is None


def test_a_window_slides_only_over_what_no_step_in_flight_reads():
    from poolproof.targets.vllm_drop_in_engine import DropInParts
    from poolproof.targets.vllm_engine import vllm_engine_layout

    setup = next(setup for setup in SETUPS if setup.name == "sliding")
    setup = replace(setup, name="sliding+async", is_async=True)
    layout = vllm_engine_layout(setup, DropInParts(setup))
    campaign = EngineCampaign(setup.name, layout.make, layout.profile, layout.block_size)
    for number in range(30):
        assert campaign.run(number).trace is None


# As in tests/targets/test_vllm_engine.py, where vLLM's own manager reads what nobody computed.
A_LEAK = (
    Submit(0, TokenChain((1, 2) * 11 + (1,)), max_new_tokens=1, priority=2),
    RunStep(1, 0, 0),
    Submit(1, TokenChain((2, 2, 2, 2)), max_new_tokens=2, priority=0),
    *[RunStep(1, 0, 0)] * 4,
)


def test_a_request_that_is_preempted_in_its_own_pass_leaves_no_keys(layouts):
    layout = layouts["priority"]
    session = EngineSession(layout.make(8, True), layout.profile, 8, layout.block_size)
    assert [session.step(command) for command in A_LEAK] == [None] * len(A_LEAK)


# What else a scheduler asks.


@pytest.fixture
def busy(parts):
    """A request of ten tokens that runs, in blocks of four, and its scheduler."""
    engine = VllmEngine(parts["fcfs"][1], 9, enable_caching=True)
    engine.submit(0, [1] * 10, max_new_tokens=4)
    engine.plan()
    engine.answer({0: [1]}, {})
    return engine.scheduler


def test_tables_are_told_by_id(busy):
    manager = busy.kv_cache_manager
    (table,) = manager.get_block_ids("0")
    assert len(table) == 3
    assert manager.get_blocks("0").get_block_ids() == (table,)
    assert manager.get_blocks("0").get_block_ids(group_ids=[0]) == (table,)
    assert manager.get_blocks("nobody").get_block_ids(allow_none=True) is None
    assert manager.get_blocks("0").new_empty().get_block_ids() == ([],)


def test_cached_tokens_are_counted_to_the_end_of_the_last_cached_block(busy):
    manager = busy.kv_cache_manager
    assert manager.estimate_cached_tokens(busy.requests["0"]) == 8
    assert manager.estimate_cached_tokens(SimpleNamespace(request_id="nobody")) == 0


def test_blocks_whose_freeing_is_put_off_are_held_until_they_are_freed(busy):
    manager = busy.kv_cache_manager
    blocks = manager.pop_blocks_for_free(busy.requests["0"])
    assert (manager.block_pool.get_num_free_blocks(), manager.get_block_ids("0")) == (5, ([],))
    manager.block_pool.free_blocks(reversed(blocks))
    assert (manager.block_pool.get_num_free_blocks(), manager.usage) == (8, 0.0)


def test_evicted_blocks_are_found_no_more(busy):
    manager = busy.kv_cache_manager
    (table,) = manager.get_block_ids("0")
    request = busy.requests["0"]
    assert manager.get_computed_blocks(request)[1] == 8
    manager.evict_blocks({table[1]})
    assert manager.get_computed_blocks(request)[1] == 4


def test_a_request_that_reads_no_cache_finds_nothing(busy):
    request = busy.requests["0"]
    request.skip_reading_prefix_cache = True
    assert busy.kv_cache_manager.get_computed_blocks(request)[1:] == (0, 0)


def test_nothing_is_copied_zeroed_or_published_as_an_event(busy):
    manager = busy.kv_cache_manager
    assert manager.take_kv_cache_block_copies() == ([], [])
    assert (manager.take_new_block_ids(), manager.take_events()) == ([], [])
    assert manager.take_boundary_state_offloads() == {}


def test_observers_see_blocks(busy):
    pool = busy.kv_cache_manager.block_pool
    (table,) = busy.kv_cache_manager.get_block_ids("0")
    held = [block for block in pool.blocks if block.ref_cnt]
    assert {block.block_id for block in held} == set(table)
    assert [pool.blocks[block].block_hash is not None for block in table] == [True, True, False]
    assert [block.block_id for block in pool.blocks if block.is_null] == [pool.null_block.block_id]


def test_what_is_not_covered_is_refused(busy):
    with pytest.raises(NotImplementedError, match="encoder tokens, reserved blocks and zeroing"):
        busy.kv_cache_manager.allocate_slots(busy.requests["0"], 1, reserved_blocks=1)


def test_whoever_asks_the_coordinator_for_blocks_is_not_answered(busy):
    with pytest.raises(AttributeError):
        busy.kv_cache_manager.coordinator.allocate_new_blocks("0", 16, 16)


# Where vLLM's own manager stays.


@pytest.mark.parametrize("name", ["simple-cpu", "offloading"])
def test_with_a_connector_vllms_manager_stays(drop_in, caplog, name):
    parts = SchedulerParts(next(setup for setup in CONNECTOR_SETUPS if setup.name == name))
    parts.scheduler_class = drop_in.DropInScheduler
    caplog.set_level(logging.WARNING, "vllm.poolproof")
    log = logging.getLogger("vllm.poolproof")
    log.addHandler(caplog.handler)  # vLLM's loggers do not pass on what they are told
    try:
        scheduler = scheduler_of(parts)
    finally:
        log.removeHandler(caplog.handler)
    assert not isinstance(scheduler.kv_cache_manager, drop_in.DropInManager)
    assert "vLLM's KV cache manager stays: it has a KV connector" in caplog.text


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("kv_cache_manager.enable_kv_cache_events", True, "it publishes KV events"),
        ("kv_cache_manager.watermark_blocks", 2, "it keeps a watermark of free blocks"),
        ("kv_cache_manager.metrics_collector", object(), "it samples how long blocks stay"),
        ("dcp_world_size", 2, "the context is split over ranks"),
        ("hash_block_size", 2, "hashes are finer than blocks"),
        ("prefix_replay_tokens", 4, "it computes parts of hits again"),
        ("num_prefill_lookahead", 1, "it prefills ahead"),
        ("needs_kv_cache_zeroing", True, "blocks have to be zeroed"),
    ],
)
def test_the_reason_is_named(parts, drop_in, attribute, value, reason):
    scheduler = scheduler_of(parts["fcfs"][0])
    assert drop_in.reason_not_used(scheduler) is None
    *owner, name = attribute.split(".")
    setattr(scheduler.kv_cache_manager if owner else scheduler, name, value)
    assert drop_in.reason_not_used(scheduler) == reason


def test_another_kind_of_group_is_named(parts, drop_in):
    scheduler = scheduler_of(parts["fcfs"][0])

    class StrangeManager:
        block_size = 4

    scheduler.kv_cache_manager.coordinator.single_type_managers = (StrangeManager(),)
    assert drop_in.reason_not_used(scheduler) == "StrangeManager is not covered"


def test_a_release_with_a_method_that_nobody_here_knows_is_named(parts, drop_in, monkeypatch):
    scheduler = scheduler_of(parts["fcfs"][0])
    monkeypatch.setattr(drop_in.VllmManager, "compact", lambda _: None, raising=False)
    assert drop_in.reason_not_used(scheduler) == "this release of vLLM has compact"


def test_so_is_an_argument_of_a_method_that_is_known(parts, drop_in, monkeypatch):
    scheduler = scheduler_of(parts["fcfs"][0])
    monkeypatch.setattr(drop_in.VllmManager, "free", lambda self, request, tier: None)
    assert drop_in.reason_not_used(scheduler) == "this release of vLLM has free(tier)"


def test_a_release_without_something_that_is_asked_for_is_named(parts, drop_in):
    scheduler = scheduler_of(parts["fcfs"][0])
    del scheduler.prefix_replay_tokens
    assert "is another one" in drop_in.reason_not_used(scheduler)


def test_a_group_that_is_not_cached_and_a_drafter_of_some_groups_are_named(parts, drop_in):
    scheduler = scheduler_of(parts["full+sliding"][0])
    coordinator = scheduler.kv_cache_manager.coordinator
    coordinator.eagle_group_ids = {1}
    assert drop_in.reason_not_used(scheduler) == "a drafter reads some of its groups"
    coordinator.eagle_group_ids = {0, 1}
    assert drop_in.reason_not_used(scheduler) is None
    spec = SimpleNamespace(prefix_cacheable=False)
    coordinator.single_type_managers[0].kv_cache_spec = spec
    assert drop_in.reason_not_used(scheduler) == "a group is not cached"
