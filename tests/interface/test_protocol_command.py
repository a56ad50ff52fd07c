"""`poolproof protocol`: the conversation that it shows, and what it says is wrong."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from poolproof.cli.command_line import main
from poolproof.cli.protocol_conversations import SchemaChecker, schema_text
from poolproof.harness.isolation.process_tree import FINDS_ALL
from poolproof.targets.command_messages import continue_text, run_text, start_text, stop_text

SERVE = f"cmd:{shlex.quote(sys.executable)} -m poolproof.targets.serve"
HOSTILE = Path(__file__).resolve().parents[1] / "targets" / "hostile_program.py"
HOSTILE_ENGINE = HOSTILE.with_name("hostile_engine.py")


def run(*arguments):
    return CliRunner().invoke(main, ["protocol", *arguments])


def hostile(how):
    return f"cmd:{shlex.join([sys.executable, str(HOSTILE), how])}"


def test_smoke_shows_each_line_of_a_right_program():
    result = run("smoke", f"{SERVE} impl")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0] == 'sent      {"seq":1,"do":"start","protocol":3}'
    assert lines[1].startswith('received  {"seq":1,"protocol":3,')
    assert any('"refused"' in line for line in lines)
    assert lines[-1].startswith("fine")


def test_smoke_gives_hashes_of_the_length_that_the_program_says():
    result = run("smoke", f"{SERVE} 'impl[hash_bytes=5]'")
    assert result.exit_code == 0, result.output
    assert '"hashes":["0101010101","0202020202"]' in result.output


@pytest.mark.some(0)
@pytest.mark.parametrize("how", ["smoke", pytest.param("validate", marks=pytest.mark.deep)])
def test_a_row_in_brackets_counts_where_the_program_does_not_say_it(how):
    program = f"{SERVE} 'poolproof.bugs.oddities:WideRowsPool[hash_bytes=any]'"
    assert run(how, program).exit_code == 1
    result = run(how, f"{program}[hash_bytes=32]")
    assert result.exit_code == 0, result.output


def test_a_program_that_refuses_every_version_but_the_first_is_asked_again():
    result = run("smoke", hostile("strict-version-1"))
    starts = [line for line in result.output.splitlines() if '"do":"start"' in line]
    assert [line[-2] for line in starts] == ["3", "2", "1"]
    assert '"do":"run"' in result.output


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["impl-manager", "reference-manager"])
def test_managers_converse_and_both_sides_keep_to_the_schema(name):
    result = run("smoke", f"{SERVE} {name}")
    assert result.exit_code == 0, result.output
    assert '"do":"admit"' in result.output
    assert any(f'"result":"{word}"' in result.output for word in ("later", "never"))
    result = run("validate", f"{SERVE} {name}", "--tapes", "6")
    assert result.exit_code == 0, result.output


@pytest.mark.deep
def test_engines_converse_and_both_sides_keep_to_the_schema():
    result = run("smoke", f"{SERVE} impl-engine")
    assert result.exit_code == 0, result.output
    for verb in ("submit", "plan", "answer", "cancel"):
        assert f'"do":"{verb}"' in result.output
    result = run("validate", f"{SERVE} impl-engine", "--tapes", "4")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        ("version-2", "engines have been in it since version 3"),
        ("dies-in-plan", "it ended with exit status 3; its last words: no free block"),
        ("block-beyond", "plan(): "),
        ("too-many", "plan(): "),
        ("silent", "a plan must be a mapping, not None"),
        ("outputs-as-object", "are not a list of (request, tokens, ended)"),
        ("never-ends", "nobody was given a token"),
        ("load-without-end", "has no arrived() to be told of its end"),
    ],
)
def test_smoke_says_in_one_line_what_is_wrong_with_an_engine(how, wrong):
    result = run("smoke", f"cmd:{shlex.join([sys.executable, str(HOSTILE_ENGINE), how])}")
    assert result.exit_code == 1, result.output
    last = result.output.splitlines()[-1]
    assert last.startswith("wrong")
    assert wrong in last


@pytest.mark.parametrize(
    ("verb", "result", "fault"),
    [
        ("plan", '{"compute":[{"request":0}]}', "$.compute[0]"),
        ("plan", "{}", "'compute' is a required property"),
        ("answer", "[[0,[1]]]", "$[0]"),
    ],
)
def test_the_result_of_a_step_has_a_schema(verb, result, fault):
    checker = SchemaChecker()
    command = {"plan": '{"do":"plan"}', "answer": '{"do":"answer","tokens":[],"drafts":[]}'}[verb]
    checker.hear("sent", continue_text(3, [command]))
    checker.hear("received", '{"seq":3,"answers":[{"result":' + result + "}]}")
    assert fault in checker.faults[0]


def test_smoke_converses_with_a_queue():
    result = run("smoke", f"{SERVE} impl-queue")
    assert result.exit_code == 0, result.output
    assert '"do":"popleft"' in result.output


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        ("other-version", "it speaks version 4 of the protocol"),
        ("garbage", "is not JSON"),
        ("exits", "it ended with exit status 3; its last words: giving up"),
        ("refuses", "allocate(2)"),
    ],
)
def test_smoke_says_what_is_wrong_behind_the_line(how, wrong):
    result = run("smoke", hostile(how))
    assert result.exit_code == 1, result.output
    *conversation, last = result.output.splitlines()
    assert conversation[0].startswith("sent")
    assert last.startswith("wrong")
    assert wrong in last


def test_smoke_gives_up_a_program_that_hangs():
    result = run("smoke", hostile("hangs"), "--timeout", "3")
    assert result.exit_code == 1, result.output
    assert "did not answer within the time limit" in result.output


def test_only_programs_speak_the_protocol():
    result = run("smoke", "impl")
    assert result.exit_code == 2
    assert "is no program" in result.output


def test_a_program_that_is_not_there_cannot_be_asked():
    result = run("validate", "cmd:./no/such/program")
    assert result.exit_code == 2
    assert "there is no program" in result.output


def test_a_right_program_is_valid():
    result = run("validate", f"{SERVE} impl", "--tapes", "4")
    assert result.exit_code == 0, result.output
    assert "lines are as the schemas say" in result.output


def test_the_schema_is_one():
    Draft202012Validator.check_schema(json.loads(schema_text()))


def test_the_schema_takes_what_we_send():
    checker = SchemaChecker()
    command = '{"do":"allocate","count":2}'
    for line in (
        start_text(1),
        run_text(2, 4, True, "state", [command]),
        continue_text(3, [command]),
        stop_text(4),
    ):
        checker.hear("sent", line)
    assert checker.faults == []


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ('{"seq":2}', "'answers' is a required property"),
        ('{"seq":2,"answers":[{"num_free":"3"}]}', "'3' is not of type 'integer'"),
        ('{"seq":2,"answers":[{"block_hashes":["xyz"]}]}', "$.answers[0].block_hashes[0]"),
        ('{"seq":2,"answers":[{"result":[0],"refused":"no"}]}', "$.answers[0]"),
        ('{"seq":2,"answers":[', "is not JSON"),
    ],
)
def test_a_wrong_line_is_named_with_its_place(answer, fault):
    checker = SchemaChecker()
    checker.hear("sent", run_text(2, 4, True, "state", []))
    checker.hear("received", answer)
    assert len(checker.faults) == 1
    assert fault in checker.faults[0]
    assert checker.faults[0].startswith("line 2")


def test_validate_says_where_a_program_breaks_the_schema():
    result = run("validate", hostile("no-name"))
    assert result.exit_code == 1
    assert "$.name" in result.output


@pytest.mark.skipif(not FINDS_ALL, reason="needs Linux's subreapers and /proc")
def test_what_a_program_started_ends_with_the_conversation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],\n"
        "                     start_new_session=True, stdout=subprocess.DEVNULL)\n"
        "open('pid', 'w').write(str(p.pid))\n"
        "print('no protocol')\n"
    )
    assert run("smoke", f"cmd:{sys.executable} program.py").exit_code != 0
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text()}").exists()
