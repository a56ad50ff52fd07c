"""Bugs of hits that end inside a block are refused in the layout where our own manager holds."""

import pytest

from poolproof.bugs.inside_block_bugs import INSIDE_BLOCK_BUGS, INSIDE_BLOCK_ODDITIES, LAYOUT
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.replay import replay
from poolproof.targets.load import load_target
from poolproof.targets.manager_target import MANAGER_SHAPES

RUNS = 200


def layout_of(cls):
    shape = MANAGER_SHAPES["vllm-v1-manager"]
    return shape.build(cls.__name__, cls, {}, None).layout(LAYOUT)


@pytest.mark.some(3)
@pytest.mark.parametrize("bug", INSIDE_BLOCK_BUGS.values(), ids=lambda bug: bug.id)
def test_it_is_refused_under_an_invariant_that_it_breaks(bug):
    layout = layout_of(bug.cls)
    campaign = ManagerCampaign(bug.id, layout.make, layout.profile, layout.block_size)
    found = (campaign.run(number).trace for number in range(RUNS))
    trace = next((trace for trace in found if trace is not None), None)
    assert trace is not None
    assert trace.violation.invariant in bug.invariants, trace.violation
    right = load_target("impl-manager").layout(LAYOUT)
    assert replay(trace, right.make).violation is None


@pytest.mark.parametrize("cls", INSIDE_BLOCK_ODDITIES, ids=lambda cls: cls.__name__)
def test_a_correct_look_alike_is_not_accused(cls):
    layout = layout_of(cls)
    campaign = ManagerCampaign(cls.__name__, layout.make, layout.profile, layout.block_size)
    results = [campaign.run(number) for number in range(60)]
    assert [result.trace for result in results if result.trace is not None] == []
    assert any("a hit ended inside a block" in result.facts for result in results)
