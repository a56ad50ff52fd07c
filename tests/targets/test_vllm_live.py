"""Scheduler outputs of a live vLLM as step records; with stand-ins, without vLLM."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from poolproof.contract.content import Image
from poolproof.contract.target import TargetError
from poolproof.targets.vllm_live import StepReader, groups_of, scheduler_of, watch


def request(name, tokens, **fields):
    rest = {"lora_request": None, "cache_salt": None, "mm_features": [], **fields}
    return SimpleNamespace(request_id=name, all_token_ids=list(tokens), **rest)


def output(new=(), old=(), *, drafts=None, finished=(), preempted=(), copies=None):
    """`new` and `old`: (id, number of tokens, first, blocks[, resumed])."""
    told = SimpleNamespace(
        req_ids=[row[0] for row in old],
        num_computed_tokens=[row[2] for row in old],
        new_block_ids=[row[3] for row in old],
        resumed_req_ids={row[0] for row in old if len(row) > 4},
    )
    return SimpleNamespace(
        scheduled_new_reqs=[
            SimpleNamespace(req_id=row[0], num_computed_tokens=row[2], block_ids=row[3])
            for row in new
        ],
        scheduled_cached_reqs=told,
        num_scheduled_tokens={row[0]: row[1] for row in (*new, *old)},
        scheduled_spec_decode_tokens=drafts or {},
        finished_req_ids=set(finished),
        preempted_req_ids=set(preempted) or None,
        kv_cache_block_copies=copies,
    )


def test_a_new_request_comes_with_its_whole_table():
    reader, step = StepReader(), output(new=[("a", 3, 4, ([7, 8],))])
    reader.scheduled(step, {"a": request("a", range(7))})
    record = reader.finished(step)
    (part,) = record.computed
    assert (record.number, part.first, part.count, part.replaced) == (1, 4, 3, True)
    assert (part.blocks, part.chain.tokens) == (((7, 8),), tuple(range(7)))


def test_a_running_request_comes_with_what_is_added_and_a_resumed_one_with_all():
    reader = StepReader()
    step = output(old=[("a", 1, 4, None), ("b", 1, 0, ([3],), "resumed")])
    reader.scheduled(step, {"a": request("a", range(5)), "b": request("b", [1])})
    first, second = reader.finished(step).computed
    assert (first.blocks, first.replaced) == ((), False)
    assert (second.blocks, second.replaced) == (((3,),), True)


def test_adapter_salt_images_drafts_and_copies_are_told():
    keyed = request(
        "a", [1, 2],
        lora_request=SimpleNamespace(lora_name="x", lora_path="/x"),
        cache_salt="s",
        mm_features=[
            SimpleNamespace(identifier="cat", mm_position=SimpleNamespace(offset=0, length=2))
        ],
    )  # fmt: skip
    copies = [SimpleNamespace(src_block_id=1, dst_block_id=2)]
    step = output(new=[("a", 4, 0, ([1],))], drafts={"a": [8, 9]}, copies=copies)
    reader = StepReader()
    reader.scheduled(step, {"a": keyed})
    record = reader.finished(step)
    chain = record.computed[0].chain
    assert (chain.tokens, chain.lora, chain.salt) == ((1, 2, 8, 9), ("x", "/x"), "s")
    assert (chain.images, record.copies) == ((Image("cat", 0, 2),), ((1, 2),))


def test_tokens_are_taken_when_the_output_comes_back():
    """With asynchronous scheduling the next step is scheduled before they are known."""
    reader, running = StepReader(), request("a", [1, 2])
    first = output(new=[("a", 2, 0, ([1],))])
    second = output(old=[("a", 1, 2, None)])
    reader.scheduled(first, {"a": running})
    reader.scheduled(second, {"a": running})
    assert reader.finished(first).computed[0].chain.tokens == (1, 2)
    running.all_token_ids.append(5)
    assert reader.finished(second).computed[0].chain.tokens == (1, 2, 5)


def test_what_was_sampled_for_an_aborted_request_equals_nothing():
    reader = StepReader()
    step = output(new=[("a", 3, 0, ([1],)), ("b", 3, 0, ([2],))])
    reader.scheduled(step, {"a": request("a", [1]), "b": request("b", [1])})
    first, second = reader.finished(step).computed
    assert not {*first.chain.tokens[1:]} & {*second.chain.tokens[1:]}


def test_steps_without_an_output_are_passed_over_but_who_ended_is_kept():
    reader = StepReader()
    empty, step = output(finished=["a"]), output(preempted=["b"])
    reader.scheduled(empty, {})
    reader.scheduled(step, {})
    assert sorted(reader.finished(step).ended) == ["a", "b"]
    assert reader.finished(step) is None


class FullSpec:
    block_size = 2


class SlidingSpec:
    block_size, sliding_window = 2, 3


class ChunkedSpec:
    block_size, attention_chunk_size = 2, 4


@pytest.fixture
def interface(monkeypatch):
    """vLLM's module of kinds of groups."""
    module = ModuleType("vllm.v1.kv_cache_interface")
    module.FullAttentionSpec = FullSpec
    module.SlidingWindowSpec = SlidingSpec
    module.ChunkedLocalAttentionSpec = ChunkedSpec
    for name in ("vllm", "vllm.v1"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)


