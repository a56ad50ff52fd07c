"""The bugs that gave the manager level its name: few commands, and a sentence that says it all."""

import pytest

from poolproof.bugs.catalogue import manager_specimen
from poolproof.contract.violation import Severity
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import execute_in_process, minimise


def shortest_trace(name, invariant, num_runs):
    """The shortest of the minimal traces that these runs give."""
    found = manager_specimen(name)
    campaign = ManagerCampaign(name, found.make, found.profile, found.block_size)
    traces = [result.trace for result in map(campaign.run, range(num_runs)) if result.trace]
    failures = [trace for trace in traces if trace.violation.invariant == invariant][:4]
    assert failures, f"{name} was not caught by {invariant}"
    execute = execute_in_process(found.make)
    return min((minimise(trace, execute) for trace in failures), key=lambda t: len(t.commands))


@pytest.mark.some(1)
@pytest.mark.parametrize(("name", "num_runs"), [("D1-nano", 260), ("C13", 80)])
def test_nano_vllm_shows_one_request_reading_the_kv_of_another_prefix(name, num_runs):
    trace = shortest_trace(name, "DATA", num_runs)
    assert len(trace.commands) <= 8
    assert trace.violation.severity is Severity.WRONG_DATA_OF_ANOTHER
    assert "KV that was computed for" in trace.violation.sentence


def test_a_fork_in_a_ring_is_refused_for_its_reference_counts():
    trace = shortest_trace("A8-manager", "OWN", 8)
    assert len(trace.commands) <= 4
    assert "shows a reference count of" in trace.violation.sentence
