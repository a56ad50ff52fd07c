"""Every specimen is caught by an ordinary campaign and named by the invariant of its row."""

import pytest

from poolproof.bugs.catalogue import SPECIMENS, specimen
from poolproof.bugs.specimen import Specimen
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Violation
from poolproof.harness.choices import SeededChoices
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.queue_workload import QueueWorkload
from poolproof.harness.random_driver import PoolCampaign

MOST_RUNS = 40
POOL_LEVEL = [found for found in SPECIMENS.values() if found.level == "pool"]
QUEUE_LEVEL = [found for found in SPECIMENS.values() if found.level == "queue"]


def first_violation(found: Specimen, seed: int) -> Violation | None:
    campaign = PoolCampaign(found.id, found.make, found.profile, seed=seed)
    for number in range(MOST_RUNS):
        trace = campaign.run(number).trace
        if trace is not None:
            return trace.violation
    return None


def first_queue_violation(found: Specimen, seed: int) -> Violation | None:
    for number in range(MOST_RUNS):
        choices = SeededChoices(f"{seed}/{number}")
        num_blocks = 3 + choices.below(8)
        session = QueueSession(found.make(num_blocks), num_blocks)
        workload = QueueWorkload(choices, session.reference, session.can)
        for _ in range(60):
            command = workload.next()
            violation = command and session.step(command)
            if violation:
                return violation
    return None


def by_id(found: Specimen) -> str:
    return found.id


@pytest.mark.some(121)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("found", POOL_LEVEL, ids=by_id)
def test_a_campaign_catches_the_specimen_by_its_invariant(found, seed):
    violation = first_violation(found, seed)
    assert violation is not None, f"{found.id} survived {MOST_RUNS} runs"
    assert violation.invariant in found.invariants, violation.sentence


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("found", QUEUE_LEVEL, ids=by_id)
def test_a_queue_campaign_catches_the_specimen_by_its_invariant(found, seed):
    violation = first_queue_violation(found, seed)
    assert violation is not None, f"{found.id} survived {MOST_RUNS} runs"
    assert violation.invariant in found.invariants, violation.sentence


def test_a_specimen_is_silent_when_nothing_raises_where_it_acts():
    loud = [
        found.id for found in POOL_LEVEL
        if any(violation is not None and violation.invariant == "CRASH"
               for violation in (first_violation(found, seed) for seed in range(3)))
    ]  # fmt: skip
    assert loud == [found.id for found in POOL_LEVEL if not found.silent]


def test_an_unknown_id_is_answered_with_the_known_ones():
    with pytest.raises(ValueError) as refused:
        specimen("A999")
    assert "'A999'" in str(refused.value)
    assert "A12" in str(refused.value)


def test_a_specimen_is_not_built_under_a_profile_where_it_is_no_bug():
    with pytest.raises(ValueError) as refused:
        specimen("E3").make_under(Profile(eviction="lru"))
    assert "is no bug under" in str(refused.value)
