"""Bugs of states behind drafts are refused in the layout where our own manager holds."""

import pytest

from poolproof.bugs.draft_state_bugs import DRAFT_STATE_BUGS, DRAFT_STATE_ODDITIES, LAYOUT
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import END_AMONG_DRAFTS
from poolproof.harness.replay import replay
from poolproof.targets.load import load_target
from poolproof.targets.manager_target import MANAGER_SHAPES

RUNS = 200


def campaign_of(cls):
    layout = MANAGER_SHAPES["vllm-v1-manager"].build(cls.__name__, cls, {}, None).layout(LAYOUT)
    return ManagerCampaign(cls.__name__, layout.make, layout.profile, layout.block_size)


@pytest.mark.parametrize("bug", DRAFT_STATE_BUGS.values(), ids=lambda bug: bug.id)
def test_it_is_refused_under_an_invariant_that_it_breaks(bug):
    campaign = campaign_of(bug.cls)
    found = (campaign.run(number).trace for number in range(RUNS))
    trace = next((trace for trace in found if trace is not None), None)
    assert trace is not None
    assert trace.violation.invariant in bug.invariants, trace.violation
    right = load_target("impl-manager").layout(LAYOUT)
    assert replay(trace, right.make).violation is None


@pytest.mark.parametrize("cls", DRAFT_STATE_ODDITIES, ids=lambda cls: cls.__name__)
def test_a_correct_look_alike_is_not_accused(cls):
    campaign = campaign_of(cls)
    results = [campaign.run(number) for number in range(60)]
    assert [result.trace for result in results if result.trace is not None] == []
    assert any(END_AMONG_DRAFTS in result.facts for result in results)
