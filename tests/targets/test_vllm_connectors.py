"""vLLM's connectors under the real scheduler: what they move, what is held, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolproof.contract.trace import read_trace
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.replay import start_session
from poolproof.targets.vllm_engine import vllm_engine_layouts
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import CONNECTOR_SETUPS

pytestmark = pytest.mark.vllm

FINDINGS = Path(__file__).resolve().parents[2] / "docs" / "findings"
MOVES = {"a load arrived", "a store arrived"}


@pytest.fixture(scope="module")
def layouts():
    return {layout.name: layout for layout in vllm_engine_layouts(CONNECTOR_SETUPS)}


def runs_of(layout, number):
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    return [campaign.run(place) for place in range(number)]


@pytest.mark.parametrize(
    "name",
    [
        "simple-cpu",
        "simple-cpu+async",
        "simple-cpu+lazy",
        "simple-cpu+lazy+async",
        "simple-cpu+sliding",
        "simple-cpu+async+drafts",
        "simple-cpu+ranks",
        "faults+late+async",
        "faults+late+fail",
        "faults+late+ranks",
        "faults+sync+fail",
    ],
)
def test_what_a_connector_moves_is_right(layouts, name):
    results = runs_of(layouts[name], 20)
    assert [result.trace for result in results if result.trace is not None] == []
    assert set().union(*(result.facts for result in results)) >= MOVES


@pytest.mark.parametrize(
    "name",
    [
        "offloading",
        "offloading+arc",
        "offloading+async",
        "offloading+chunks-of-2",
        "offloading+sliding",
        "offloading+async+drafts",
        "offloading+ranks",
        "faults+sync",
        "faults+late",
        "faults+late+priority",
        "example",
        "tiering",
        "tiering+arc+async",
        "multi+simple-cpu+offloading",
        "multi+offloading+simple-cpu",
        "multi+faults+offloading",
        "multi+simple-cpu+faults",
        "multi+faults+faults+async",
    ],
)
def test_a_connector_that_is_refused_moves_blocks_as_well(layouts, name):
    facts = set().union(*(result.facts for result in runs_of(layouts[name], 20)))
    assert facts >= MOVES


# Two resets with a store in flight; a block stored under the key of its former owner after a reset;
# a reservation that outlives its request's blocks; blocks that failed to load, taken as cached; a
# store from blocks into which another connector has loaded; one of a block that lost its key.
@pytest.mark.parametrize(
    ("name", "invariant"),
    [
        ("vllm-offloading-reset-1", "DATA"),
        ("vllm-offloading-reset-2", "CRASH"),
        ("vllm-failed-load-reservation", "LIVE"),
        ("vllm-failed-load-cached", "DATA"),
        ("vllm-multi-stale-store", "DATA"),
        ("vllm-simple-cpu-failed-load", "CRASH"),
    ],
)
def test_a_recorded_finding_shows_again(layouts, name, invariant):
    trace = read_trace(FINDINGS / f"{name}.jsonl")
    session = start_session(trace, layouts[trace.options["layout"]].make)
    *before, last = [session.step(command) for command in trace.commands]
    assert before == [None] * len(before)
    assert last is not None
    assert last.invariant == invariant


class _FirstIsEnough:
    """An aggregator that hands on what any rank says, and what it has stored for all of them."""

    def aggregate(self, outputs):
        whole, *others = outputs
        said = whole.kv_connector_output
        for other in (one.kv_connector_output for one in others):
            for name in ("finished_sending", "finished_recving"):
                ends = (getattr(said, name) or set()) | (getattr(other, name) or set())
                setattr(said, name, ends or None)
            said.kv_connector_worker_meta.stored += other.kv_connector_worker_meta.stored
        return whole


def test_a_rank_that_is_not_waited_for_is_found(layouts, monkeypatch):
    layout = layouts["faults+late+ranks"]
    assert [run for run in runs_of(layout, 40) if run.trace is not None] == []
    monkeypatch.setattr(SchedulerParts, "make_aggregator", lambda *_: _FirstIsEnough())
    found = [run.trace.violation for run in runs_of(layout, 40) if run.trace is not None]
    assert "DATA" in {violation.invariant for violation in found}


def test_the_example_connector_plans_from_before_the_first_token(layouts):
    engine = layouts["example"].make(9, True)
    firsts = []
    for number in range(2):
        engine.submit(number, [3], max_new_tokens=1)
        firsts += [part.first for part in engine.plan().parts]
        engine.answer({number: [1]}, {})
    assert firsts == [0, -4]
