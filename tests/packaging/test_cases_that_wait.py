"""Cases that wait for CI: a few run by default, and shares of the others make up the whole."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"
TESTS = """
import pytest

@pytest.mark.some(2)
@pytest.mark.parametrize("case", range(9))
def test_of_nine(case): ...

@pytest.mark.some(0)
def test_that_waits(): ...

def test_of_every_day(): ...
"""


@pytest.fixture
def collected(tmp_path):
    """What pytest would run of `TESTS` with these options, by name."""
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text("utf-8"), encoding="utf-8")
    (tmp_path / "test_waiting.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  some\n  deep\n", encoding="utf-8")

    def run(*options):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        names = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
        return names, done.stderr

    return run


def test_a_few_cases_run_by_default_and_the_others_wait(collected):
    by_default, _ = collected("-m", "not deep")
    waiting, _ = collected("-m", "deep")
    assert by_default == ["test_of_nine[0]", "test_of_nine[4]", "test_of_every_day"]
    assert len(waiting) == 8


def test_shares_make_up_what_waits_and_have_nothing_in_common(collected):
    shares = [collected("-m", "deep", "--share", f"{number}/3")[0] for number in range(3)]
    waiting, _ = collected("-m", "deep")
    assert sorted(name for share in shares for name in share) == sorted(waiting)
    assert max(map(len, shares)) - min(map(len, shares)) <= 2
    assert collected("-m", "deep", "--share", "4/3")[0] == shares[1]


def test_a_share_leaves_what_runs_by_default(collected):
    assert len(collected("-m", "not deep", "--share", "2/3")[0]) == 3


@pytest.mark.parametrize("share", ["1", "1/0", "x/3"])
def test_what_is_no_share_is_told(collected, share):
    names, said = collected("--share", share)
    assert not names
    assert "argument --share: invalid" in said
