"""Findings for code scanning: SARIF 2.1.0, and the annotations of GitHub's log.

Both place a finding at the line of the target's own source, as far as one is at hand. Accepted
findings stand in SARIF as suppressed, and are not annotated.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from poolproof.certification.certificate import Certificate
from poolproof.certification.finding import Finding, FindingStatus
from poolproof.certification.verdict import failing
from poolproof.invariants.catalogue import STATEMENTS
from poolproof.report.finding_report import harm_of
from poolproof.report.forms import json_text
from poolproof.report.glossary import meanings_of
from poolproof.report.source_lines import line_of

__all__ = ["annotation_lines", "sarif"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(certificate: Certificate) -> str:
    """The findings of a judged certificate as SARIF."""
    used = dict.fromkeys(finding.violation.invariant for finding in certificate.findings)
    driver = {
        "name": "Poolproof",
        "version": certificate.poolproof_version,
        "rules": [_rule(invariant) for invariant in used],
    }
    fails = {finding.fingerprint for finding in failing(certificate)}
    results = [_result(certificate, found, fails) for found in certificate.findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json_text({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def annotation_lines(certificate: Certificate) -> Iterator[str]:
    """Lines that GitHub shows at the lines of a pull request; one for each finding that fails."""
    for finding in failing(certificate):
        place = line_of(finding.whole_trace(), certificate.source)
        properties = {"title": f"Poolproof {finding.violation.invariant}, {harm_of(finding)}"}
        if place is not None:
            properties = {"file": _uri(place.path), "line": str(place.line), **properties}
        words = ",".join(f"{name}={_escaped(text, ',:')}" for name, text in properties.items())
        sentence = f"{finding.violation.sentence} ({finding.fingerprint})"
        yield f"::error {words}::{_escaped(sentence)}"


def _rule(invariant: str) -> dict[str, Any]:
    statement = STATEMENTS.get(invariant, invariant)
    rule: dict[str, Any] = {"id": invariant, "shortDescription": {"text": statement}}
    causes = [entry.causes for entry in meanings_of(invariant) if entry.causes]
    if causes:
        rule["help"] = {"text": f"What usually causes it: {causes[0]}."}
    return rule


def _result(certificate: Certificate, finding: Finding, fails: set[str]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.violation.invariant,
        "level": "error" if finding.fingerprint in fails else "note",
        "message": {"text": f"{harm_of(finding)}: {finding.violation.sentence}"},
        "partialFingerprints": {"poolproofFinding/v1": finding.fingerprint},
        "baselineState": "unchanged" if finding.status is FindingStatus.BASELINE else "new",
    }
    if finding.status is FindingStatus.KNOWN:
        result["suppressions"] = [{"kind": "external"}]
    place = line_of(finding.whole_trace(), certificate.source)
    if place is not None:
        where = {"artifactLocation": {"uri": _uri(place.path)}, "region": {"startLine": place.line}}
        result["locations"] = [{"physicalLocation": where}]
    return result


def _uri(path: Path) -> str:
    """The path from the current folder, where it is below it."""
    whole = path.resolve()
    below = whole.relative_to(Path.cwd()) if whole.is_relative_to(Path.cwd()) else whole
    return below.as_posix()


def _escaped(text: str, further: str = "") -> str:
    """As GitHub reads its commands: these characters would end a line or a property."""
    for character in ("%", "\r", "\n", *further):
        text = text.replace(character, f"%{ord(character):02X}")
    return text
