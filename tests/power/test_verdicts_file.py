"""The file of verdicts: what is taken from it, what is begun anew, and what is refused."""

import json
from pathlib import Path

import pytest

from poolproof.power.mutation import Mutation
from poolproof.power.own_tests import OwnVerdict
from poolproof.power.power_jobs import Judged
from poolproof.power.power_run import VerdictsFile
from poolproof.report.output_files import OutputError

FACTS = {"targets": ["impl"], "level": "quick"}
JUDGED = Judged("plain", "I1", "block 1 is free", 3, ("plain",))
OWN = OwnVerdict(refused=True, sentence="FAILED test")


@pytest.fixture(autouse=True)
def quick_digest(monkeypatch):
    monkeypatch.setattr("poolproof.power.power_run.digest_of_code", lambda: "0123456789ab")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "verdicts.jsonl"


def mutant(start=7):
    return Mutation(
        module="right", path=Path("right.py"), function="free", operator="statement deleted",
        lines=(1, 1), start=start, end=9, text="pass", before="x()", after="pass",
    )  # fmt: skip


def filled(path):
    with VerdictsFile(path, FACTS) as known:
        known.keep_judged(mutant(), JUDGED)
        known.keep_own(mutant(), "pytest", OWN)
    return path.read_text()


def test_verdicts_are_found_again(path):
    filled(path)
    with VerdictsFile(path, FACTS) as known:
        assert known.judged(mutant()) == JUDGED
        assert known.own(mutant(), "pytest") == OWN
        assert known.note == f"2 verdicts are taken from {path}"


def test_another_mutant_and_another_command_have_no_verdict(path):
    filled(path)
    with VerdictsFile(path, FACTS) as known:
        assert known.judged(mutant(start=8)) is None
        assert known.own(mutant(), "pytest -x") is None


def test_a_line_that_was_cut_short_is_dropped(path):
    text = filled(path)
    path.write_text(text[:-5])
    with VerdictsFile(path, FACTS) as known:
        assert known.judged(mutant()) == JUDGED
        assert known.own(mutant(), "pytest") is None
        known.keep_own(mutant(), "pytest", OWN)
    assert path.read_text() == text


def test_a_file_of_another_run_is_begun_anew(path):
    filled(path)
    with VerdictsFile(path, {**FACTS, "level": "deep"}) as known:
        assert known.judged(mutant()) is None
        assert "all is judged anew" in known.note
    assert len(path.read_text().splitlines()) == 1


def test_a_file_of_other_code_is_begun_anew(path, monkeypatch):
    filled(path)
    monkeypatch.setattr("poolproof.power.power_run.digest_of_code", lambda: "ba9876543210")
    with VerdictsFile(path, FACTS) as known:
        assert known.judged(mutant()) is None


def test_without_a_path_nothing_is_kept():
    with VerdictsFile(None, FACTS) as known:
        known.keep_judged(mutant(), JUDGED)
        assert known.note == ""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"my notes\n", 'line 1 lacks "format"'),
        (b"my notes", 'line 1 lacks "format"'),
        (b"[1]\n", 'line 1 lacks "format"'),
        (b"\xff\xfe\n", "it is not UTF-8 text"),
    ],
)
def test_a_file_of_something_else_is_left_alone(path, content, said):
    path.write_bytes(content)
    with pytest.raises(OutputError, match=said), VerdictsFile(path, FACTS):
        pass
    assert path.read_bytes() == content


@pytest.mark.parametrize("line", ["{", "[]", "{}", '{"edit": ["a", 1, 2, "b"], "own": {"x": 1}}'])
def test_a_damaged_line_is_named(path, line):
    filled(path)
    with path.open("a") as stream:
        stream.write(line + "\n")
    with (
        pytest.raises(OutputError, match=r"line 4 is (no verdict|not JSON)"),
        VerdictsFile(path, FACTS),
    ):
        pass


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with (
        pytest.raises(OutputError, match="No such file"),
        VerdictsFile(tmp_path / "none" / "f", FACTS),
    ):
        pass


def test_two_runs_do_not_share_a_file(path):
    with (
        VerdictsFile(path, FACTS),
        pytest.raises(OutputError, match="in use by another run"),
        VerdictsFile(path, FACTS),
    ):
        pass


def test_each_verdict_is_on_disk_at_once(path):
    with VerdictsFile(path, FACTS) as known:
        known.keep_judged(mutant(), JUDGED)
        assert json.loads(path.read_text().splitlines()[1])["judged"]["invariant"] == "I1"
