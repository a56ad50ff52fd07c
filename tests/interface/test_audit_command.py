"""`poolproof audit`: one line, an exit status, and files that other commands read."""

from __future__ import annotations

import json

import pytest

from poolproof.cli.command_line import main
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import FULL
from poolproof.contract.recording import RecordingWriter, named_request
from poolproof.contract.step_record import ComputedTokens, StepRecord


def part(name, tokens, first, *table):
    return ComputedTokens(
        name, TokenChain(tuple(tokens)), first, len(tokens) - first, (table,), True
    )


RIGHT = StepRecord(1, (part("writer", [1, 2, 3], 0, 1, 2),))
WRONG = StepRecord(2, (part("reader", [9, 2, 3], 2, 1, 3),))


@pytest.fixture
def record(tmp_path, monkeypatch):
    """Writes steps into a file of the current folder."""
    monkeypatch.chdir(tmp_path)

    def write(*steps):
        with RecordingWriter("steps.gz", 8, FULL, [2]) as writer:
            for step in steps:
                writer.record(step)

    return write


@pytest.fixture
def poolproof(runner):
    """A command: its exit status, its standard output, its standard error."""

    def run(*arguments):
        done = runner.invoke(main, list(arguments))
        return done.exit_code, done.stdout, done.stderr

    return run


def test_a_right_recording_is_one_line_and_status_0(poolproof, record):
    record(RIGHT)
    assert poolproof("audit", "steps.gz") == (
        0,
        (
            "no sequence read a slot that was not computed for it in 1 step: look at kernels and "
            "numerics\n"
        ),
        "",
    )


def test_a_wrong_read_is_one_line_and_status_1_and_leaves_files_that_replay(
    poolproof, record, tmp_path
):
    record(RIGHT, WRONG)
    status, out, _ = poolproof("audit", "steps.gz", "--json", "found.json", "--report", ".")
    first, told = out.splitlines()
    assert (status, first) == (
        1,
        (
            f"step 2: request {named_request('reader')} reads at position 0 (group 0, block 1, "
            f"slot 0) KV that was computed for request {named_request('writer')} in step 1"
        ),
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["steps"], found["findings"][0]["written_in"], found["holds"]) == (2, 1, False)
    assert told == "trace written to steps.story.jsonl; next: poolproof replay steps.story.jsonl"
    status, out, _ = poolproof("replay", "steps.story.jsonl", "--in-process")
    assert status == 1
    assert "request B reads at position 0" in out
    _, test, _ = poolproof("show", "steps.story.jsonl", "--as", "pytest")
    assert "recording:steps.story.gz" in test


def test_an_id_from_the_servers_log_finds_its_request(poolproof, record):
    record(RIGHT, WRONG)
    _, out, _ = poolproof("audit", "steps.gz", "--request", "reader")
    assert out.startswith(f"request {named_request('reader')} is reader\n")


def test_what_cannot_be_judged_is_one_line_and_status_2(poolproof, record, tmp_path):
    assert poolproof("audit", "none.gz") == (
        2, "", "poolproof: cannot read none.gz: No such file or directory\n",
    )  # fmt: skip
    record()
    status, out, _ = poolproof("audit", "steps.gz")
    assert (status, out) == (2, "steps.gz has no step: nothing was judged\n")
    (tmp_path / "new.gz").write_text('{"format": "poolproof-recording", "version": 9}\n')
    status, _, err = poolproof("audit", "new.gz")
    assert (status, err.count("\n")) == (2, 1)
    assert "recording version 9, this Poolproof reads up to 1" in err
    status, _, err = poolproof("audit", "steps.gz", "--json", "no/folder.json")
    assert (status, err.count("\n")) == (2, 1)
