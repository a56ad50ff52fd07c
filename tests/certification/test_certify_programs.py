"""`certify`, `replay` and `explore` with programs: exit statuses and what is said."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from poolproof.certification.jobs import run_chunk
from poolproof.certification.run_kinds import POOL, Chunk
from poolproof.cli.command_line import main
from poolproof.harness.isolation import Beacon
from poolproof.targets.load import load_target

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = ROOT / "tests" / "targets" / "hostile_program.py"


DIES_AT_ITS_FOURTH_COMMAND = """
import json, sys
from poolproof.reference.native_pool import NativeDictPool

HELLO = {"protocol": 1, "name": "dies", "level": "pool", "profile": {"misuse": "undefined"},
         "verbs": ["allocate", "touch", "free", "cache", "lookup"], "observers": []}
given = 0
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"seq": asked["seq"]}
    if asked["do"] == "start":
        answer.update(HELLO)
    if asked["do"] == "run":
        pool = NativeDictPool(asked["num_blocks"], enable_caching=asked["enable_caching"])
        answer["state"] = {"num_free": pool.num_free()}
    answer["answers"] = []
    for command in asked.get("commands", ()):
        given += 1
        if given == 4:
            sys.exit(3)
        verb = command.pop("do")
        arguments = [
            [bytes.fromhex(text) for text in value] if name == "hashes"
            else bytes.fromhex(value) if name == "block_hash" else value
            for name, value in command.items()
        ]
        one = {"result": getattr(pool, verb)(*arguments)}
        answer["answers"].append({**one, "num_free": pool.num_free()})
    print(json.dumps(answer), flush=True)
"""


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def hostile(how):
    return f"cmd:{shlex.join([sys.executable, str(HOSTILE), how])}"


@pytest.mark.parametrize(
    ("target", "wrong"),
    [
        ("cmd:./no/such/program", "there is no program ./no/such/program"),
        (hostile("other-version"), "it speaks version 4 of the protocol"),
        (hostile("chatty"), "is not JSON"),
    ],
)
def test_a_program_that_cannot_be_asked_is_told_in_one_line(target, wrong):
    result = run("certify", target, "--depth", "quick", "--in-process")
    assert result.exit_code == 2
    assert wrong in result.output
    assert len(result.output.strip().splitlines()) == 1


@pytest.mark.some(0)
def test_a_program_that_dies_is_refused_with_its_last_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("explore", hostile("exits"), "--blocks", "1", "--workers", "1")
    assert result.exit_code == 1, result.output
    said = " ".join(result.output.split())
    assert "ended with exit status 3; its last words: giving up" in said


@pytest.mark.deep
def test_a_program_that_never_answers_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--depth", "quick", "--in-process", "--json", "c.json")
    result = run("certify", hostile("no-answers"), *options)
    assert result.exit_code == 1, result.output
    certificate = json.loads(Path("c.json").read_text())
    runs = {stage["stage"]: stage["runs"] for stage in certificate["stages"]}
    assert runs["opaque hashes, plain driver"] == 3
    assert "opaque hashes, production sizes" not in runs
    assert "gave 0 answers to 1 commands" in " ".join(result.output.split())


def chunk_of(name):
    beacon = Beacon(memoryview(bytearray(64)).cast("Q"))
    return run_chunk(load_target(name), Chunk(POOL, 0, 0, 20), beacon)


def test_a_program_that_never_answers_is_given_up_after_three_runs():
    result = chunk_of(hostile("no-answers"))
    assert result.in_vain
    assert result.num_runs == result.num_failing_runs == 3


@pytest.mark.deep
def test_a_program_that_dies_later_is_given_more_runs(tmp_path):
    path = tmp_path / "dies.py"
    path.write_text(DIES_AT_ITS_FOURTH_COMMAND)
    result = chunk_of(f"cmd:{shlex.join([sys.executable, str(path)])}")
    assert not result.in_vain
    assert result.num_runs > 3


def test_a_trace_is_replayed_on_the_program_that_it_names(tmp_path):
    from poolproof.contract.commands import Allocate
    from poolproof.contract.profile import Profile
    from poolproof.contract.trace import Trace, write_trace

    path = tmp_path / "trace.jsonl"
    write_trace(Trace(hostile("error"), "pool", Profile(), 2, True, (Allocate(1),)), path)
    result = run("replay", str(path), "--in-process")
    assert result.exit_code == 1, result.output
    assert "assertion failed: refs > 0" in " ".join(result.output.split())