def config(*specs):
    groups = [SimpleNamespace(kv_cache_spec=spec()) for spec in specs]
    return SimpleNamespace(num_blocks=8, kv_cache_groups=groups)


def test_cache_groups_are_read(interface):
    groups, sizes = groups_of(config(FullSpec, SlidingSpec, ChunkedSpec))
    assert [(group.kind, group.window) for group in groups] == [
        ("full", 0),
        ("sliding", 3),
        ("chunked", 4),
    ]
    assert sizes == [2, 2, 2]


def test_groups_that_are_not_watched_are_named(interface):
    with pytest.raises(TargetError, match="cache groups of object are not watched"):
        groups_of(config(object))


class Scheduler:
    """What is wrapped of a scheduler."""

    def __init__(self, *outputs):
        self.kv_cache_manager = SimpleNamespace(kv_cache_config=config(FullSpec))
        self.requests = {"a": request("a", [1, 2, 3]), "b": request("b", [9, 2, 3])}
        self.outputs = list(outputs)
        self.updated = []

    def schedule(self, throttled=False):
        return self.outputs.pop(0)

    def update_from_output(self, output, runner_output):
        self.updated.append(runner_output)
        return "updated"


def test_a_watched_scheduler_goes_on_as_before_and_findings_are_reported(interface):
    reported = []
    scheduler = Scheduler(
        output(new=[("a", 3, 0, ([1, 2],))]), output(new=[("b", 1, 2, ([1, 3],))])
    )
    watched = watch(scheduler, reported.append)
    for _ in range(2):
        step = scheduler.schedule(throttled=True)
        assert scheduler.update_from_output(step, "output") == "updated"
    assert scheduler.updated == ["output", "output"]
    assert watched.findings == reported
    assert [finding.reader for finding in reported] == ["b"]
    assert watched.counts.steps == 2


def test_without_a_report_findings_are_kept(interface):
    scheduler = Scheduler(output(new=[("b", 1, 2, ([1, 3],))]))
    watched = watch(scheduler)
    step = scheduler.schedule()
    scheduler.update_from_output(step, "output")
    scheduler.update_from_output(step, "known already")
    assert len(watched.findings) == 1


def test_the_scheduler_of_an_engine_in_this_process_is_found():
    core = SimpleNamespace(scheduler="it")
    llm = SimpleNamespace(llm_engine=SimpleNamespace(engine_core=SimpleNamespace(engine_core=core)))
    assert scheduler_of(llm) == "it"


def test_an_engine_in_another_process_is_named():
    llm = SimpleNamespace(llm_engine=SimpleNamespace(engine_core=SimpleNamespace()))
    with pytest.raises(TargetError, match="VLLM_ENABLE_V1_MULTIPROCESSING=0"):
        scheduler_of(llm)
