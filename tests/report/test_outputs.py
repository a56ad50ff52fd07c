"""Text, Markdown, JUnit and JSON of a certificate, and the files they are written to."""

import json
import os
from xml.etree import ElementTree as ET

import pytest

from poolproof.certification.baseline import baseline_of
from poolproof.certification.certificate import Certificate, FindingStatus, StageOutcome
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.trace import read_trace
from poolproof.contract.violation import Severity
from poolproof.report.certificate_document import (
    CERTIFICATE,
    certificate_document,
    verdict_line,
)
from poolproof.report.certificate_outputs import Outputs
from poolproof.report.finding_report import trace_report
from poolproof.report.forms import Form
from poolproof.report.html_form import html_page
from poolproof.report.output_files import OutputError, check_file, check_folder, write_file
from poolproof.report.text_form import plain_text


def markdown_certificate(certificate):
    return CERTIFICATE.written(certificate, Form.MARKDOWN)


def junit_certificate(certificate):
    return CERTIFICATE.written(certificate, Form.JUNIT)


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 -- it is our own


@pytest.fixture
def refused(samples):
    return judge(samples.certificate(samples.finding()), Rules())


@pytest.fixture
def held(samples):
    return judge(samples.certificate(), Rules())


def test_the_text_is_at_most_a_hundred_columns_wide(refused):
    lines = plain_text(certificate_document(refused)).splitlines()
    assert max(map(len, lines)) <= 100


def test_the_text_says_what_was_certified_and_how(held):
    text = plain_text(certificate_document(held))
    for words in (
        "poolproof 0.1.0, contract 1, depth quick, seed 7, 2 workers",
        "target        pool.py:Pool pool 2.0 (native), pool.py (sha256 0123456789ab)",
        "profile       null_block 0, eviction lru",
        "assumed       duplicates kept, recache replace",
        "limits        10 s a call",
        "pool    plain driver    123,456   1,000     2/2   holds",
        "ruler         2/2 canaries caught",
        "never called  unpin_blocks",
        "not run       manager level: not part of this version",
        "not covered   threads",
        "verdict       HOLDS  (14 s)",
    ):
        assert words in text


def test_the_text_of_a_refusal_draws_the_finding_and_says_what_is_next(refused):
    text = plain_text(certificate_document(refused, {"f-7d3f0a11": "out/f-7d3f0a11.jsonl"}))
    assert "REFUSED f-7d3f0a11 (IDX)" in text
    assert "> 5  lookup(a)" in text
    assert "verdict       REFUSED: 1 new  (14 s)" in text
    assert text.splitlines()[-1] == "next          poolproof show out/f-7d3f0a11.jsonl"


def test_commands_to_paste_stand_on_one_line_however_long_their_file_names(refused):
    long = f"{'folder/' * 30}f-7d3f0a11.jsonl"
    lines = plain_text(certificate_document(refused, {"f-7d3f0a11": long})).splitlines()
    assert f"  replay     poolproof replay {long}" in lines
    assert f"  as a test  poolproof show {long} --as pytest" in lines
    assert lines[-1] == f"next          poolproof show {long}"
    assert all(len(line) <= 100 for line in lines if long not in line)


def test_the_verdict_counts_what_did_not_fail(samples):
    known = samples.finding("f-00000001")
    made = samples.certificate(samples.finding(), known)
    judged = judge(made, Rules(baseline=baseline_of(samples.certificate(known))))
    assert verdict_line(judged) == "REFUSED: 1 new, 1 baseline"


def test_an_inconclusive_verdict_says_why(samples):
    judged = judge(samples.certificate(canaries_missed=("A1",)), Rules())
    assert verdict_line(judged) == "INCONCLUSIVE: canary not caught: A1"


def test_the_markdown_has_a_row_for_each_stage(refused):
    text = markdown_certificate(refused)
    assert text.startswith("# REFUSED: 1 new\n")
    assert "| level | stage | steps | runs | facts | result |" in text
    assert (
        "| pool | plain driver | 123,456 | 1,000 | 2/2 | REFUSED f-7d3f0a11 (IDX) |"
        in text.splitlines()
    )
    assert "      > 5  lookup(a)" in text


def test_markdown_of_a_target_cannot_break_the_table(samples):
    judged = judge(samples.certificate(source="a | b\n<script>"), Rules())
    assert "| source | a \\| b \\<script\\> |" in markdown_certificate(judged)


