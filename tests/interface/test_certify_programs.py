"""`certify`, `replay` and `explore` with programs: exit statuses and what is said."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from poolproof.command_line import main

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = ROOT / "tests" / "targets" / "hostile_program.py"


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def hostile(how):
    return f"cmd:{shlex.join([sys.executable, str(HOSTILE), how])}"


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("cmd:./no/such/program", "there is no program ./no/such/program"),
        (hostile("other-version"), "it speaks version 2 of the protocol"),
        (hostile("chatty"), "is not JSON"),
    ],
)
def test_a_program_that_cannot_be_asked_is_told_in_one_line(target, wrong):
    result = run("certify", target, "--level", "quick", "--in-process")
    assert result.exit_code == 2
    assert wrong in result.output
    assert len(result.output.strip().splitlines()) == 1


def test_a_program_that_dies_is_refused_with_its_last_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("explore", hostile("exits"), "--blocks", "1", "--workers", "1")
    assert result.exit_code == 1, result.output
    said = " ".join(result.output.split())
    assert "ended with exit status 3; its last words: giving up" in said


def test_a_trace_is_replayed_on_the_program_that_it_names(tmp_path):
    from poolproof.contract.commands import Allocate
    from poolproof.contract.profile import Profile
    from poolproof.contract.trace import Trace, write_trace

    path = tmp_path / "trace.jsonl"
    write_trace(Trace(hostile("error"), "pool", Profile(), 2, True, (Allocate(1),)), path)
    result = run("replay", str(path), "--in-process")
    assert result.exit_code == 1, result.output
    assert "assertion failed: refs > 0" in " ".join(result.output.split())


@pytest.mark.deep
def test_every_example_is_certified_and_its_bug_refused():
    subprocess.run(["make", "examples"], cwd=ROOT, check=True)
    script = ROOT / "examples" / "certify_all.py"
    done = subprocess.run([sys.executable, script], cwd=ROOT, check=False)
    assert done.returncode == 0
