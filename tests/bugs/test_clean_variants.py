"""What is right is not accused: the clean pool and queue, and our own pool pass campaigns."""

import pytest

from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.harness.choices import SeededChoices
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.queue_workload import QueueWorkload
from poolproof.harness.random_driver import PoolCampaign
from poolproof.impl.block_pool import BlockPool


def passes(name, make, profile, num_runs):
    """Run a campaign and return the facts that it reached."""
    campaign = PoolCampaign(name, make, profile)
    facts = set()
    for number in range(num_runs):
        result = campaign.run(number)
        assert result.trace is None, (result.trace.violation, result.trace.commands[-5:])
        facts |= result.facts
    return facts


def clean_under(profile):
    return lambda num_blocks, caching: CleanPool(num_blocks, enable_caching=caching, rules=profile)


@pytest.mark.some(1)
def test_the_clean_pool_passes(profile):
    passes("clean", clean_under(profile), profile, 100)


@pytest.mark.deep
def test_the_clean_pool_passes_under_any_profile(any_profile):
    passes("clean", clean_under(any_profile), any_profile, 50)


@pytest.mark.some(2)
def test_our_own_pool_passes(profile):
    if profile.eviction in ("unspecified", "unhashed-lifo"):
        pytest.skip("our pool keeps one of three orders")
    options = profile.to_json()
    for row in ("retention", "same_step_hit", "hash_bytes", "repeats_in_free"):
        del options[row]
    passes(
        "impl",
        lambda num_blocks, caching: BlockPool(num_blocks, enable_caching=caching, **options),
        profile,
        100,
    )


def test_the_clean_queue_passes():
    for seed in range(200):
        choices = SeededChoices(seed)
        num_blocks = 1 + choices.below(8)
        session = QueueSession(CleanQueue(num_blocks), num_blocks)
        workload = QueueWorkload(choices, session.reference, session.can)
        assert session.first_look() is None
        for _ in range(40):
            command = workload.next()
            assert command is None or session.step(command) is None


def test_the_clean_queue_says_when_it_has_too_few_blocks():
    queue = CleanQueue(2)
    with pytest.raises(ValueError) as refused:
        queue.popleft_n(3)
    assert str(refused.value) == "3 blocks asked for, 2 are free"
    assert queue.free_order() == [0, 1]
