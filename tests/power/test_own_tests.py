"""A target's own tests on mutants that are made while Python loads them."""

import shlex
import sys

import pytest

from poolproof.contract.target import TargetError
from poolproof.power.mutation import Source
from poolproof.power.own_tests import OwnTests
from poolproof.power.planting import candidates, compiled, functions_of


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A module with two functions, in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    path = tmp_path / "counted.py"
    path.write_text("def up(n):\n    return n + 1\n\n\ndef down(n):\n    return n - 1\n")
    return Source("counted", path, path.read_bytes())


def mutations(source):
    code = compiled(source.text, source.path)
    places = {(code.co_name, code.co_firstlineno) for _, code in functions_of(code)}
    found = candidates(source, places)
    return [m for m in found if m.operator == "arithmetic swapped"]


def python(code):
    """A command that runs code."""
    return shlex.join([sys.executable, "-c", code])


CHECK_UP = "import sys; sys.path.insert(0, '.'); import counted; assert counted.up(1) == 2"


def test_the_command_refuses_the_mutant_that_it_tests_and_no_other(source):
    tests = OwnTests(python(CHECK_UP), [source], 2)
    up, down = tests.judge(mutations(source))
    assert (up.refused, down.refused) == (True, False)


@pytest.mark.some(0)
def test_the_verdict_is_the_line_that_names_the_failed_test(source):
    (source.path.parent / "test_counted.py").write_text(
        "import counted\n\ndef test_up():\n    assert counted.up(1) == 2\n"
    )
    command = f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider test_counted.py"
    tests = OwnTests(command, [source], 1)
    up, down = tests.judge(mutations(source))
    assert up.sentence.startswith("FAILED test_counted.py::test_up")
    assert not down.refused


def test_nothing_of_a_mutant_is_written(source):
    text = source.path.read_text()
    tests = OwnTests(python(CHECK_UP), [source], 1)
    list(tests.judge(mutations(source)))
    assert source.path.read_text() == text
    # What is cached is the original, from the run without a mutant, if anything.
    done = OwnTests(python(CHECK_UP), [source], 1)
    assert done.never_loaded == ()


def test_a_command_that_fails_unmutated_is_refused_with_its_last_lines(source):
    with pytest.raises(TargetError) as caught:
        OwnTests(python("print('broken before'); raise SystemExit(3)"), [source], 1)
    assert "fails on the unmutated target (exit status 3)" in str(caught.value)
    assert "broken before" in str(caught.value)


def test_a_command_that_never_loads_the_source_is_refused(source):
    with pytest.raises(TargetError) as caught:
        OwnTests(python("pass"), [source], 1)
    assert "never loads" in str(caught.value)


@pytest.mark.parametrize(
    ("command", "said"),
    [("", "the command is empty"), ("'", "cannot be read"), ("./none", "cannot be started")],
)
def test_a_command_that_is_none_is_refused(source, command, said):
    with pytest.raises(TargetError) as caught:
        OwnTests(command, [source], 1)
    assert said in str(caught.value)


def test_a_hidden_sitecustomize_runs_as_well(source, monkeypatch):
    folder = source.path.parent / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import builtins\nbuiltins.hidden_one = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    tests = OwnTests(python(f"assert hidden_one; {CHECK_UP}"), [source], 1)
    assert [verdict.refused for verdict in tests.judge(mutations(source))] == [True, False]


def test_a_module_that_the_tests_never_load_is_named(source):
    other = source.path.parent / "alone.py"
    other.write_text("def f(a):\n    return a + 1\n")
    alone = Source("alone", other, other.read_bytes())
    tests = OwnTests(python(CHECK_UP), [source, alone], 1)
    (verdict,) = tests.judge(mutations(alone))
    assert tests.never_loaded == ("alone",)
    assert (verdict.refused, verdict.sentence) == (False, "the module is never loaded")
