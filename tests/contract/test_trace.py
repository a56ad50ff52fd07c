"""Trace files: what was written comes back; what is damaged is refused by line and cause."""

import dataclasses
import errno
import json
import os
import stat

import pytest

from poolproof.contract.commands import Allocate, Cache, Free
from poolproof.contract.profile import Profile
from poolproof.contract.trace import (
    TRACE_VERSION,
    Trace,
    TraceError,
    read_trace,
    write_atomically,
    write_trace,
)
from poolproof.contract.trace_harm import TraceHarm
from poolproof.contract.violation import Severity, Violation

VIOLATION = Violation("I1", Severity.LEAK, "block 3 is lost", (3,), 2, ("pool.py:7 free",))
TRACE = Trace(
    target="pool.py:Pool",
    level="pool",
    profile=Profile.from_mapping({"null_block": 0, "eviction": "lifo"}),
    num_blocks=4,
    enable_caching=True,
    commands=(Allocate(2), Cache((1,), (b"\x01" * 16,)), Free((1, 2))),
    violation=VIOLATION,
    fingerprint="f-01234567",
    target_version="1.2",
    options={"seed": "0/7", "block_size": 4},
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "failure.jsonl"


def refused(path, text):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    return str(caught.value).replace(str(path), "FILE")


def with_header(**changes):
    header = {**TRACE.header(), **changes}
    return json.dumps({key: value for key, value in header.items() if value != "ABSENT"})


def test_a_written_trace_comes_back(path):
    write_trace(TRACE, path)
    assert read_trace(path) == TRACE


def test_a_trace_without_violation_comes_back(path):
    passed = TRACE.with_commands([Allocate(1)])
    assert passed.violation is None
    assert passed.fingerprint is None
    write_trace(passed, path)
    assert read_trace(path) == passed


def test_the_first_line_is_the_header_and_the_last_the_violation(path):
    write_trace(TRACE, path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 3 + 1
    header = json.loads(lines[0])
    assert (header["format"], header["version"]) == ("poolproof-trace", TRACE_VERSION)
    assert json.loads(lines[1]) == {"do": "allocate", "count": 2}
    assert json.loads(lines[-1])["violation"]["fingerprint"] == "f-01234567"


@pytest.mark.parametrize("length", ["any", 1, 32])
def test_the_length_of_hashes_comes_back(path, length):
    profile = Profile.from_mapping({"hash_bytes": length})
    trace = dataclasses.replace(TRACE, profile=profile)
    write_trace(trace, path)
    assert read_trace(path).profile == profile


def test_a_trace_that_was_written_before_hashes_had_a_length_is_read(path):
    rows = Profile().to_json()
    del rows["hash_bytes"]
    path.write_text(with_header(profile=rows, assumed=[]) + "\n", encoding="utf-8")
    assert read_trace(path).profile == Profile()


def test_a_length_that_no_hash_has_is_refused(path):
    rows = {**Profile().to_json(), "hash_bytes": 257}
    assert refused(path, with_header(profile=rows)) == (
        "FILE line 1: profile key 'hash_bytes' must be 'any' or a number of bytes from 1 to 256, "
        "not 257"
    )


def test_empty_lines_do_not_count_but_keep_line_numbers(path):
    text = f'{with_header()}\n\n{{"do": "allocate", "count": 1}}\n\n{{"do": "nothing"}}\n'
    assert refused(path, text).startswith("FILE line 5: unknown verb 'nothing'")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"cannot read trace .*absent: No such file"):
        read_trace(tmp_path / "absent")


def test_a_folder_is_no_trace(tmp_path):
    with pytest.raises(TraceError, match=r"cannot read trace .*: Is a directory"):
        read_trace(tmp_path)


def test_bytes_that_are_no_text_are_refused(path):
    path.write_bytes(b'{"format"\xff')
    with pytest.raises(TraceError, match="is not a trace: byte 9 is not UTF-8 text"):
        read_trace(path)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_an_empty_file_is_no_trace(path, text):
    assert refused(path, text) == "FILE is not a trace: it is empty"


def test_truncated_json_is_told_by_line_and_column(path):
    text = "\n".join(TRACE.lines())
    message = refused(path, text[: text.index('"count"') + 9])
    assert message.startswith("FILE line 2 is not JSON (")
    assert message.endswith("the file is damaged or cut short")


@pytest.mark.parametrize("line", ["[" * 200_000, '{"do": "allocate", "count": ' + "9" * 5000 + "}"])
def test_json_beyond_the_limits_of_python_is_refused(path, line):
    assert refused(path, f"{with_header()}\n{line}\n").startswith(
        "FILE line 2 cannot be read as JSON: "
    )


def test_json_that_is_no_object_is_refused(path):
    assert refused(path, "[1]\n") == "FILE line 1 is not a JSON object"


@pytest.mark.parametrize("text", ['{"timestamp": 1}\n', '{"format": "another"}\n'])
def test_a_foreign_file_is_told_by_its_first_line(path, text):
    assert refused(path, text) == ('FILE is not a trace: line 1 lacks "format": "poolproof-trace"')


def test_a_newer_version_asks_for_an_upgrade(path):
    assert refused(path, with_header(version=TRACE_VERSION + 1)) == (
        f"FILE has trace version {TRACE_VERSION + 1}, this Poolproof reads up to {TRACE_VERSION}; "
        "upgrade Poolproof to read it"
    )


@pytest.mark.parametrize("version", [None, "1", 0])
def test_a_version_must_be_a_number(path, version):
    assert refused(path, with_header(version=version)) == (
        f"FILE line 1: version {version!r} is not a version number"
    )


@pytest.mark.parametrize("key", ["profile", "num_blocks", "level", "target", "enable_caching"])
def test_a_header_without_a_required_field_is_refused(path, key):
    assert refused(path, with_header(**{key: "ABSENT"})) == (
        f"FILE line 1: the header lacks '{key}'"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": {"evicton": 1}}, "unknown profile key 'evicton'"),
        ({"profile": []}, "profile must be a mapping"),
        ({"num_blocks": 0}, "num_blocks must be 1 or more, not 0"),
        ({"num_blocks": True}, "num_blocks must be 1 or more, not True"),
        ({"num_blocks": "4"}, "num_blocks must be 1 or more, not '4'"),
        ({"num_blocks": 10**12}, "num_blocks must be at most"),
        ({"level": "kernel"}, "level 'kernel' is not one that this version replays"),
        ({"target": 3}, "target must be text and options an object"),
        ({"options": []}, "target must be text and options an object"),
        ({"enable_caching": 1}, "enable_caching must be true or false"),
        ({"assumed": 5}, "assumed must be a list of profile keys"),
        ({"assumed": [5]}, "assumed must be a list of profile keys"),
        ({"profile": {"null_block": 4}}, "null_block 4 is none of 4 blocks"),
        ({"options": {"block_size": 0}}, "block_size must be 1 or more, not 0"),
        ({"options": {"block_size": "x"}}, "block_size must be 1 or more, not 'x'"),
        ({"options": {"block_size": True}}, "block_size must be 1 or more, not True"),
    ],
)
def test_a_wrong_field_of_the_header_is_named(path, changes, message):
    assert refused(path, with_header(**changes)).startswith(f"FILE line 1: {message}")


