"""Request traces in the Mooncake format: reading, expanding to block hashes, errors."""

import json

import pytest

from poolproof.harness.request_trace import (
    RequestTraceError,
    TraceRequest,
    block_hashes,
    read_requests,
    request_line,
)

GOOD = {"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}


def write(folder, *lines):
    path = folder / "requests.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def message_of(folder, *lines):
    with pytest.raises(RequestTraceError) as caught:
        read_requests(write(folder, *lines))
    return str(caught.value)


def changed(**fields):
    return json.dumps({**GOOD, **fields})


def test_a_line_is_read_as_a_request(tmp_path):
    assert read_requests(write(tmp_path, json.dumps(GOOD))) == [TraceRequest(0, 700, 5, (1, 2))]


def test_a_request_survives_being_written_and_read(tmp_path):
    request = TraceRequest(17, 513, 0, (2**64 - 1, 0))
    assert read_requests(write(tmp_path, request_line(request))) == [request]


def test_other_fields_and_empty_lines_are_ignored(tmp_path):
    path = write(tmp_path, "", changed(type="chat"), "")
    assert read_requests(path) == [TraceRequest(0, 700, 5, (1, 2))]


def test_limit_reads_no_further(tmp_path):
    assert len(read_requests(write(tmp_path, changed(), changed(), "damaged"), limit=2)) == 2


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RequestTraceError) as caught:
        read_requests(tmp_path / "absent.jsonl")
    assert str(caught.value) == (
        f"cannot read request trace {tmp_path / 'absent.jsonl'}: No such file or directory"
    )


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestTraceError) as caught:
        read_requests(path)
    assert "not UTF-8" in str(caught.value)


def test_a_file_without_requests_is_refused(tmp_path):
    assert "has no requests" in message_of(tmp_path, "", "")


def test_a_line_that_is_not_json_is_named(tmp_path):
    message = message_of(tmp_path, changed(), '{"timestamp": 0,')
    assert "requests.jsonl line 2 is not JSON" in message


def test_a_line_that_is_no_object_is_refused(tmp_path):
    assert "line 1: a request is a JSON object with timestamp" in message_of(tmp_path, "[1, 2]")


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_field_is_named(tmp_path, name):
    line = json.dumps({key: value for key, value in GOOD.items() if key != name})
    assert message_of(tmp_path, line).endswith(f"line 1: the request lacks {name}")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"input_length": -1}, "input_length must be an integer of at least 1, not -1"),
        ({"input_length": 0, "hash_ids": []}, "input_length must be an integer of at least 1"),
        ({"input_length": True}, "input_length must be an integer of at least 1, not True"),
        ({"output_length": -3}, "output_length must be an integer of at least 0, not -3"),
        ({"output_length": 1.5}, "output_length must be an integer of at least 0, not 1.5"),
        ({"timestamp": -2}, "timestamp must be a number of at least 0, not -2"),
        ({"timestamp": float("nan")}, "timestamp must be a number of at least 0, not nan"),
        ({"hash_ids": [1, -2]}, "hash_ids must be a list of integers from 0"),
        ({"hash_ids": [1, 2**64]}, "hash_ids must be a list of integers from 0"),
        ({"hash_ids": 7}, "hash_ids must be a list of integers from 0"),
        ({"hash_ids": [1]}, "input_length 700 needs 2 hash_ids of 512 tokens, but there are 1"),
        ({"hash_ids": [1, 2, 3]}, "input_length 700 needs 2 hash_ids of 512 tokens"),
    ],
)
def test_a_value_that_cannot_be_is_refused(tmp_path, fields, complaint):
    assert f"line 1: {complaint}" in message_of(tmp_path, changed(**fields))


def test_only_full_blocks_have_hashes():
    assert len(block_hashes(TraceRequest(0, 700, 5, (1, 2)), 16)) == 43
    assert len(block_hashes(TraceRequest(0, 512, 5, (1,)), 512)) == 1
    assert block_hashes(TraceRequest(0, 15, 5, (1,)), 16) == []


def test_equal_ids_behind_equal_prefixes_give_equal_hashes():
    short, long = TraceRequest(0, 700, 5, (1, 2)), TraceRequest(9, 2000, 0, (1, 2, 3, 4))
    assert block_hashes(long, 16)[:43] == block_hashes(short, 16)


def test_an_equal_id_behind_another_prefix_gives_other_hashes():
    first = block_hashes(TraceRequest(0, 1024, 5, (1, 2)), 128)
    second = block_hashes(TraceRequest(0, 1024, 5, (3, 2)), 128)
    assert not set(first) & set(second)


def test_the_blocks_of_one_request_have_distinct_hashes():
    hashes = block_hashes(TraceRequest(0, 2048, 5, (7, 7, 7, 7)), 1)
    assert len(set(hashes)) == 2048
