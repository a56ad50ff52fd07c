"""vLLM's connectors with recurrent layers: what is held, what is refused, what would be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolproof.contract.trace import read_trace
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.replay import start_session
from poolproof.targets.vllm_hybrid_connector_setups import HYBRID_CONNECTOR_SETUPS
from poolproof.targets.vllm_hybrid_connectors import vllm_hybrid_connector_layouts

pytestmark = pytest.mark.vllm

FINDINGS = Path(__file__).resolve().parents[2] / "docs" / "findings"
MOVES = {"a load arrived", "a store arrived"}


@pytest.fixture(scope="module")
def layouts():
    setups = tuple(one for one in HYBRID_CONNECTOR_SETUPS if not one.draft_tokens)
    return {layout.name: layout for layout in vllm_hybrid_connector_layouts(setups)}


def runs_of(layout, number):
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    return [campaign.run(place) for place in range(number)]


def first_found(layout, most=60):
    """The first violation of a campaign; None where it finds none."""
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    runs = map(campaign.run, range(most))
    return next((run.trace.violation for run in runs if run.trace is not None), None)


@pytest.mark.parametrize(
    "name",
    [
        "simple-cpu",
        "simple-cpu+lazy",
        "simple-cpu+async",
        "simple-cpu+mamba2",
        "faults+late",
        "faults+late+fail",
    ],
)
def test_what_a_connector_does_with_states_is_right(layouts, name):
    results = runs_of(layouts[name], 20)
    assert [result.trace for result in results if result.trace is not None] == []
    assert set().union(*(result.facts for result in results)) >= MOVES


@pytest.mark.parametrize(
    "name", ["offloading", "offloading+async", "offloading+chunks-of-2", "tiering", "faults+sync"]
)
def test_a_connector_that_is_refused_moves_states_as_well(layouts, name):
    facts = set().union(*(result.facts for result in runs_of(layouts[name], 20)))
    assert facts >= MOVES


def test_a_load_that_a_step_waits_for_is_let_in_where_it_has_no_room(layouts):
    trace = read_trace(FINDINGS / "vllm-hybrid-waited-load.jsonl")
    session = start_session(trace, layouts[trace.options["layout"]].make)
    *before, last = [session.step(command) for command in trace.commands]
    assert before == [None] * len(before)
    assert last is not None
    assert "free blocks from the pool" in last.sentence


def starts_wrongly(violation):
    assert violation is not None
    return violation.invariant == "DATA" and "starts at position" in violation.sentence


def test_states_that_are_stored_under_the_keys_of_each_other_are_seen(layouts, monkeypatch):
    from vllm.v1.core.kv_cache_utils import get_group_id
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler as Manager

    right = Manager._process_store_completion

    def swapped(self, gpu, cpu, meta=None):
        blocks, cpu = self._gpu_block_pool.blocks, list(cpu)
        states = [n for n, number in enumerate(gpu) if get_group_id(blocks[number].block_hash)]
        if states:
            first, last = states[0], states[-1]
            cpu[first], cpu[last] = cpu[last], cpu[first]
        return right(self, gpu, cpu, meta)

    monkeypatch.setattr(Manager, "_process_store_completion", swapped)
    assert starts_wrongly(first_found(layouts["simple-cpu"]))


def test_a_state_under_a_longer_key_is_seen(layouts, monkeypatch):
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
        OffloadingConnectorScheduler as Scheduler,
    )

    right = Scheduler._make_boundary_key

    def longer(self, request, group, boundary, context):
        further = boundary + 4 if boundary + 4 <= request.num_tokens else boundary
        return right(self, request, group, further, context)

    monkeypatch.setattr(Scheduler, "_make_boundary_key", longer)
    assert starts_wrongly(first_found(layouts["offloading"]))


def test_a_state_that_is_stored_before_it_is_computed_is_seen(layouts, monkeypatch):
    """What is handed over is right once its step is computed, and the load may come before."""
    from poolproof.targets.vllm_connector_workers import FaultWorker

    right = FaultWorker.begin

    def early(self, step, metadata, number):
        moves = right(self, step, metadata, number)
        for place, one in enumerate(moves.transfers):
            if not one.is_load and one.waits:
                moves.transfers[place] = one.__class__(
                    one.transfer_id, False, False, one.blocks, one.places
                )
                moves.flushes.append(one.transfer_id)
        return moves

    monkeypatch.setattr(FaultWorker, "begin", early)
    assert starts_wrongly(first_found(layouts["faults+late"]))


def test_a_request_that_goes_on_before_its_state_is_there_is_seen(layouts, monkeypatch):
    from vllm.v1.core.sched.scheduler import Scheduler

    right = Scheduler._handle_blocked_waiting_request

    def early(self, request):
        if request.request_id in self._waited_once:
            self.finished_recving_kv_req_ids.add(request.request_id)
        self._waited_once.add(request.request_id)
        return right(self, request)

    told = Scheduler._update_from_kv_xfer_finished

    def ignoring(self, output):
        waiting = {
            name
            for name, request in self.requests.items()
            if request.status.name == "WAITING_FOR_REMOTE_KVS"
        }
        output.finished_recving = (output.finished_recving or set()) & waiting
        return told(self, output)

    monkeypatch.setattr(Scheduler, "_update_from_kv_xfer_finished", ignoring)
    monkeypatch.setattr(Scheduler, "_waited_once", set(), raising=False)
    monkeypatch.setattr(Scheduler, "_handle_blocked_waiting_request", early)
    assert starts_wrongly(first_found(layouts["faults+late"]))


def test_a_state_behind_the_last_token_of_a_hit_is_seen(layouts, monkeypatch):
    """As in vllm#44599: the hit is a token shorter than the prompt, and its state is not."""
    from vllm.distributed.kv_transfer.kv_connector.v1.offloading import scheduler

    monkeypatch.setattr(scheduler, "resolve_mamba_align_size", lambda *_: None)
    assert starts_wrongly(first_found(layouts["offloading"]))
