"""Managers serve request traces: growth, preemption, prefixes, and what breaks on the way."""

from itertools import islice

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.harness.request_generator import generate_requests
from poolproof.harness.request_trace import TraceRequest
from poolproof.harness.sequence_workload import SequenceWorkload

PROFILE = ManagerProfile()


def serve(requests, cls=CleanManager, served=None, profile=PROFILE, **settings):
    workload = SequenceWorkload(
        requests=requests, **{"num_blocks": 40, "block_size": 4, "tokens_per_id": 8, **settings}
    )
    return workload.run(
        cls.__name__, lambda n, caching: cls(n, 4, enable_caching=caching, rules=profile), profile,
        served,
    )  # fmt: skip


def request(ids, output=0, length=None):
    return TraceRequest(0, length or 512 * len(ids), output, tuple(ids))


def test_equal_ids_are_found_again():
    result = serve([request([1, 2, 3]), request([1, 2, 4])], concurrent=1)
    assert result.violation is None
    assert result.counts.prompt_tokens == 48
    assert result.counts.cached_tokens == 16
    assert result.token_hit_rate == pytest.approx(1 / 3)
    assert result.counts.num_finished == 2


def test_outputs_grow_token_by_token():
    result = serve([request([1], output=512)])
    assert result.counts.output_tokens == 8
    assert result.counts.num_steps == 9


def test_the_last_admitted_gives_way_and_comes_back():
    requests = [request([number], output=1024) for number in range(4)]
    result = serve(requests, num_blocks=10)
    assert result.violation is None
    assert result.counts.num_preempted > 0
    assert result.counts.num_finished == 4
    assert result.counts.output_tokens >= 64


def test_what_never_fits_is_left_out_and_counted():
    result = serve([request(range(30)), request([1])])
    assert result.counts.num_too_long == 1
    assert result.counts.num_finished == 1


def test_what_outgrows_the_pool_alone_is_ended():
    result = serve([request([1, 2], output=5120)], num_blocks=6)
    assert result.violation is None
    assert result.counts.num_too_long == 1
    assert result.counts.num_finished == 1


@pytest.mark.parametrize("can_abort", [True, False])
def test_what_outgrows_what_may_be_admitted_is_given_up_once_it_gave_way(can_abort):
    class Manager(CleanManager):
        pass

    if not can_abort:
        Manager.abort = None
    requests = [request([1], output=3072, length=512), request([2, 3, 4], output=3072)]
    watermark = ManagerProfile(watermark_blocks=4)
    result = serve(requests, Manager, num_blocks=8, tokens_per_id=4, profile=watermark)
    assert result.violation is None
    assert (result.counts.num_too_long, result.counts.num_finished) == (1, 2)


def test_what_is_free_after_a_step_is_waited_for():
    late = ManagerProfile(frees="after-step")
    alone = [request(range(1, 7), length=3072), request(range(11, 17), length=3072)]
    result = serve(alone, num_blocks=8, tokens_per_id=4, profile=late)
    assert (result.counts.num_too_long, result.counts.num_finished) == (0, 2)
    growing = [request([number], output=1024) for number in range(4)]
    result = serve(growing, num_blocks=10, profile=late)
    assert result.violation is None
    assert result.counts.num_preempted > 0
    assert (result.counts.num_too_long, result.counts.num_finished) == (0, 4)


def test_what_the_last_one_loses_is_found_where_blocks_are_free_after_a_step():
    class Loses(CleanManager):
        def _give_back(self, sequence):
            self.leaving.append(sequence.table[1:])

    late = ManagerProfile(frees="after-step")
    assert serve([request([1, 2])], Loses, profile=late).violation.severity is Severity.LEAK


def test_a_manager_without_preemption_ends_the_last():
    class NoPreemption(CleanManager):
        preempt = None

    requests = [request([number], output=1024) for number in range(4)]
    result = serve(requests, NoPreemption, num_blocks=10)
    assert result.violation is None
    assert result.counts.num_finished >= 1
    assert result.counts.num_preempted + result.counts.num_too_long > 0


def test_a_generated_trace_holds_checked_now_and_then():
    requests = list(islice(generate_requests(3), 60))
    seen = []
    result = serve(
        requests, num_blocks=300, tokens_per_id=16, check_every=20, served=lambda: seen.append(1)
    )
    assert result.violation is None
    assert result.counts.cached_tokens > 0
    assert len(seen) == 60
    assert result.trace is None


def test_a_violation_comes_with_the_commands_that_lead_to_it():
    class Forgets(CleanManager):
        def _hits(self, sequence):
            return []

    result = serve([request([1, 2]), request([1, 2])], Forgets, concurrent=1)
    assert result.violation.invariant == "I4"
    assert len(result.trace.commands) == result.num_commands
    assert result.trace.options == {"block_size": 4}


def test_a_constructor_that_raises_is_a_finding():
    class Unbuilt(CleanManager):
        def __init__(self, *_, **__):
            raise RuntimeError("no memory")

    result = serve([request([1])], Unbuilt)
    assert result.violation.invariant == "CRASH"
    assert result.trace.commands == ()
    assert result.token_hit_rate == 0.0


def test_a_manager_that_lacks_a_method_cannot_be_run():
    class Lacking(CleanManager):
        append = None

    with pytest.raises(TargetError, match="append"):
        serve([request([1])], Lacking)


@pytest.mark.parametrize(
    "name", ["num_blocks", "block_size", "concurrent", "tokens_per_id", "check_every"]
)
def test_a_setting_below_one_is_refused(name):
    with pytest.raises(ValueError, match=name):
        serve([request([1])], **{name: 0})
