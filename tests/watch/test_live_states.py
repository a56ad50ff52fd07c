"""The watch's part for recurrent states: it says what the specification says, and more."""

from __future__ import annotations

import pytest

from poolproof.bugs.engine_specimen import BLOCK_SIZE
from poolproof.bugs.engine_state_bugs import ENGINE_STATE_BUGS
from poolproof.contract.manager_profile import CacheGroup
from poolproof.harness import engine_session
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.reference.step_oracle import StepOracle
from poolproof.targets.impl_engine import impl_engine_layouts
from poolproof.watch.digests import Digests
from poolproof.watch.live_memory import LiveMemory

GROUPS = (CacheGroup(), CacheGroup("state"))
SIZE = 4
DIGESTS = Digests(b"key")


class Both(StepOracle):
    """The specification, and beside it the watch, until a reset voids what was computed."""

    def __init__(self, num_blocks, groups, block_sizes, names=None):
        super().__init__(num_blocks, groups, block_sizes, names)
        self.fast = LiveMemory(num_blocks, groups, block_sizes, DIGESTS)
        self.is_void = False

    def record(self, step):
        found = super().record(step)
        if not self.is_void:
            mine = [one for one in self.fast.record(step) if one.because_of is None]
            wanted = {(DIGESTS.name(one.reader), one.group, one.position) for one in found}
            said = {(one.reader, one.group, one.position) for one in mine}
            NUMBERS.append(len(wanted))
            if said != wanted:  # What is raised here would count as the engine's.
                DIFFERENCES.append((said, wanted))
        return found

    def void(self):
        super().void()
        self.is_void = True


NUMBERS: list[int] = []
"""How many findings each step had."""
DIFFERENCES: list[tuple[set, set]] = []
"""What the watch has said in a step, and the specification, where these differ."""


@pytest.fixture
def both(monkeypatch):
    monkeypatch.setattr(engine_session, "StepOracle", Both)
    NUMBERS.clear()
    DIFFERENCES.clear()


SHOWN_OTHERWISE = {"S166", "S180"}
"""Bugs that end or stop the engine: no wrong state is read."""
RUNS = {"S175": 80}
"""More than twelve, where a bug is seldom met."""


@pytest.mark.some(3)
@pytest.mark.parametrize("bug", ENGINE_STATE_BUGS.values(), ids=lambda bug: bug.id)
def test_each_planted_bug_shows_the_watch_what_it_shows_the_specification(both, bug):
    campaign = EngineCampaign(bug.id, bug.make, bug.profile, BLOCK_SIZE)
    for number in range(RUNS.get(bug.id, 12)):
        campaign.run(number)
    assert len(NUMBERS) > 12
    assert DIFFERENCES == []
    assert (sum(NUMBERS) > 0) == (bug.id not in SHOWN_OTHERWISE)


# The watch is told of no transfers: what a load brings is a state that nobody left for it.
HYBRIDS = [
    one for one in impl_engine_layouts() if "state" in one.name and "offloading" not in one.name
]


@pytest.mark.parametrize("layout", HYBRIDS, ids=lambda layout: layout.name)
def test_a_right_engine_starts_from_its_own_states(both, layout):
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    for number in range(10):
        assert campaign.run(number).trace is None
    assert (len(NUMBERS) > 10, sum(NUMBERS), DIFFERENCES) == (True, 0, [])