def test_junit_has_a_suite_a_level_and_a_case_a_stage_and_finding(refused):
    root = parsed(junit_certificate(refused))
    cases = {
        (suite.get("name"), case.get("name")): case
        for suite in root
        for case in suite.iter("testcase")
    }
    assert ("queue", "state machine") in cases
    assert ("ruler", "A1 wrong count") in cases
    failure = cases["pool", "f-7d3f0a11 IDX"].find("failure")
    assert failure.get("type") == "wrong-data-of-another"
    assert "> 5  lookup(a)" in failure.text
    assert cases["queue", "state machine"].find("skipped").get("message") == "no queue"
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("5", "1", "1")


def test_every_form_of_a_finding_is_listed_in_all_outputs(samples, tmp_path):
    form = samples.of_severity(Severity.LEAK, "f-00000002")
    judged = judge(samples.certificate(samples.finding(forms=(form,))), Rules())
    line = "also met   f-00000002  IDX, leak of blocks, lookup, 5 commands: lookup of hash"
    text = plain_text(certificate_document(judged))
    assert line in text
    assert "REFUSED f-7d3f0a11 (IDX, 2 forms)" in text
    assert line in markdown_certificate(judged)
    assert line in junit_certificate(judged)
    assert "(met in 2 forms)" in junit_certificate(judged)
    files = Outputs(folder=tmp_path / "out").write(judged)
    assert set(files) == {"f-7d3f0a11", "f-00000002"}
    assert (tmp_path / "out" / "f-00000002.jsonl").exists()


def test_of_many_forms_each_invariant_is_named(samples):
    """Forms are told by likeness: what broke another invariant may be another bug."""

    def form(number, invariant):
        found = samples.of_severity(Severity.LEAK, f"f-0000{number:04}")
        broken = samples.replace(found.violation, invariant=invariant)
        trace = samples.replace(found.trace, violation=broken)
        return samples.replace(found, violation=broken, trace=trace)

    forms = [form(number, "IDX") for number in range(12)]
    forms += [form(12, "I1"), form(13, "I1"), form(14, "ORD")]
    judged = judge(samples.certificate(samples.finding(forms=tuple(forms))), Rules())
    text = plain_text(certificate_document(judged))
    assert "REFUSED f-7d3f0a11 (IDX, I1, ORD, 16 forms)" in text
    listed = [line for line in text.splitlines() if "of blocks, lookup, 5 commands" in line]
    assert len(listed) == 8
    assert sum("f-00000012  I1," in line or "f-00000014  ORD," in line for line in listed) == 2
    assert "and in 7 more forms: 6 IDX, 1 I1" in text


def test_junit_skips_a_finding_that_does_not_fail(samples):
    rules = Rules(baseline=baseline_of(samples.certificate(samples.finding())))
    judged = judge(samples.certificate(samples.finding()), rules)
    assert judged.findings[0].status is FindingStatus.BASELINE
    root = parsed(junit_certificate(judged))
    assert root.get("failures") == "0"


def test_junit_calls_an_inconclusive_stage_an_error(samples):
    made = samples.certificate()
    stage = samples.replace(made.stages[1], outcome=StageOutcome.INCONCLUSIVE, facts_reached=())
    root = parsed(junit_certificate(judge(samples.replace(made, stages=(stage,)), Rules())))
    assert root.get("errors") == "1"
    assert root.find(".//error").get("message") == "never happened: a refusal, an eviction"


def test_junit_survives_control_characters(samples):
    found = samples.finding()
    violation = samples.replace(found.violation, sentence="bell \x07 & <tag>")
    judged = judge(samples.certificate(samples.replace(found, violation=violation)), Rules())
    failure = parsed(junit_certificate(judged)).find(".//failure")
    assert failure.get("message").endswith("bell \\x07 & <tag>")


