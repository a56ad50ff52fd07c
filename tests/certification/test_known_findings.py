"""The known file: what it may say, and the message for what it may not."""

import datetime as dt

import pytest

from poolproof.certification.finding import Identity
from poolproof.certification.known_findings import (
    KnownFileError,
    KnownFinding,
    entries_for,
    read_known_findings,
)
from poolproof.contract.misuse import MisuseFailure, MisuseKind, MisuseOutcome
from poolproof.contract.violation import Severity
from poolproof.harness.failure_kind import FailureKind

ENTRY = """
[[finding]]
fingerprint = "f-7d3f09c2"
invariant = "MISUSE"
severity = "crash"
operation = "free"
misuse = "block not held: raised another error"
link = "https://example.org/12"
reason = "fixed upstream"
until = 2026-12-31
"""


FORM = """
[[finding.forms]]
fingerprint = "f-00000002"
invariant = "I1"
severity = "leak"
operation = "free"
"""

KIND = FailureKind(
    "MISUSE",
    Severity.CRASH,
    "free",
    MisuseFailure(MisuseKind.BLOCK_NOT_HELD, MisuseOutcome.RAISED),
)


def read(tmp_path, text):
    path = tmp_path / "known.toml"
    path.write_text(text)
    return read_known_findings(path, dt.date(2026, 1, 1))


def test_an_entry_is_read(tmp_path):
    assert read(tmp_path, ENTRY).valid_for("impl") == (
        KnownFinding(
            (Identity("f-7d3f09c2", KIND),),
            "https://example.org/12",
            "fixed upstream",
            dt.date(2026, 12, 31),
        ),
    )


def test_further_forms_belong_to_their_entry(tmp_path):
    (entry,) = read(tmp_path, ENTRY + FORM).entries
    form = Identity("f-00000002", FailureKind("I1", Severity.LEAK, "free"))
    assert entry.accepted == (Identity("f-7d3f09c2", KIND), form)


def test_what_is_written_for_a_finding_is_read_again(tmp_path, samples):
    form = samples.of_severity(Severity.LEAK, "f-00000002")
    odd = samples.replace(form.violation, sentence='says "\\\x07"\n[[finding]]\x7f')
    finding = samples.finding(forms=(samples.replace(form, violation=odd),))
    text = entries_for([finding])
    with pytest.raises(KnownFileError, match="field 'link' is empty"):
        read(tmp_path, text)
    said = text.replace('link = ""', 'link = "x"').replace('reason = ""', 'reason = "y"')
    found = read(tmp_path, said.replace('until = ""', "until = 2026-12-31"))
    (entry,) = found.valid_for("pool.py:Pool")
    assert entry.accepted == tuple(form.identity for form in finding.each_form)


def test_an_entry_without_its_kind_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(KnownFileError) as caught:
        read(tmp_path, ENTRY.replace('severity = "crash"', ""))
    assert "finding 1 (f-7d3f09c2) lacks severity: by its fingerprint alone" in str(caught.value)
    assert "known.toml" in str(caught.value)


def test_a_date_in_quotes_is_read(tmp_path):
    found = read(tmp_path, ENTRY.replace("2026-12-31", '"2026-12-31"'))
    assert found.entries[0].until == dt.date(2026, 12, 31)


@pytest.mark.parametrize(
    "value", ["9" * 5_000, "[" * 2_000 + "]" * 2_000, "{a=" * 2_000 + "1" + "}" * 2_000]
)
def test_what_python_cannot_read_is_no_bug_of_ours(tmp_path, value):
    with pytest.raises(KnownFileError, match="is not TOML"):
        read(tmp_path, f"{ENTRY}extra = {value}\n")


def test_an_empty_file_accepts_nothing(tmp_path):
    assert read(tmp_path, "").entries == ()


def test_one_fingerprint_may_stand_once_a_target(tmp_path):
    two = ENTRY + 'target = "vllm"' + ENTRY + 'target = "impl"'
    assert len(read(tmp_path, two).entries) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[finding", "known.toml is not TOML"),
        (ENTRY.replace("until", "untill"), "finding 1: unknown field 'untill'"),
        (ENTRY.replace("link", "#"), "finding 1 lacks the field 'link'"),
        (ENTRY.replace("2026-12-31", '"soon"'), "finding 1 field 'until' must be a date"),
        (ENTRY.replace("until = 2026-12-31", ""), "finding 1 lacks the field 'until'"),
        (ENTRY.replace("f-7d3f09c2", "7d3f"), "finding 1 field 'fingerprint' must be f- and 8"),
        (ENTRY.replace('"fixed upstream"', "3"), "finding 1 field 'reason' must be text, not 3"),
        (ENTRY.replace('"crash"', '"bad"'), "finding 1 field 'severity' must be one of"),
        (ENTRY.replace("block not held: ", ""), "finding 1 field 'misuse' must be what was wrong"),
        (ENTRY.replace("misuse", "#"), "finding 1 (f-7d3f09c2) lacks the field 'misuse'"),
        (ENTRY.replace("fixed upstream", " "), "finding 1 field 'reason' is empty"),
        (ENTRY + "forms = 3", "finding 1 field 'forms' must be a list"),
        (ENTRY + FORM + "link = 'x'", "finding 1 form 1: unknown field 'link'"),
        (ENTRY + FORM.replace("f-00000002", "f-2"), "finding 1 form 1 field 'fingerprint' must"),
        (ENTRY + FORM.replace("f-00000002", "f-7d3f09c2"), "finding 1 repeats its fingerprint"),
        (ENTRY + ENTRY, "finding 2 repeats the fingerprint of finding 1, f-7d3f09c2"),
        ("[finding]\nlink = 'x'", "write [[finding]] with two brackets"),
        ("findings = 1", "unknown key 'findings'"),
        ("finding = [3]", "finding 1 is not an object but 3"),
    ],
)
def test_an_error_names_file_entry_and_field(tmp_path, text, message):
    with pytest.raises(KnownFileError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert str(tmp_path / "known.toml") in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(KnownFileError) as caught:
        read_known_findings(tmp_path / "none.toml")
    assert "none.toml: No such file" in str(caught.value)


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "known.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(KnownFileError) as caught:
        read_known_findings(tmp_path / "known.toml")
    assert "byte 0 is not UTF-8" in str(caught.value)