def test_nothing_may_follow_the_violation(path):
    text = "\n".join([*TRACE.lines(), '{"do": "reset"}'])
    assert refused(path, text) == "FILE line 6: nothing may follow the violation"


@pytest.mark.parametrize(
    "changes",
    [
        {"severity": "terrible"},
        {"blocks": 3},
        {"blocks": ["x"]},
        {"command_index": None},
        {"command_index": float("inf")},
        {"frames": None},
    ],
)
def test_a_damaged_violation_is_refused(path, changes):
    *lines, last = TRACE.lines()
    record = json.loads(last)
    record["violation"].update(changes)
    message = refused(path, "\n".join([*lines, json.dumps(record)]))
    assert message.startswith("FILE line 5: the violation is damaged (")


@pytest.mark.parametrize("states", [{}, [3], [{"free": ["x"], "held": [], "answer": None}]])
def test_damaged_states_are_refused(path, states):
    *lines, last = TRACE.lines()
    record = json.loads(last)
    record["violation"]["shown"] = states
    text = "\n".join([*lines, json.dumps(record)])
    assert refused(path, text).startswith("FILE line 5: what the target showed is damaged (")


@pytest.mark.parametrize("violation", [None, 3, [], {}, "I1"])
def test_a_violation_that_is_no_object_is_refused(path, violation):
    text = "\n".join([with_header(), json.dumps({"violation": violation})])
    assert refused(path, text).startswith("FILE line 2: the violation is damaged (")


def test_a_violation_without_fingerprint_is_read(path):
    write_trace(Trace("t", "queue", Profile(), 1, True, (), violation=VIOLATION), path)
    assert read_trace(path).fingerprint is None


def test_a_failed_write_leaves_the_old_file_and_no_rest(path, monkeypatch):
    path.write_text("old", encoding="utf-8")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_write_into_a_missing_folder_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "absent" / "file", "text")


def test_a_write_replaces_the_whole_file(path):
    write_atomically(path, "a long text\n")
    write_atomically(path, "short\n")
    assert path.read_text(encoding="utf-8") == "short\n"


def test_a_written_file_has_the_permissions_that_umask_allows(path):
    before = os.umask(0o027)
    try:
        write_atomically(path, "text")
    finally:
        assert os.umask(before) == 0o027
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


HARM = TraceHarm(
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    invariant="DATA",
    operation="admit",
    sentence="A reads a slot of B",
    num_continuations=3,
    num_commands=40,
)


def test_the_first_line_says_the_harm(path):
    write_trace(dataclasses.replace(TRACE, harm=HARM), path)
    first = json.loads(path.read_text().splitlines()[0])
    assert first["harm"] == {
        "severity": "wrong-data-of-another",
        "invariant": "DATA",
        "operation": "admit",
        "sentence": "A reads a slot of B",
        "num_continuations": 3,
        "num_commands": 40,
        "was_tried": True,
    }
    assert read_trace(path).harm == HARM


def test_a_trace_from_before_harms_were_kept_has_none(path):
    write_trace(TRACE, path)
    assert "harm" not in path.read_text()
    assert read_trace(path).harm is None


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        ([], "it is no object"),
        ({}, "it lacks its severity"),
        ({"severity": "mild"}, "'mild' is not a valid Severity"),
        ({"severity": "leak", "sentence": 3}, "its sentence is no text"),
        ({"severity": "leak", "num_commands": -1}, "its num_commands is no count"),
        ({"severity": "leak", "was_tried": "no"}, "its was_tried is neither true nor false"),
    ],
)
def test_a_damaged_harm_is_named(path, harm, says):
    assert refused(path, with_header(harm=harm)) == f"FILE line 1: harm is damaged: {says}"


def test_other_commands_do_other_harm():
    assert dataclasses.replace(TRACE, harm=HARM).with_commands(()).harm is None
