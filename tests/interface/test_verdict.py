"""The verdict table: what fails a run, what passes, and what leaves it inconclusive."""

import datetime as dt
from dataclasses import replace

import pytest

from poolproof.certificate import FindingStatus, Outcome, Verdict
from poolproof.contract.violation import Severity
from poolproof.known_findings import KnownFinding, KnownFindings
from poolproof.verdict import Rules, judge, reasons_inconclusive

TODAY = dt.date(2026, 6, 1)


def known(fingerprint, until=dt.date(2026, 12, 31), target=None):
    entry = KnownFinding(fingerprint, "https://example.org/1", "upstream", until, target)
    return KnownFindings((entry,), TODAY)


def with_missing_fact(certificate):
    stage = replace(
        certificate.stages[1], outcome=Outcome.INCONCLUSIVE, facts_reached=("a refusal",)
    )
    return replace(certificate, stages=(certificate.stages[0], stage))


def test_nothing_found_holds(samples):
    judged = judge(samples.certificate(), Rules())
    assert judged.verdict is Verdict.HOLDS
    assert judged.verdict.exit_status == 0


def test_a_new_finding_is_refused(samples):
    judged = judge(samples.certificate(samples.finding()), Rules())
    assert judged.verdict is Verdict.REFUSED
    assert judged.verdict.exit_status == 1


@pytest.mark.parametrize("severity", list(Severity))
def test_every_severity_fails_by_default(samples, severity):
    judged = judge(samples.certificate(samples.of_severity(severity)), Rules())
    assert judged.verdict is Verdict.REFUSED


def test_a_severity_that_is_not_asked_for_does_not_fail(samples):
    rules = Rules(fail_on=(Severity.CRASH,))
    order = samples.of_severity(Severity.ORDER)
    assert judge(samples.certificate(order), rules).verdict is Verdict.HOLDS
    crash = samples.of_severity(Severity.CRASH, "f-00000002")
    assert judge(samples.certificate(order, crash), rules).verdict is Verdict.REFUSED


def test_a_known_finding_does_not_fail(samples):
    judged = judge(samples.certificate(samples.finding()), Rules(known=known("f-7d3f0a11")))
    assert judged.verdict is Verdict.HOLDS
    assert judged.findings[0].status is FindingStatus.KNOWN


def test_a_known_finding_beside_a_new_one_does_not_hide_it(samples):
    made = samples.certificate(samples.finding(), samples.finding("f-00000009"))
    assert judge(made, Rules(known=known("f-7d3f0a11"))).verdict is Verdict.REFUSED


def test_a_finding_of_the_baseline_does_not_fail(samples):
    rules = Rules(baseline=frozenset({"f-7d3f0a11"}))
    judged = judge(samples.certificate(samples.finding()), rules)
    assert judged.verdict is Verdict.HOLDS
    assert judged.findings[0].status is FindingStatus.BASELINE


def test_a_known_entry_that_no_longer_fails_is_an_error(samples):
    judged = judge(samples.certificate(), Rules(known=known("f-7d3f0a11")))
    assert judged.verdict is Verdict.REFUSED
    assert judged.fixed_known == ("f-7d3f0a11",)


def test_a_baseline_finding_that_no_longer_fails_is_no_error(samples):
    rules = Rules(baseline=frozenset({"f-7d3f0a11"}))
    assert judge(samples.certificate(), rules).verdict is Verdict.HOLDS


def test_an_entry_counts_on_its_last_day(samples):
    rules = Rules(known=known("f-7d3f0a11", until=TODAY))
    assert judge(samples.certificate(samples.finding()), rules).verdict is Verdict.HOLDS


def test_an_expired_entry_is_void(samples):
    rules = Rules(known=known("f-7d3f0a11", until=dt.date(2026, 5, 31)))
    judged = judge(samples.certificate(samples.finding()), rules)
    assert judged.verdict is Verdict.REFUSED
    assert judged.expired_known == ("f-7d3f0a11",)
    assert judge(samples.certificate(), rules).fixed_known == ()


def test_an_entry_for_another_target_is_not_asked_for(samples):
    rules = Rules(known=known("f-7d3f0a11", target="vllm"))
    assert judge(samples.certificate(), rules).verdict is Verdict.HOLDS
    assert judge(samples.certificate(samples.finding()), rules).verdict is Verdict.REFUSED


def test_a_canary_that_is_not_caught_is_inconclusive(samples):
    judged = judge(samples.certificate(canaries_missed=("A1",)), Rules())
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert judged.verdict.exit_status == 2
    assert reasons_inconclusive(judged) == ("canary not caught: A1",)


def test_a_run_without_canaries_is_inconclusive(samples):
    judged = judge(samples.certificate(canaries_caught=()), Rules())
    assert judged.verdict is Verdict.INCONCLUSIVE


def test_a_missing_fact_is_inconclusive(samples):
    judged = judge(with_missing_fact(samples.certificate()), Rules())
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert reasons_inconclusive(judged) == ("never happened: an eviction",)


def test_a_run_of_nothing_is_inconclusive(samples):
    assert judge(samples.certificate(stages=()), Rules()).verdict is Verdict.INCONCLUSIVE


def test_a_violation_beats_an_inconclusive_run(samples):
    judged = judge(with_missing_fact(samples.certificate(samples.finding())), Rules())
    assert judged.verdict is Verdict.REFUSED


def test_an_inconclusive_run_does_not_say_that_something_is_fixed(samples):
    made = samples.certificate(canaries_missed=("A1",))
    judged = judge(made, Rules(known=known("f-7d3f0a11")))
    assert judged.fixed_known == ()
    assert judged.verdict is Verdict.INCONCLUSIVE


def test_hardening_never_fails(samples):
    judged = judge(samples.certificate(hardening=(samples.finding(),)), Rules())
    assert judged.verdict is Verdict.HOLDS
