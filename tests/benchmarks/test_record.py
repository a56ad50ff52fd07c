"""Where the figures of a benchmark go: into the build folder, and where pages quote on request."""

import argparse
import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "benchmarks" / "results"
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))


@pytest.fixture(scope="module")
def record():
    """benchmarks/record.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("_record", ROOT / "benchmarks" / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def parser(record):
    made = argparse.ArgumentParser()
    record.add_destination(made, "speed")
    return made


def test_figures_go_to_the_build_folder(parser):
    assert parser.parse_args([]).json == ROOT / "build" / "benchmarks" / "speed.json"


def test_figures_are_recorded_when_that_is_asked_for(parser):
    assert parser.parse_args(["--record"]).json == RECORDED / "speed.json"


def test_figures_go_into_the_file_that_is_named(parser):
    assert parser.parse_args(["--json", "here.json"]).json == Path("here.json")


def test_a_file_beside_the_record_is_refused(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--record", "--json", "here.json"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_a_script_says_where_its_figures_are(record, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert record.write_record(tmp_path / "build" / "speed.json", {"steps": 7})
    assert capsys.readouterr().out == "figures in build/speed.json\n"
    assert (tmp_path / "build" / "speed.json").read_text() == '{\n  "steps": 7\n}\n'


def test_a_script_that_recorded_names_what_is_left_to_do(record, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(record, "RECORDED", tmp_path)
    assert record.write_record(tmp_path / "speed.json", {})
    expected = "recorded in speed.json; make pages brings the manual up to date\n"
    assert capsys.readouterr().out == expected


def test_a_file_that_cannot_be_written_is_told_in_a_line(record, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert not record.write_record(tmp_path / "file" / "speed.json", {})
    assert capsys.readouterr().err.startswith(f"cannot write {tmp_path}/file/speed.json: ")


def calls_of(script):
    """The functions that a script calls by name, with their arguments."""
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.args


def destinations():
    return [
        arguments[1].value
        for script in SCRIPTS
        for name, arguments in calls_of(script)
        if name == "add_destination"
    ]


def test_all_that_the_manual_quotes_is_recorded_by_a_script_that_is_asked_to():
    # kernel_faults stands beside kernel_targets.
    known = {*destinations(), "kernel_faults"}
    assert {path.stem for path in RECORDED.glob("*.json")} <= known


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_no_script_names_the_folder_of_the_records_itself(script):
    constants = {
        node.value
        for node in ast.walk(ast.parse(script.read_text("utf-8")))
        if isinstance(node, ast.Constant)
    }
    assert script.stem == "record" or "results" not in constants
