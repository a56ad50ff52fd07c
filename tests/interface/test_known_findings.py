"""The known file: what it may say, and the message for what it may not."""

import datetime as dt

import pytest

from poolproof.known_findings import KnownFileError, KnownFinding, read_known_findings

ENTRY = """
[[finding]]
fingerprint = "f-7d3f09c2"
link = "https://example.org/12"
reason = "fixed upstream"
until = 2026-12-31
"""


def read(tmp_path, text):
    path = tmp_path / "known.toml"
    path.write_text(text)
    return read_known_findings(path, dt.date(2026, 1, 1))


def test_an_entry_is_read(tmp_path):
    assert read(tmp_path, ENTRY).valid_for("impl") == (
        KnownFinding(
            "f-7d3f09c2", "https://example.org/12", "fixed upstream", dt.date(2026, 12, 31)
        ),
    )


def test_a_date_in_quotes_is_read(tmp_path):
    found = read(tmp_path, ENTRY.replace("2026-12-31", '"2026-12-31"'))
    assert found.entries[0].until == dt.date(2026, 12, 31)


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
