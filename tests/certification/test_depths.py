"""What a depth gives to each of the layouts and set-ups of a target."""

import pytest

from poolproof.certification.depths import BUDGETS, RUNS_PER_CHUNK
from poolproof.certification.run_kinds import layout_kind
from poolproof.contract.depth import Depth
from poolproof.contract.level import Level
from poolproof.targets.vllm_engine_setups import SETUPS

QUICK = BUDGETS[Depth.QUICK]


def test_a_rare_leak_is_reached_at_quick_however_many_set_ups_there_are():
    kind = layout_kind(Level.ENGINE, "priority")
    # The run in which vLLM's priority leak is found and cut to six commands is among the first 300.
    assert QUICK.chunks_of_layout(kind, len(SETUPS)) * RUNS_PER_CHUNK >= 300


@pytest.mark.parametrize("level", [Level.MANAGER, Level.ENGINE])
def test_more_layouts_never_get_more_each_and_never_nothing(level):
    each = [QUICK.chunks_of_layout(layout_kind(level, "any"), count) for count in range(1, 60)]
    assert each == sorted(each, reverse=True)
    assert each[-1] >= 1
