"""vLLM 0.2.7's own block space manager under the harness: what holds, and what is refused."""

from __future__ import annotations

import pytest

from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.targets.load import load_target

pytestmark = pytest.mark.vllm


def traces(layout, runs):
    campaign = ManagerCampaign("vllm-v0", layout.make, layout.profile, layout.block_size)
    found = (campaign.run(number).trace for number in range(runs))
    return [trace for trace in found if trace is not None]


@pytest.mark.parametrize("name", ["full", "sliding-single"])
def test_the_engine_holds_where_it_is_right(name):
    """About 100,000 steps; forks, beams, swapping and the watermark where there is no window."""
    assert traces(load_target("vllm-v0").layout(name), 1000) == []


def test_forks_and_swaps_under_a_window_are_refused_with_three_commands():
    """vllm#1556: a count for each place in the ring, and a block freed once for each place."""
    layout = load_target("vllm-v0").layout("sliding")
    found = {}
    for trace in traces(layout, 20):
        smallest = minimise(trace, execute_in_process(layout.make))
        found[smallest.violation.invariant] = smallest
    assert set(found) == {"OWN", "CRASH"}
    assert [len(trace.commands) for trace in found.values()] == [3, 3]
    assert "shows a reference count of 3, but has 2 owners" in found["OWN"].violation.sentence
    assert "Double free!" in found["CRASH"].violation.sentence


def test_the_certificate_says_what_is_stubbed_and_what_is_not_driven():
    target = load_target("vllm-v0")
    assert target.version == "vllm 0.2.7"
    notes = "\n".join(target.notes)
    for word in ("torch", "psutil", "vllm._C.cuda_utils", "reset()"):
        assert word in notes
