"""SGLang's unified radix cache behind the contract, with and without a sliding window."""

from __future__ import annotations

import pytest

from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.load import load_target

pytestmark = pytest.mark.vllm

PROMPT = list(range(1, 14))


@pytest.fixture(scope="module")
def target():
    return load_target("sglang-unified")


def findings(target, layout, make=None, runs=20):
    chosen = target.layout(layout)
    campaign = ManagerCampaign(
        target.name, make or chosen.make, chosen.profile, chosen.block_size, 0
    )
    traces = [campaign.run(number).trace for number in range(runs)]
    return {trace.violation.invariant for trace in traces if trace is not None}


@pytest.mark.parametrize("layout", ["page-4", "page-4-window", "page-1", "page-1-window"])
def test_it_holds(target, layout):
    assert findings(target, layout) == set()


def computed(manager, seq_id, tokens):
    """A sequence that was admitted and computed; how much of it was cached."""
    cached = manager.admit(seq_id, tokens)
    manager.step([(seq_id, len(tokens) - cached)])
    return cached


def test_what_slid_out_of_a_window_is_free_and_a_hit_needs_the_window_alone(target):
    manager = target.layout("page-4-window").make(17, True)
    assert computed(manager, 0, PROMPT) == 0
    full, window = manager.block_table(0), manager.block_table(0, 1)
    assert 0 not in full
    assert (window[0], 0 in window[1:]) == (0, False)
    assert not set(full) & set(window)
    assert computed(manager, 1, PROMPT) == 12


def test_a_window_that_slides_too_far_is_found_out(target):
    chosen = target.layout("page-4-window")

    def make(num_blocks, enable_caching):
        manager = chosen.make(num_blocks, enable_caching)
        for part in manager._tree.components.values():
            part.sliding_window_size = 1
        return manager

    assert findings(target, "page-4-window", make)


def test_its_layouts_have_their_groups(target):
    with pytest.raises(TargetError, match="leave out groups="):
        load_target("sglang-unified[groups=full]")
