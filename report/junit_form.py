"""Results as JUnit's XML, which every CI system shows as tests: suites, and cases with outcomes.

XML has no way to write control characters, and a target's message may hold any: they are shown.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from poolproof.contract.outside import printable

__all__ = ["CaseOutcome", "JunitCase", "JunitSuite", "junit"]


class CaseOutcome(enum.Enum):
    """What became of a case.

    A finding that does not fail the run is a skipped case; what could not be concluded is an error,
    not a failure.
    """

    PASSED = "passed"
    FAILURE = "failure"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitCase:
    """One case. `message` is a line on its outcome, `report` the whole of it, `kind` its type.

    `output` is what the case printed, None where it prints nothing.
    """

    name: str
    seconds: float = 0.0
    outcome: CaseOutcome = CaseOutcome.PASSED
    message: str = ""
    report: str | None = None
    kind: str = ""
    output: str | None = None


@dataclass(frozen=True, slots=True)
class JunitSuite:
    """Cases under a name."""

    name: str
    cases: tuple[JunitCase, ...]


def junit(name: str, suites: Iterable[JunitSuite]) -> str:
    """An XML document with each suite's counts; `name` is that of the whole."""
    root = ET.Element("testsuites", name=printable(f"poolproof {name}"))
    for suite in suites:
        element = ET.SubElement(root, "testsuite", name=printable(suite.name))
        for case in suite.cases:
            _add_case(element, suite.name, case)
    for element in (root, *root):
        cases = list(element.iter("testcase"))
        element.set("tests", str(len(cases)))
        for attribute, tag in (
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            element.set(attribute, str(sum(case.find(tag) is not None for case in cases)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_case(suite: ET.Element, suite_name: str, case: JunitCase) -> None:
    element = ET.SubElement(
        suite,
        "testcase",
        classname=f"poolproof.{printable(suite_name)}",
        name=printable(case.name),
        time=f"{case.seconds:.3f}",
    )
    if case.outcome is not CaseOutcome.PASSED:
        outcome = ET.SubElement(element, case.outcome.value, message=printable(case.message))
        if case.kind:
            outcome.set("type", case.kind)
        if case.report is not None:
            outcome.text = printable(case.report)
    if case.output is not None:
        ET.SubElement(element, "system-out").text = printable(case.output)
