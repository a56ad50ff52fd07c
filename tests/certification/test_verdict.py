"""The verdict table: what fails a run, what passes, and what leaves it inconclusive."""

import datetime as dt
from dataclasses import replace

import pytest

from poolproof.certification.baseline import baseline_of
from poolproof.certification.certificate import FindingStatus, StageOutcome, Verdict
from poolproof.certification.finding import Identity
from poolproof.certification.known_findings import KnownFinding, KnownFindings
from poolproof.certification.verdict import Rules, failing, judge, reasons_inconclusive
from poolproof.contract.misuse import MisuseFailure, MisuseKind, MisuseOutcome
from poolproof.contract.violation import Severity
from poolproof.harness.failure_kind import FailureKind

TODAY = dt.date(2026, 6, 1)


LINK, REASON = "https://example.org/1", "upstream"


def known_forms(*identities, until=dt.date(2026, 12, 31), target=None):
    return KnownFindings((KnownFinding(identities, LINK, REASON, until, target),), TODAY)


def known(fingerprint, until=dt.date(2026, 12, 31), target=None):
    identity = Identity(fingerprint, samples_kind())
    return known_forms(identity, until=until, target=target)


def samples_kind():
    """The kind of the finding of `samples.finding()`."""
    return FailureKind("IDX", Severity.WRONG_DATA_OF_ANOTHER, "lookup")


def before(*findings, samples, **changes):
    """The baseline that a certificate with these findings is."""
    return baseline_of(samples.certificate(*findings, **changes))


def with_missing_fact(certificate):
    stage = replace(
        certificate.stages[1], outcome=StageOutcome.INCONCLUSIVE, facts_reached=("a refusal",)
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
    rules = Rules(baseline=before(samples.finding(), samples=samples))
    judged = judge(samples.certificate(samples.finding()), rules)
    assert judged.verdict is Verdict.HOLDS
    assert judged.findings[0].status is FindingStatus.BASELINE


def test_a_known_entry_that_no_longer_fails_is_an_error(samples):
    judged = judge(samples.certificate(), Rules(known=known("f-7d3f0a11")))
    assert judged.verdict is Verdict.REFUSED
    assert judged.fixed_known == ("f-7d3f0a11",)


def test_a_baseline_finding_that_no_longer_fails_is_no_error(samples):
    rules = Rules(baseline=before(samples.finding(), samples=samples))
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


def accepted_by_name_alone(finding, **changes):
    """An entry that agrees in name, and in kind but for the changes."""
    kind = replace(finding.kind, **changes)
    return Rules(known=known_forms(Identity(finding.fingerprint, kind)))


@pytest.mark.parametrize(
    "changes",
    [
        {"invariant": "I4"},
        {"severity": Severity.LOST_HIT},
        {"operation": "touch"},
        {"misuse": MisuseFailure(MisuseKind.BLOCK_NOT_HELD, MisuseOutcome.ACCEPTED)},
    ],
)
def test_an_entry_of_another_kind_accepts_nothing(samples, changes):
    finding = samples.finding()
    judged = judge(samples.certificate(finding), accepted_by_name_alone(finding, **changes))
    assert judged.verdict is Verdict.REFUSED
    assert judged.findings[0].status is FindingStatus.NEW
    assert judged.fixed_known == (finding.fingerprint,)


def test_a_baseline_finding_of_another_severity_accepts_nothing(samples):
    was = samples.of_severity(Severity.LOST_HIT, "f-7d3f0a11")
    judged = judge(
        samples.certificate(samples.finding()), Rules(baseline=before(was, samples=samples))
    )
    assert judged.verdict is Verdict.REFUSED


def test_a_baseline_of_another_target_accepts_nothing_and_says_so(samples):
    baseline = before(samples.finding(), samples=samples, target="other.py:Pool")
    judged = judge(samples.certificate(samples.finding()), Rules(baseline=baseline))
    assert judged.verdict is Verdict.REFUSED
    assert judged.notes[-1].startswith("the baseline is of other.py:Pool, so nothing in it counts")


def test_a_baseline_judged_under_other_promises_accepts_nothing(samples):
    was = samples.finding()
    promised = replace(was.trace, profile=replace(was.trace.profile, eviction="lifo"))
    baseline = before(replace(was, trace=promised), samples=samples)
    judged = judge(samples.certificate(samples.finding()), Rules(baseline=baseline))
    assert judged.verdict is Verdict.REFUSED


def test_a_row_that_is_declared_now_and_was_assumed_before_changes_nothing(samples):
    was = samples.finding()
    declared = replace(was.trace, profile=replace(was.trace.profile, assumed=()))
    baseline = before(replace(was, trace=declared), samples=samples)
    judged = judge(samples.certificate(samples.finding()), Rules(baseline=baseline))
    assert judged.verdict is Verdict.HOLDS


def test_an_entry_that_has_expired_is_not_put_off_by_a_baseline(samples):
    rules = Rules(
        known=known("f-7d3f0a11", until=dt.date(2026, 5, 31)),
        baseline=before(samples.finding(), samples=samples),
    )
    assert judge(samples.certificate(samples.finding()), rules).verdict is Verdict.REFUSED


def with_form(samples, **changes):
    form = samples.of_severity(Severity.LOST_HIT, "f-00000002")
    return samples.finding(forms=(form,), **changes)


def test_a_finding_is_accepted_when_each_of_its_forms_is(samples):
    finding = with_form(samples)
    rules = Rules(known=known_forms(*(form.identity for form in finding.each_form)))
    judged = judge(samples.certificate(finding), rules)
    assert judged.verdict is Verdict.HOLDS
    (found,) = judged.findings
    assert [form.status for form in found.each_form] == [FindingStatus.KNOWN] * 2


@pytest.mark.parametrize("place", [0, 1])
def test_a_form_that_is_not_accepted_is_a_finding_of_its_own(samples, place):
    finding = with_form(samples)
    accepted, new = finding.each_form[place], finding.each_form[1 - place]
    judged = judge(samples.certificate(finding), Rules(known=known_forms(accepted.identity)))
    assert judged.verdict is Verdict.REFUSED
    statuses = {found.fingerprint: (found.status, found.forms) for found in judged.findings}
    assert statuses == {
        accepted.fingerprint: (FindingStatus.KNOWN, ()),
        new.fingerprint: (FindingStatus.NEW, ()),
    }
    assert failing(judged) == (replace(new, status=FindingStatus.NEW),)


def test_a_form_of_a_severity_that_is_asked_for_fails_the_run(samples):
    rules = Rules(fail_on=(Severity.LOST_HIT,))
    assert judge(samples.certificate(with_form(samples)), rules).verdict is Verdict.REFUSED
    assert judge(samples.certificate(samples.finding()), rules).verdict is Verdict.HOLDS


def test_an_entry_is_not_fixed_while_one_of_its_forms_fails(samples):
    finding = with_form(samples)
    rules = Rules(known=known_forms(*(form.identity for form in finding.each_form)))
    judged = judge(samples.certificate(finding.forms[0]), rules)
    assert judged.fixed_known == ()
    assert judged.verdict is Verdict.HOLDS


def test_a_refused_stage_that_no_finding_explains_is_inconclusive(samples):
    made = samples.certificate()
    stage = replace(made.stages[1], outcome=StageOutcome.REFUSED)
    judged = judge(replace(made, stages=(stage,)), Rules())
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "refused, but no finding says why" in reasons_inconclusive(judged)[0]
