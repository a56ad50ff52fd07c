"""SARIF, annotations and badges: findings at the lines of the target's own source."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from poolproof.certification.finding import FindingStatus
from poolproof.certification.verdict import Rules, judge
from poolproof.report.badge import badge
from poolproof.report.code_scanning import annotation_lines, sarif
from poolproof.report.source_lines import line_of

POOL = """\
class Other:
    def lookup(self): ...


class Pool:
    x = 1

    def lookup(self): ...
"""


@pytest.fixture
def refused(samples, folder):
    """A refused certificate of pool.py, whose finding names no line where it raised."""
    (folder / "pool.py").write_text(POOL)
    finding = samples.finding()
    quiet = replace(finding.violation, frames=())
    finding = replace(finding, violation=quiet, trace=replace(finding.trace, violation=quiet))
    return judge(samples.certificate(finding), Rules())


def test_a_finding_stands_at_the_method_of_its_last_command(refused, folder):
    (result,) = json.loads(sarif(refused))["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "pool.py"}, "region": {"startLine": 8}}
    assert (result["ruleId"], result["level"]) == ("IDX", "error")
    assert result["partialFingerprints"] == {"poolproofFinding/v1": "f-7d3f0a11"}


def test_where_the_target_raised_that_line_is_named(samples, folder):
    (folder / "pool.py").write_text(POOL + "\n" * 100)
    assert line_of(samples.trace()).line == 88  # "pool.py:88 lookup"


def test_a_class_without_the_method_is_named_itself(samples, folder):
    (folder / "pool.py").write_text("class Pool:\n    pass\n")
    quiet = replace(samples.trace().violation, frames=())
    found = line_of(samples.trace(violation=quiet))
    assert (found.line, found.text) == (1, "class Pool:")


@pytest.mark.parametrize("target", ["impl", "cmd:./pool", "nowhere.py:Pool", "package.module:Pool"])
def test_where_no_file_is_at_hand_no_line_is_named(samples, folder, target):
    assert line_of(samples.trace(target=target)) is None


def test_a_module_is_found_from_the_current_folder(samples, folder):
    (folder / "package").mkdir()
    (folder / "package" / "module.py").write_text(POOL)
    quiet = replace(samples.trace().violation, frames=())
    assert line_of(samples.trace(target="package.module:Pool", violation=quiet)).line == 8


def test_what_is_accepted_is_suppressed_and_not_annotated(refused):
    known = replace(refused.findings[0], status=FindingStatus.KNOWN)
    accepted = replace(refused, findings=(known,))
    (result,) = json.loads(sarif(accepted))["runs"][0]["results"]
    assert (result["level"], result["suppressions"]) == ("note", [{"kind": "external"}])
    assert list(annotation_lines(accepted)) == []


def test_an_annotation_is_one_line_whatever_the_sentence_says(refused):
    finding = refused.findings[0]
    bad = replace(finding.violation, sentence="100%\n::error::injected")
    finding = replace(finding, violation=bad, trace=replace(finding.trace, violation=bad))
    (line,) = annotation_lines(replace(refused, findings=(finding,)))
    assert "\n" not in line
    assert line.startswith("::error file=pool.py,line=8,title=Poolproof IDX%2C ")
    assert "::100%25%0A::error::injected (f-7d3f0a11)" in line


def test_a_badge_says_verdict_and_depth(refused, samples):
    held = judge(samples.certificate(), Rules())
    for certificate, words in ((refused, "refused, 1 finding"), (held, "holds, quick")):
        picture = ET.fromstring(badge(certificate))  # noqa: S314 - we wrote it
        assert words in [element.text for element in picture.iter()]


def test_a_certificate_is_shown_in_each_form(poolproof, refused, folder):
    (folder / "c.json").write_text(json.dumps(refused.to_json()))
    assert "f-7d3f0a11" in poolproof("show", "c.json").output
    assert poolproof("show", "c.json", "--as", "badge", "-o", "b.svg").exit_code == 0
    assert (folder / "b.svg").read_text() == badge(refused)
    assert json.loads(poolproof("show", "c.json", "--as", "sarif").output)["version"] == "2.1.0"
    done = poolproof("show", "c.json", "--as", "pytest")
    assert (done.exit_code, "name the trace of a finding" in done.output) == (2, True)
    (folder / "other.json").write_text("{}")
    done = poolproof("show", "other.json")
    assert (done.exit_code, "not a certificate" in done.output) == (2, True)
