"""Pools that cannot serve requests, or answer them in a wrong form: each is named.

Which faults of their books are found is tested in test_request_checks.py.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.harness.request_checks import RequestSession
from poolproof.harness.request_trace import TraceRequest
from poolproof.harness.request_workload import RequestReplay, RequestWorkload, WorkloadResult
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue

REQUESTS = [TraceRequest(0.0, 600, 8, (1, 2))] * 3


def workload(**options):
    return RequestWorkload(requests=REQUESTS, num_blocks=99, **options)


def run(pool_class, **options):
    return workload(**options).run("mine", lambda n, _: pool_class(n), Profile())


def test_a_queue_serves_no_requests():
    with pytest.raises(TargetError, match="mine is a queue; requests need a pool"):
        run(NativeDictQueue)


def test_a_count_that_is_no_number_is_named():
    class Uncounted(NativeDictPool):
        def num_free(self):
            return "many"

    result = run(Uncounted, check_every=None)
    assert "num_free() must answer a number of blocks, but answered 'many'" in (
        result.violation.sentence
    )


def test_blocks_may_come_with_the_hashes_that_they_lost():
    class TellsEvictions(NativeDictPool):
        def allocate(self, n, /):
            return super().allocate(n), []

    result = run(TellsEvictions, check_every=None)
    assert result.violation is None
    assert result.counts.num_requests == 3


def test_rates_are_shares_of_what_was_served():
    result = run(NativeDictPool)
    assert 0 < result.block_hit_rate < 1
    assert 0 < result.token_hit_rate < 1
    assert result.blocks_per_s > 0
    assert result.blocks_per_wall_s > 0


def test_rates_are_zero_where_nothing_was_served():
    nothing = WorkloadResult("mine", Profile(), None)
    assert nothing.block_hit_rate == nothing.token_hit_rate == 0.0
    assert nothing.blocks_per_s == nothing.blocks_per_wall_s == 0.0


@pytest.mark.parametrize("check_every", [1, None])
def test_a_mistake_of_ours_is_raised(monkeypatch, check_every):
    monkeypatch.setattr(RequestReplay, "run", lambda self, *_: self.no_such_method())
    monkeypatch.setattr("poolproof.harness.request_workload.is_our_own_bug", lambda _: True)
    with pytest.raises(AttributeError):
        run(NativeDictPool, check_every=check_every)


def test_a_pool_that_cannot_even_be_looked_at_is_a_finding(monkeypatch):
    def refuse(*_):
        raise KeyError("free_order")

    monkeypatch.setattr("poolproof.harness.request_workload.RequestSession", refuse)
    result = run(NativeDictPool)
    assert "serving request 0" in result.violation.sentence
    assert result.trace is None


def looking_at(error):
    """A session whose look at the whole pool ends in an error."""

    def passes():
        raise error

    session = RequestSession(NativeDictPool(4), Profile(), 4)
    session._full = SimpleNamespace(passes=passes)
    return session


def test_states_are_compared_unless_that_is_switched_off():
    session = RequestSession(NativeDictPool(4), Profile(), 4)
    assert session.checking
    session.checking = False
    assert not session.checking


def test_a_pool_that_raises_when_it_is_read_whole_is_a_finding():
    violation = looking_at(KeyError(3)).read_everything()
    assert violation.invariant == "CRASH"
    assert "reading the whole pool" in violation.sentence


def test_a_pool_that_answers_nonsense_when_it_is_read_whole_is_a_finding():
    session = RequestSession(NativeDictPool(4), Profile(), 4)
    session.target.free_order = lambda: None
    session._full = SimpleNamespace(passes=lambda: False)
    assert session.read_everything().invariant == "CRASH"


def test_a_mistake_of_ours_in_reading_is_raised(monkeypatch):
    monkeypatch.setattr("poolproof.harness.request_checks.is_our_own_bug", lambda _: True)
    with pytest.raises(KeyError):
        looking_at(KeyError(3)).read_everything()
