"""The report on a kernel in JUnit's XML: a case for each check, one for each faulty kernel.

The forms are those of an allocator's certificate: a finding that does not fail the run is a
skipped case, what could not be concluded an error.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from poolproof.contract.outside import printable
from poolproof.kernels.report import NOT_APPLICABLE, NOT_RUN, UNSEEN, WEAKER, KernelReport
from poolproof.report.junit_xml import add_outcome, document, new_case
from poolproof.report.wording import severity_words

__all__ = ["kernels_junit"]


def kernels_junit(report: KernelReport) -> str:
    """A judged report as an XML document."""
    root = ET.Element("testsuites", name=f"poolproof {printable(report.target)}")
    suite = ET.SubElement(root, "testsuite", name="kernel")
    for line in report.lines:
        case = new_case(suite, line.name)
        if line.result in {NOT_APPLICABLE, WEAKER}:
            add_outcome(case, "skipped", line.note or line.result)
        elif line.result in {NOT_RUN, UNSEEN}:
            add_outcome(case, "error", line.note or line.result)
        text = f"{line.examples:,} examples, {line.compared:,} outputs"
        ET.SubElement(case, "system-out").text = text
    for finding in report.findings:
        case = new_case(suite, f"{finding.fingerprint} {finding.check}")
        message = f"{severity_words(finding.severity)}: {finding.sentence}"
        if finding in report.failing:
            failure = add_outcome(case, "failure", message)
            failure.set("type", finding.severity.value)
            failure.text = printable("\n".join((message, finding.words, *finding.frames)))
        else:
            add_outcome(case, "skipped", f"{finding.status}, does not fail the run: {message}")
    _add_ruler(root, report)
    _add_known(root, report)
    return document(root)


def _add_ruler(root: ET.Element, report: KernelReport) -> None:
    suite = ET.SubElement(root, "testsuite", name="ruler")
    for name in report.canaries_caught:
        new_case(suite, name)
    for name in report.canaries_missed:
        add_outcome(new_case(suite, name), "error", "this planted bug was not caught")


def _add_known(root: ET.Element, report: KernelReport) -> None:
    if not report.fixed_known:
        return
    suite = ET.SubElement(root, "testsuite", name="known file")
    for fingerprint in report.fixed_known:
        message = "no longer fails: take it out of the known file"
        add_outcome(new_case(suite, fingerprint), "failure", message)