def test_every_form_can_be_written_whatever_a_target_says_of_itself(samples, tmp_path):
    hostile = "half \ud83d, \x1b[2Jorder, \u202eback, \x00 nul, </testsuites> `|` <script>\rover"
    found = samples.finding()
    violation = samples.replace(found.violation, sentence=hostile, frames=(hostile,))
    trace = samples.replace(found.trace, target=hostile, violation=violation)
    found = samples.replace(found, violation=violation, trace=trace, remark=hostile)
    made = samples.certificate(
        found, target=hostile, source=hostile, target_version=hostile, platform=hostile,
        notes=(hostile,), not_covered=(hostile,), never_called=(hostile,), behaves_as=hostile,
    )  # fmt: skip
    judged = judge(made, Rules())
    files = {form: tmp_path / f"c.{form}" for form in ("json", "xml", "md")}
    out = tmp_path / "report-\udcff"
    Outputs(files["json"], files["xml"], files["md"], out).write(judged)
    assert Certificate.from_json(json.loads(files["json"].read_text())) == judged
    assert parsed(files["xml"].read_text()).find(".//failure") is not None
    texts = [*files.values(), *out.iterdir()]
    assert len(texts) >= 9
    for path in texts:
        text = path.read_text(encoding="utf-8")
        assert not {"\x1b", "\u202e", "\x00", "\r"} & set(text)
        assert path.suffix != ".xml" or "<script>" not in text
    page = html_page(trace_report(trace))
    assert not {"\x1b", "\u202e", "\x00", "\r", "\ud83d"} & set(page)
    assert "<script>" not in page


def test_json_is_read_back(refused, tmp_path):
    path = tmp_path / "c.json"
    Outputs(json_file=path, folder=tmp_path / "report").write(refused)
    assert Certificate.from_json(json.loads(path.read_text())) == refused


def test_a_report_folder_gets_every_form(refused, tmp_path):
    out = tmp_path / "a" / "report"
    outputs = Outputs(folder=out)
    outputs.check()
    files = outputs.write(refused)
    assert {path.name for path in out.iterdir()} == {
        "certificate.json",
        "certificate.md",
        "certificate.html",
        "certificate.txt",
        "certificate.sarif",
        "badge.svg",
        "known.toml",
        "junit.xml",
        "f-7d3f0a11.jsonl",
        "f-7d3f0a11.txt",
    }
    trace = read_trace(out / "f-7d3f0a11.jsonl")
    assert trace.fingerprint == "f-7d3f0a11"
    assert files == {"f-7d3f0a11": str(out / "f-7d3f0a11.jsonl")}


def test_without_a_report_folder_traces_are_kept_out_of_version_control(refused, folder):
    Outputs().write(refused)
    assert (folder / ".poolproof" / "findings" / "f-7d3f0a11.jsonl").is_file()
    assert (folder / ".poolproof" / "findings" / ".gitignore").read_text() == "*\n"


def test_nothing_is_left_behind_when_nothing_was_found(held, folder):
    Outputs().write(held)
    assert list(folder.iterdir()) == []


def test_traces_that_cannot_be_kept_are_no_error(refused, folder, capsys):
    (folder / ".poolproof").write_text("a file is in the way")
    assert Outputs().write(refused) == {}
    assert "the traces are not kept: cannot make folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("none/c.json", "there is no folder"),
        (".", "it is a folder"),
        ("pipe", "it is not a regular file"),
    ],
)
def test_a_file_that_cannot_be_written_is_found_before(folder, place, message):
    os.mkfifo(folder / "pipe")
    with pytest.raises(OutputError) as caught:
        check_file(folder / place)
    assert message in str(caught.value)


def test_writing_does_not_put_a_file_in_the_place_of_a_pipe(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(OutputError):
        write_file(folder / "pipe", "text")
    assert (folder / "pipe").is_fifo()


def test_a_folder_below_a_file_is_refused(folder):
    (folder / "plain").write_text("kept")
    with pytest.raises(OutputError) as caught:
        check_folder(folder / "plain" / "report")
    assert "cannot make folder" in str(caught.value)
    assert (folder / "plain").read_text() == "kept"


def test_checking_leaves_what_is_there(folder):
    (folder / "c.json").write_text("old")
    check_file(folder / "c.json")
    assert (folder / "c.json").read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["c.json"]


def test_a_failed_write_leaves_what_is_there(folder, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    (folder / "c.json").write_text("old")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OutputError) as caught:
        write_file(folder / "c.json", "new")
    assert "No space left on device" in str(caught.value)
    assert (folder / "c.json").read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["c.json"]


def test_a_folder_that_refuses_files_is_found_before(folder, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    for check, path in ((check_file, folder / "c.json"), (check_folder, folder)):
        with pytest.raises(OutputError) as caught:
            check(path)
        assert str(caught.value) == f"cannot write {path}: Permission denied"
