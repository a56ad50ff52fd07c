"""The uniform baseline gives legal commands only, of every kind, and prefers none."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.harness.choices import TapeChoices
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import alphabet
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.uniform_workload import (
    UniformManagerWorkload,
    UniformPoolWorkload,
    UniformQueueWorkload,
)
from poolproof.reference.legality import misuse_of
from poolproof.reference.native_pool import NativeDictPool


def clean_manager(num_blocks, caching):
    return CleanManager(num_blocks, 4, enable_caching=caching)


CAMPAIGNS = {
    "queue": QueueCampaign("queue", lambda n, _: CleanQueue(n), workload=UniformQueueWorkload),
    "pool": PoolCampaign(
        "pool", lambda n, on: NativeDictPool(n, enable_caching=on), Profile(),
        workload=UniformPoolWorkload,
    ),
    "manager": ManagerCampaign(
        "manager", clean_manager, ManagerProfile(), 4, workload=UniformManagerWorkload
    ),
}  # fmt: skip


@pytest.mark.parametrize("campaign", CAMPAIGNS.values(), ids=CAMPAIGNS)
def test_what_is_right_passes_and_every_verb_is_drawn(campaign):
    drawn = Counter()
    for number in range(40):
        result = campaign.run(number, lambda command: drawn.update([command.verb]))
        assert result.trace is None, result.trace.violation
    assert len(drawn) >= 6
    assert min(drawn.values()) > 0


@settings(max_examples=60, deadline=None)
@given(
    tape=st.binary(max_size=200),
    recache=st.sampled_from(["replace", "forbidden"]),
    null_block=st.sampled_from([None, 0]),
    null_in_lists=st.sampled_from(["misuse", "ignored"]),
)
def test_every_pool_command_is_legal(tape, recache, null_block, null_in_lists):
    profile = Profile(recache=recache, null_block=null_block, null_in_lists=null_in_lists)
    session = PoolSession(NativeDictPool(4, profile=profile), profile, 4)
    workload = UniformPoolWorkload(
        TapeChoices(tape), session.reference, session.can, alphabet(3, 0)
    )
    workload.bias()
    for _ in range(30):
        command = workload.next()
        assert misuse_of(session.reference, command) is None
        assert session.is_defined(command)
        assert session.step(command) is None
        workload.references.extend(session.last.taken)


def test_no_verb_is_preferred():
    session = PoolSession(NativeDictPool(4), Profile(), 4)
    workload = UniformPoolWorkload(TapeChoices(b""), session.reference, session.can, alphabet(3, 0))
    workload.set_weights({"reset": 40})
    assert len(workload._urn) == len(workload.verbs)


def test_the_tuned_workload_is_the_usual_one():
    usual = PoolCampaign("pool", lambda n, on: NativeDictPool(n, enable_caching=on), Profile())
    tuned, uniform = [], []
    usual.run(0, tuned.append)
    CAMPAIGNS["pool"].run(0, uniform.append)
    assert tuned != uniform
