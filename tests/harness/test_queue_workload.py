"""The queue grammar yields legal commands only, and reaches every required fact."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolproof.contract.target import capabilities_of
from poolproof.harness.choices import SeededChoices, TapeChoices
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.queue_workload import QueueWorkload, required_queue_facts
from poolproof.reference.native_queue import NativeDictQueue


class Single(NativeDictQueue):
    popleft_n = append_n = prepend_n = None


@given(st.binary(max_size=200), st.integers(0, 5), st.sampled_from([NativeDictQueue, Single]))
def test_every_command_is_legal(tape, num_blocks, cls):
    session = QueueSession(cls(num_blocks), num_blocks)
    workload = QueueWorkload(TapeChoices(tape), session.reference, session.can)
    workload.bias()
    for _ in range(30):
        command = workload.next()
        if command is not None:
            assert session.is_defined(command)
            assert session.step(command) is None


def test_nothing_is_legal_in_an_empty_queue_of_no_blocks():
    session = QueueSession(Single(0), 0)
    assert QueueWorkload(SeededChoices(0), session.reference, session.can).next() is None


@pytest.mark.parametrize("cls", [NativeDictQueue, Single])
def test_every_required_fact_is_reached(cls):
    campaign = QueueCampaign("queue", lambda num_blocks, caching: cls(num_blocks))
    facts = set()
    for number in range(60):
        result = campaign.run(number)
        assert result.trace is None
        facts |= result.facts
    assert set(required_queue_facts(capabilities_of(cls(1)))) <= facts
