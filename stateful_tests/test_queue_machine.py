"""The queue's state machine: both queues hold, planted bugs are found."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import hypothesis
import pytest

from poolproof.contract.profile import Profile
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.queue_workload import required_queue_facts
from poolproof.harness.random_driver import PoolCampaign
from poolproof.impl.free_queue import FreeQueue
from poolproof.stateful_tests.queue_machine import QueueMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings


@pytest.mark.parametrize("target", ["impl-queue", "reference-queue"])
def test_queue_holds(target, campaign_of, holds):
    holds(QueueMachine, campaign_of(target))


def test_queue_without_batch_verbs_is_driven_by_single_ones():
    class Single:
        def __init__(self, num_blocks):
            self._queue = FreeQueue(num_blocks)
            self.popleft = self._queue.popleft
            self.remove = self._queue.remove
            self.append = self._queue.append
            self.num_free = self._queue.num_free
            self.free_order = self._queue.free_order

    campaign = PoolCampaign("single", lambda n, _: Single(n), Profile())
    # With fewer examples, older releases of Hypothesis take none from the middle.
    enough = hypothesis.settings(machine_settings("quick"), max_examples=60)
    result = run_machine(lambda log: QueueMachine(campaign, log), enough, seed=0)
    assert result.trace is None
    assert "a block left the middle" in result.facts
    assert "several blocks joined at once" not in result.facts


def test_a_part_of_the_quick_level_reaches_every_required_fact(campaign_of):
    campaign = campaign_of("impl-queue")
    settings = hypothesis.settings(machine_settings("quick"), max_examples=60)
    result = run_machine(lambda log: QueueMachine(campaign, log), settings, seed=0)
    can = QueueSession(campaign.make(4, True), 4).can
    assert set(required_queue_facts(can)) - result.facts == set()


class PrependsBackwards(FreeQueue):
    def prepend_n(self, block_ids):
        super().prepend_n(list(block_ids)[::-1])


class CountsRemovalTwice(FreeQueue):
    def remove(self, block_id):
        super().remove(block_id)
        if self.length:
            self.length -= 1


class KeepsLinkOfPopped(FreeQueue):
    def popleft(self):
        block = super().popleft()
        self.next[block] = self.tail
        return block


@pytest.mark.parametrize(
    ("bug", "invariant", "shortest"),
    [
        (PrependsBackwards, "ORD", 2),
        (CountsRemovalTwice, "OWN", 1),
        (KeepsLinkOfPopped, "LINK", 1),
    ],
)
def test_planted_bug_is_found_and_minimised(bug, invariant, shortest, find):
    campaign = PoolCampaign(bug.__name__, lambda n, _: bug(n), Profile())
    trace = find(QueueMachine, campaign)
    assert trace is not None
    assert trace.violation.invariant == invariant
    assert len(trace.commands) <= shortest + 2
