"""What 0.1.0 wrote can still be read: traces, a certificate as a baseline, a campaign's folder.

The files were written by that version over `planted.py`. A format that changes is read in its old
form as well, or says so; these files are never written anew.
"""

import gzip
import json
from pathlib import Path

import pytest

import poolproof

OLD = Path(__file__).resolve().parent / "0.1.0"
FOUND = {"queue": "OWN", "pool": "IDX", "manager": "I1"}


@pytest.fixture(autouse=True)
def where_it_was_written(tmp_path, monkeypatch):
    """A folder from which the targets have the paths that the files name."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "compatibility").symlink_to(OLD.parent)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("level", FOUND)
def test_a_trace_replays_to_its_violation(level):
    outcome = poolproof.replay(OLD / f"{level}.jsonl", in_process=True)
    assert outcome.num_left_out == 0
    assert outcome.violation is not None
    assert outcome.violation.invariant == FOUND[level]


@pytest.mark.parametrize("level", FOUND)
def test_a_trace_is_written_as_it_was(level):
    lines = (OLD / f"{level}.jsonl").read_text(encoding="utf-8").splitlines()
    written = [json.loads(line) for line in poolproof.Trace.from_lines(lines).lines()]
    for old, new in zip(map(json.loads, lines), written, strict=True):
        assert holds(new, old)


def holds(new, old):
    """Whether everything that was written is there; rows and fields may have been added."""
    if isinstance(old, dict):
        return all(name in new and holds(new[name], value) for name, value in old.items())
    return new == old


@pytest.mark.some(0)
def test_a_certificate_is_a_baseline():
    certificate = poolproof.certify(
        "tests/compatibility/planted.py:Manager",
        depth="quick",
        baseline=OLD / "certificate.json",
        in_process=True,
    )
    known = [found for found in certificate.findings if found.violation.invariant == "I1"]
    assert known, "the bug is still found"
    assert {found.status for found in known} == {poolproof.FindingStatus.BASELINE}


def test_a_campaign_is_shown_and_goes_on(poolproof, tmp_path):
    folder = tmp_path / "campaign"
    folder.mkdir()
    packed = (OLD / "campaign.sqlite.gz").read_bytes()
    (folder / "campaign.sqlite").write_bytes(gzip.decompress(packed))
    shown = poolproof("show", folder)
    assert shown.exit_code == 1, shown.output
    assert "3,905 steps in 12 runs" in shown.output
    again = poolproof(
        "fuzz", "tests/compatibility/planted.py:Pool", "--blocks", "3", "--steps", "1000",
        "--folder", folder, "--in-process",
    )  # fmt: skip
    assert again.exit_code == 1, again.output
    assert "f-7536e4d8" in again.output
