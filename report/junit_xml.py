"""JUnit's XML: documents, test cases and their outcomes, with text that XML can hold.

XML has no way to write control characters, and a target's message may hold any.

Which suites and cases there are is decided by whoever writes a report.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from poolproof.contract.outside import printable

__all__ = ["add_outcome", "document", "new_case"]


def document(root: ET.Element) -> str:
    """The whole document, each suite with its counts."""
    for suite in (root, *root):
        cases = list(suite.iter("testcase"))
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
        suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def new_case(suite: ET.Element, name: str, seconds: float = 0.0) -> ET.Element:
    """A test case that passes until it gets an outcome."""
    classname = f"poolproof.{suite.get('name')}"
    return ET.SubElement(
        suite, "testcase", classname=classname, name=printable(name), time=f"{seconds:.3f}"
    )


def add_outcome(case: ET.Element, kind: str, message: str) -> ET.Element:
    """A "failure", an "error" or "skipped"."""
    return ET.SubElement(case, kind, message=printable(message))
