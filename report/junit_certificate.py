"""The certificate in JUnit's XML, which every CI system shows as tests.

One suite a level with a case for each stage and each finding, one for the canaries, one for the
known file. A finding that does not fail the run is a skipped case; an inconclusive stage is an
error, not a failure.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from poolproof.certification.certificate import Certificate, StageOutcome, StageResult
from poolproof.certification.finding import Finding
from poolproof.certification.verdict import failing
from poolproof.contract.outside import printable
from poolproof.report.finding_report import finding_report, plain_text
from poolproof.report.junit_xml import add_outcome, document, new_case
from poolproof.report.wording import severity_words

__all__ = ["junit_certificate"]


def junit_certificate(certificate: Certificate) -> str:
    """A judged certificate as an XML document."""
    root = ET.Element("testsuites", name=f"poolproof {printable(certificate.target)}")
    levels = [stage.level for stage in certificate.stages]
    levels += [finding.level for finding in certificate.findings]
    for level in dict.fromkeys(levels):
        _add_level(root, certificate, level)
    _add_ruler(root, certificate)
    _add_known(root, certificate)
    return document(root)


def _add_level(root: ET.Element, certificate: Certificate, level: str) -> None:
    suite = ET.SubElement(root, "testsuite", name=level)
    findings = [finding for finding in certificate.findings if finding.level == level]
    for stage in certificate.stages:
        if stage.level == level:
            _add_stage(suite, stage, explained=bool(findings))
    for finding in findings:
        _add_finding(suite, finding, fails=finding in failing(certificate))


def _add_stage(suite: ET.Element, stage: StageResult, *, explained: bool) -> None:
    case = new_case(suite, stage.stage, stage.seconds)
    if stage.outcome is StageOutcome.NOT_RUN:
        add_outcome(case, "skipped", stage.note or "not run")
    elif stage.outcome is StageOutcome.INCONCLUSIVE:
        missing = ", ".join(stage.missing_facts)
        add_outcome(case, "error", f"never happened: {missing}" if missing else stage.note)
    elif stage.outcome is StageOutcome.REFUSED and not explained:
        add_outcome(case, "failure", stage.note or "refused")
    text = f"{stage.steps:,} steps, {stage.runs:,} runs"
    ET.SubElement(case, "system-out").text = printable(
        f"{text}, {stage.note}" if stage.note else text
    )


def _add_finding(suite: ET.Element, finding: Finding, *, fails: bool) -> None:
    violation = finding.violation
    case = new_case(suite, f"{finding.fingerprint} {violation.invariant}")
    message = f"{severity_words(violation.severity)}: {violation.sentence}"
    if finding.forms:
        message += f" (met in {len(finding.forms) + 1} forms)"
    if fails:
        failure = add_outcome(case, "failure", message)
        failure.set("type", violation.severity.value)
        failure.text = printable(plain_text(finding_report(finding)))
    else:
        add_outcome(case, "skipped", f"{finding.status.value}, does not fail the run: {message}")


def _add_ruler(root: ET.Element, certificate: Certificate) -> None:
    suite = ET.SubElement(root, "testsuite", name="ruler")
    for name in certificate.canaries_caught:
        new_case(suite, name)
    for name in certificate.canaries_missed:
        add_outcome(new_case(suite, name), "error", "this planted bug was not caught")


def _add_known(root: ET.Element, certificate: Certificate) -> None:
    if not certificate.fixed_known:
        return
    suite = ET.SubElement(root, "testsuite", name="known file")
    for fingerprint in certificate.fixed_known:
        message = "no longer fails: take it out of the known file"
        add_outcome(new_case(suite, fingerprint), "failure", message)
