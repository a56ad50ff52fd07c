"""The tier behind vLLM's host: what is asked once, and whose copy a store may change."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace

import pytest

from poolproof.targets.vllm_connector_workers import OffloadingWorker
from poolproof.targets.vllm_tier_worker import TieringWorker

pytestmark = pytest.mark.vllm

SLOW = b"\x00slow"
QUICK = b"\x01quick"
FIRST, SECOND = SimpleNamespace(req_id="first"), SimpleNamespace(req_id="second")


@pytest.fixture
def tier():
    # Imported here: the module takes vLLM's own base class.
    from poolproof.targets.vllm_fault_tier import FaultTier

    return FaultTier(
        offloading_spec=None, primary_kv_view=memoryview(bytearray(4)), tier_type="faults"
    )


@pytest.fixture
def worker(tier):
    return TieringWorker(OffloadingWorker(SimpleNamespace, blocks_per_chunk=1), tier)


def answers(tier, key, request, times):
    return [tier.lookup(key, request).name for _ in range(times)]


def test_of_some_keys_the_tier_says_only_when_asked_again_whether_it_has_them(tier):
    assert answers(tier, QUICK, FIRST, 2) == ["MISS", "MISS"]
    assert answers(tier, SLOW, FIRST, 2) == ["RETRY", "MISS"]


def test_what_was_said_is_said_at_once_while_a_request_lives_that_asked(tier):
    answers(tier, SLOW, FIRST, 2)
    assert answers(tier, SLOW, SECOND, 1) == ["MISS"]
    tier.on_request_finished(FIRST)
    assert answers(tier, SLOW, FIRST, 3) == ["MISS", "MISS", "MISS"]


def test_a_key_is_asked_anew_once_nobody_lives_who_asked(tier):
    answers(tier, SLOW, FIRST, 2)
    tier.on_request_finished(FIRST)
    assert answers(tier, SLOW, SECOND, 2) == ["RETRY", "MISS"]


def job(block, chunk, *, is_load):
    device = SimpleNamespace(block_ids=[block], group_sizes=[1], block_indices=[0])
    host = SimpleNamespace(block_ids=[chunk])
    source, destination = (host, device) if is_load else (device, host)
    return SimpleNamespace(req_id="first", src_spec=source, dst_spec=destination)


def step(worker, numbers, *, load_jobs=None, store_jobs=None):
    told = SimpleNamespace(load_jobs=load_jobs or {}, store_jobs=store_jobs or {}, jobs_to_flush=())
    return worker.begin(0, told, numbers.__next__).transfers


def tier_job(key, chunk, *, is_promotion):
    return SimpleNamespace(job_id=0, keys=[key], chunk_ids=[chunk], is_promotion=is_promotion)


def test_a_store_over_a_chunk_that_a_load_reads_is_what_the_load_may_find(worker):
    numbers = count()
    step(worker, numbers, store_jobs={0: job(1, 0, is_load=False)})
    worker.arrived(0, is_done=True)
    (load,) = step(worker, numbers, load_jobs={1: job(2, 0, is_load=True)})
    (store,) = step(worker, numbers, store_jobs={2: job(3, 0, is_load=False)})
    assert store.places == load.places


def test_a_store_over_a_promoted_chunk_leaves_the_copy_of_the_tier_alone(worker, tier):
    numbers = count()
    tier.kept[QUICK] = 7
    tier.submit_load(tier_job(QUICK, 0, is_promotion=True))
    step(worker, numbers)
    worker.arrived(0, is_done=True)
    (load,) = step(worker, numbers, load_jobs={1: job(2, 0, is_load=True)})
    (store,) = step(worker, numbers, store_jobs={2: job(3, 0, is_load=False)})
    assert load.places == (7,)
    assert store.places != (7,)
