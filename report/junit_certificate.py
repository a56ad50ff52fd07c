"""Certificates in JUnit's XML, which every CI system shows as tests.

An allocator gets one suite per level with a case for each stage and finding, a kernel one suite
with a case for each check and finding; then come one for the canaries and one for the known file.
A finding that does not fail the run is a skipped case; what could not be concluded is an error, not
a failure.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from poolproof.certification.certificate import Certificate, StageOutcome, StageResult
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.certification.verdict import JudgedCertificate, JudgedFinding, failing
from poolproof.contract.outside import printable
from poolproof.contract.violation import Severity
from poolproof.kernels.findings import NOT_APPLICABLE, NOT_RUN, UNSEEN, WEAKER, CheckLine
from poolproof.report.finding_report import finding_report, plain_text
from poolproof.report.wording import severity_words

__all__ = ["junit_certificate", "junit_kernel_certificate"]


def junit_certificate(certificate: Certificate) -> str:
    """A judged certificate as an XML document."""
    root = ET.Element("testsuites", name=f"poolproof {printable(certificate.target)}")
    levels = [stage.level for stage in certificate.stages]
    levels += [finding.level for finding in certificate.findings]
    for level in dict.fromkeys(levels):
        _add_level(root, certificate, level)
    return _document(root, certificate)


def junit_kernel_certificate(certificate: KernelCertificate) -> str:
    """The same of a kernel."""
    root = ET.Element("testsuites", name=f"poolproof {printable(certificate.target)}")
    suite = ET.SubElement(root, "testsuite", name="kernel")
    for line in certificate.run.lines:
        _add_check(suite, line)
    for finding in certificate.findings:
        seen = finding.seen
        case = _new_case(suite, f"{finding.fingerprint} {seen.check}")
        message = f"{severity_words(seen.severity)}: {seen.sentence}"
        report = "\n".join((message, seen.words, *seen.frames))
        _add_finding(
            case,
            finding,
            seen.severity,
            message,
            report if finding in failing(certificate) else None,
        )
    return _document(root, certificate)


def _add_level(root: ET.Element, certificate: Certificate, level: str) -> None:
    suite = ET.SubElement(root, "testsuite", name=level)
    findings = [finding for finding in certificate.findings if finding.level == level]
    for stage in certificate.stages:
        if stage.level == level:
            _add_stage(suite, stage, explained=bool(findings))
    for finding in findings:
        violation = finding.violation
        case = _new_case(suite, f"{finding.fingerprint} {violation.invariant}")
        message = f"{severity_words(violation.severity)}: {violation.sentence}"
        if finding.forms:
            message += f" (met in {len(finding.forms) + 1} forms)"
        report = plain_text(finding_report(finding)) if finding in failing(certificate) else None
        _add_finding(case, finding, violation.severity, message, report)


def _add_stage(suite: ET.Element, stage: StageResult, *, explained: bool) -> None:
    case = _new_case(suite, stage.stage, stage.seconds)
    if stage.outcome is StageOutcome.NOT_RUN:
        _add_outcome(case, "skipped", stage.note or "not run")
    elif stage.outcome is StageOutcome.INCONCLUSIVE:
        missing = ", ".join(stage.missing_facts)
        _add_outcome(case, "error", f"never happened: {missing}" if missing else stage.note)
    elif stage.outcome is StageOutcome.REFUSED and not explained:
        _add_outcome(case, "failure", stage.note or "refused")
    text = f"{stage.steps:,} steps, {stage.runs:,} runs"
    ET.SubElement(case, "system-out").text = printable(
        f"{text}, {stage.note}" if stage.note else text
    )


def _add_check(suite: ET.Element, line: CheckLine) -> None:
    case = _new_case(suite, line.name)
    if line.result in {NOT_APPLICABLE, WEAKER}:
        _add_outcome(case, "skipped", line.note or line.result)
    elif line.result in {NOT_RUN, UNSEEN}:
        _add_outcome(case, "error", line.note or line.result)
    text = f"{line.examples:,} examples, {line.compared:,} outputs"
    ET.SubElement(case, "system-out").text = text


def _add_finding(
    case: ET.Element, finding: JudgedFinding, severity: Severity, message: str, report: str | None
) -> None:
    """The outcome of a finding; one that fails the run comes with its report."""
    if report is None:
        text = f"{finding.status.value}, does not fail the run: {message}"
        _add_outcome(case, "skipped", text)
        return
    failure = _add_outcome(case, "failure", message)
    failure.set("type", severity.value)
    failure.text = printable(report)


def _document(root: ET.Element, certificate: JudgedCertificate[JudgedFinding]) -> str:
    """The whole document: with the suites that every certificate has, and each suite's counts."""
    ruler = ET.SubElement(root, "testsuite", name="ruler")
    for name in certificate.canaries_caught:
        _new_case(ruler, name)
    for name in certificate.canaries_missed:
        _add_outcome(_new_case(ruler, name), "error", "this planted bug was not caught")
    if certificate.fixed_known:
        known = ET.SubElement(root, "testsuite", name="known file")
        for fingerprint in certificate.fixed_known:
            message = "no longer fails: take it out of the known file"
            _add_outcome(_new_case(known, fingerprint), "failure", message)
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
        suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _new_case(suite: ET.Element, name: str, seconds: float = 0.0) -> ET.Element:
    """A test case that passes until it gets an outcome."""
    classname = f"poolproof.{suite.get('name')}"
    return ET.SubElement(
        suite, "testcase", classname=classname, name=printable(name), time=f"{seconds:.3f}"
    )


def _add_outcome(case: ET.Element, kind: str, message: str) -> ET.Element:
    """A "failure", an "error" or "skipped", with text that XML can hold.

    XML has no way to write control characters, and a target's message may hold any.
    """
    return ET.SubElement(case, kind, message=printable(message))
