"""Campaigns on whole tapes: what is predicted, what is judged, and what is played again.

How tapes travel to a program is tested with the targets.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.contract.profile import Profile
from poolproof.contract.tapes import TapeDivergedError, TapeLostError
from poolproof.contract.target import capabilities_of
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign, plan_of
from poolproof.harness.tape_driver import TapedCampaign, predicted_commands, taped
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue


class ForgetsAReference(NativeDictPool):
    def touch(self, block_ids, /):
        super().touch(block_ids[1:])


class GoesAnotherWay(NativeDictPool):
    """What a played tape says when it is asked for something else than its next command."""

    def allocate(self, n, /):
        raise TapeDivergedError


class Played:
    """Answers that are made when they are asked for; a tape cannot be told from its target."""

    state, answers = {}, ()

    def __init__(self, pool_class, num_blocks, enable_caching):
        self.instance = lambda: pool_class(num_blocks, enable_caching=enable_caching)


class Tapes:
    """A target that takes tapes, and loses them if it is told to."""

    def __init__(self, pool_class=NativeDictPool, *, loses=False):
        self.can, self.num_lost = capabilities_of(pool_class(1)), 0
        self.pool_class, self.loses = pool_class, loses
        self.heard = []

    def play(self, num_blocks, enable_caching, commands, /):
        self.heard.append(commands)
        if self.loses:
            raise TapeLostError("the program died")
        return Played(self.pool_class, num_blocks, enable_caching)


def campaign_of(pool_class=NativeDictPool, **rows):
    profile = Profile(**rows)

    def make(num_blocks, caching):
        return pool_class(num_blocks, enable_caching=caching, profile=profile)

    return PoolCampaign("mine", make, profile)


def test_a_predicted_run_is_the_run_of_a_right_target():
    campaign, heard = campaign_of(), []
    plain = campaign.run(3, heard.append)
    tapes = Tapes()
    result = TapedCampaign(campaign, tapes).run(3)
    assert tapes.heard == [heard]
    assert (result.trace, result.num_steps, result.facts) == (None, len(heard), plain.facts)


def test_a_verb_that_the_target_lacks_is_not_predicted():
    campaign, can = campaign_of(), Tapes().can
    plan = plan_of(campaign, 0)
    fewer = replace(can, verbs=can.verbs - {"evict", "reset"})
    assert {"evict", "reset"} & {c.verb for c in predicted_commands(campaign, plan, can)}
    assert not {"evict", "reset"} & {c.verb for c in predicted_commands(campaign, plan, fewer)}


def test_what_a_tape_answers_is_judged_command_by_command():
    campaign = TapedCampaign(campaign_of(), Tapes(ForgetsAReference))
    traces = [campaign.run(number).trace for number in range(10)]
    (trace,) = [trace for trace in traces if trace is not None][:1]
    assert trace.commands[-1].verb == "touch"
    assert replace(trace, commands=(), violation=None) == campaign.setup(traces.index(trace))


def test_a_tape_that_was_lost_is_given_again_one_by_one():
    campaign, heard = campaign_of(ForgetsAReference), []
    runs = [TapedCampaign(campaign, Tapes(loses=True)).run(n, heard.append) for n in range(10)]
    assert any(run.trace and run.trace.commands[-1].verb == "touch" for run in runs)
    assert heard


def test_a_tape_that_is_lost_and_fails_nowhere_is_a_crash():
    campaign, tapes = campaign_of(), Tapes(loses=True)
    result = TapedCampaign(campaign, tapes).run(3)
    count = len(tapes.heard[0])
    assert result.trace.violation.invariant == "CRASH"
    assert result.trace.violation.sentence == (
        f"the program died; that was while it was given {count} commands at once, and one by one "
        "it does them all: the target does not behave the same way twice"
    )
    assert result.trace.violation.command_index == count - 1
    assert result.trace.commands == tuple(tapes.heard[0])


def test_a_run_that_goes_another_way_is_done_again_on_the_target():
    result = TapedCampaign(campaign_of(), Tapes(GoesAnotherWay)).run(3)
    assert result.trace is None
    assert result.num_steps


def test_a_campaign_is_taped_where_tapes_can_be_predicted():
    campaign, tapes = campaign_of(), Tapes()
    assert taped(campaign, tapes) == TapedCampaign(campaign, tapes)


@pytest.mark.parametrize(
    ("campaign", "tapes"),
    [
        (campaign_of(), None),
        (campaign_of(eviction="unspecified"), Tapes()),
        (QueueCampaign("mine", NativeDictQueue, Profile()), Tapes()),
    ],
)
def test_other_campaigns_stay_as_they_are(campaign, tapes):
    assert taped(campaign, tapes) is campaign
