"""The certificate's JSON form: it survives the way there and back, and names what is damaged."""

import json

import pytest

from poolproof.certification.baseline import baseline_of
from poolproof.certification.certificate import (
    Certificate,
    CertificateError,
    FindingStatus,
    Verdict,
)
from poolproof.certification.verdict import Rules, judge


def test_a_certificate_survives_its_json_form(samples):
    made = judge(samples.certificate(samples.finding()), Rules())
    assert Certificate.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_hardening_and_what_was_not_run_survive_the_json_form(samples):
    made = samples.certificate(hardening=(samples.finding(),), behaves_as="eviction=lifo")
    back = Certificate.from_json(made.to_json())
    assert back.hardening == made.hardening
    assert back.not_run == made.not_run
    assert back.behaves_as == "eviction=lifo"


def test_the_profile_keeps_what_was_assumed(samples):
    back = Certificate.from_json(samples.certificate().to_json())
    assert "duplicates" in back.assumed
    assert "eviction" not in back.assumed


def test_missing_facts_are_those_required_and_not_reached(samples):
    stage = samples.certificate().stages[1]
    assert stage.missing_facts == ()
    assert samples.replace(stage, facts_reached=("a refusal",)).missing_facts == ("an eviction",)


def test_the_trace_of_a_finding_carries_violation_and_fingerprint(samples):
    found = samples.finding(trace=samples.trace(violation=None, fingerprint=None))
    assert found.whole_trace().violation == found.violation
    assert found.whole_trace().fingerprint == found.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "junit"}, 'not a certificate: it lacks "format": "poolproof-certificate"'),
        ({"version": 99}, "certificate version 99 is newer than this Poolproof"),
        ({"seed": "x"}, "certificate field 'seed' must be a whole number, not 'x'"),
        ({"stages": {}}, "certificate field 'stages' must be a list, not {}"),
        ({"verdict": "fine"}, "'verdict' must be one of holds, refused, inconclusive, not 'fine'"),
        ({"fail_on": ["all"]}, "field 'fail_on' has an unknown severity 'all'"),
        ({"profile": {"speed": 1}}, "unknown profile key 'speed'"),
    ],
)
def test_a_damaged_field_is_named(samples, change, message):
    record = samples.certificate().to_json() | change
    with pytest.raises(CertificateError) as caught:
        Certificate.from_json(record)
    assert message in str(caught.value)


def test_a_missing_field_is_named(samples):
    record = samples.certificate().to_json()
    del record["never_called"]
    with pytest.raises(CertificateError) as caught:
        Certificate.from_json(record)
    assert str(caught.value) == "certificate lacks the field 'never_called'"


def test_a_damaged_trace_in_a_finding_is_named(samples):
    record = samples.certificate(samples.finding()).to_json()
    record["findings"][0]["trace"][2]["do"] = "fly"
    with pytest.raises(CertificateError) as caught:
        Certificate.from_json(record)
    assert "finding f-7d3f0a11: its trace line 3: unknown verb 'fly'" in str(caught.value)


def test_statuses_and_verdicts_survive(samples):
    made = judge(
        samples.certificate(samples.finding()),
        Rules(baseline=baseline_of(samples.certificate(samples.finding()))),
    )
    back = Certificate.from_json(made.to_json())
    assert back.findings[0].status is FindingStatus.BASELINE
    assert back.verdict is Verdict.HOLDS


def test_a_refused_stage_names_what_it_met(samples):
    finding = samples.finding()
    certificate = samples.certificate(finding)
    met = {stage["stage"]: stage["findings"] for stage in certificate.to_json()["stages"]}
    assert met[finding.stages[0]] == [finding.fingerprint]
