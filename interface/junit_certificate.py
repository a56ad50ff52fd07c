"""The certificate in JUnit's XML, which every CI system shows as tests.

One suite a level with a case for each stage and each finding, one for the canaries, one for the
known file. A finding that does not fail the run is a skipped case; an inconclusive stage is an
error, not a failure.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from poolproof.certificate import Certificate, Outcome, StageResult
from poolproof.finding import Finding
from poolproof.finding_report import finding_report, plain_text
from poolproof.verdict import failing
from poolproof.wording import severity_words

__all__ = ["junit_certificate"]


def junit_certificate(certificate: Certificate) -> str:
    """A judged certificate as an XML document."""
    root = ET.Element("testsuites", name=f"poolproof {_legal(certificate.target)}")
    levels = [stage.level for stage in certificate.stages]
    levels += [finding.level for finding in certificate.findings]
    for level in dict.fromkeys(levels):
        _add_level(root, certificate, level)
    _add_ruler(root, certificate)
    _add_known(root, certificate)
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
        suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_level(root: ET.Element, certificate: Certificate, level: str) -> None:
    suite = ET.SubElement(root, "testsuite", name=level)
    findings = [finding for finding in certificate.findings if finding.level == level]
    for stage in certificate.stages:
        if stage.level == level:
            _add_stage(suite, stage, explained=bool(findings))
    for finding in findings:
        _add_finding(suite, finding, fails=finding in failing(certificate))


def _add_stage(suite: ET.Element, stage: StageResult, *, explained: bool) -> None:
    case = _case(suite, stage.stage, stage.seconds)
    if stage.outcome is Outcome.NOT_RUN:
        _outcome(case, "skipped", stage.note or "not run")
    elif stage.outcome is Outcome.INCONCLUSIVE:
        missing = ", ".join(stage.missing_facts)
        _outcome(case, "error", f"never happened: {missing}" if missing else stage.note)
    elif stage.outcome is Outcome.REFUSED and not explained:
        _outcome(case, "failure", stage.note or "refused")
    text = f"{stage.steps:,} steps, {stage.runs:,} runs"
    ET.SubElement(case, "system-out").text = _legal(f"{text}, {stage.note}" if stage.note else text)


def _add_finding(suite: ET.Element, finding: Finding, *, fails: bool) -> None:
    violation = finding.violation
    case = _case(suite, f"{finding.fingerprint} {violation.invariant}")
    message = f"{severity_words(violation.severity)}: {violation.sentence}"
    if fails:
        failure = _outcome(case, "failure", message)
        failure.set("type", violation.severity.value)
        failure.text = _legal(plain_text(finding_report(finding)))
    else:
        _outcome(case, "skipped", f"{finding.status.value}, does not fail the run: {message}")


def _add_ruler(root: ET.Element, certificate: Certificate) -> None:
    suite = ET.SubElement(root, "testsuite", name="ruler")
    for name in certificate.canaries_caught:
        _case(suite, name)
    for name in certificate.canaries_missed:
        _outcome(_case(suite, name), "error", "this planted bug was not caught")


def _add_known(root: ET.Element, certificate: Certificate) -> None:
    if not certificate.fixed_known:
        return
    suite = ET.SubElement(root, "testsuite", name="known file")
    for fingerprint in certificate.fixed_known:
        message = "no longer fails: take it out of the known file"
        _outcome(_case(suite, fingerprint), "failure", message)


def _case(suite: ET.Element, name: str, seconds: float = 0.0) -> ET.Element:
    classname = f"poolproof.{suite.get('name')}"
    return ET.SubElement(
        suite, "testcase", classname=classname, name=_legal(name), time=f"{seconds:.3f}"
    )


def _outcome(case: ET.Element, kind: str, message: str) -> ET.Element:
    return ET.SubElement(case, kind, message=_legal(message))


def _legal(text: str) -> str:
    """XML has no way to write control characters, and a target's message may hold any."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", text)
