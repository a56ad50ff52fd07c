"""The group of commands as a process: help, exit statuses, and where errors end."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof import __version__
from poolproof.cli.command_line import drivers_are_compiled, main


def run(*arguments, **changes):
    command = [sys.executable, "-m", "poolproof", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **changes)


def test_help_lists_the_commands_without_importing_them():
    code = (
        "import sys; from poolproof.cli.command_line import drivers_are_compiled, main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'rich', 'hypothesis', 'poolproof.targets'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in ("certify", "replay", "shrink", "show", "list", "new", "workload"):
        assert f"\n  {name} " in done.stdout


def test_the_version_is_printed():
    built = ", compiled drivers" if drivers_are_compiled() else ""
    assert run("--version").stdout == f"poolproof {__version__}{built}\n"


def test_an_unknown_command_exits_with_2():
    done = run("fly")
    assert done.returncode == 2
    assert "No such command 'fly'" in done.stderr


def test_list_names_the_built_in_targets():
    done = run("list")
    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert {"impl", "impl-queue", "reference", "reference-queue", "vllm"} <= set(names)


@pytest.mark.some(0)
def test_an_expected_error_is_one_line(tmp_path):
    done = run("show", "none.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == ("poolproof: cannot read trace none.jsonl: No such file or directory\n")


def test_an_unknown_target_exits_with_2(tmp_path):
    done = run("certify", "nope", "--depth", "quick", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown target 'nope'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_violation(tmp_path):
    command = f"{shlex.quote(sys.executable)} -m poolproof list; echo status $? >&2"
    done = subprocess.run(
        ["sh", "-c", f"({command}) | true"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert "status 1" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def broken(monkeypatch):
    def fail():
        raise RuntimeError("we are wrong")

    monkeypatch.setattr("poolproof.targets.catalogue.catalogue", fail)


def test_a_bug_of_ours_says_so_and_exits_with_2(broken, runner):
    result = runner.invoke(main, ["list"])
    assert result.exit_code == 2
    assert result.stderr.startswith("poolproof: this is a bug in Poolproof")
    assert "RuntimeError: we are wrong (test_command_line.py line" in result.stderr
    assert "Report it with what `poolproof --debug ...` prints" in result.stderr
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback(broken, runner):
    result = runner.invoke(main, ["--debug", "list"])
    assert result.exit_code == 2
    assert "Traceback" in result.stderr


def test_an_interrupt_concludes_nothing(monkeypatch, runner):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr("poolproof.targets.catalogue.catalogue", interrupted)
    result = runner.invoke(main, ["list"])
    assert result.exit_code == 2
    assert "interrupted, nothing was concluded" in result.stderr


def test_new_writes_a_skeleton_that_imports(poolproof):
    result = poolproof("new", "mine.py")
    assert result.exit_code == 0
    assert "poolproof certify mine.py:Pool --depth quick" in result.output
    subprocess.run([sys.executable, "-W", "error", "mine.py"], check=True)


def test_the_skeleton_as_it_is_leads_to_the_method_to_write(poolproof):
    poolproof("new", "mine.py")
    result = poolproof("certify", "mine.py:Pool", "--depth", "quick")
    assert result.exit_code == 1
    assert "NotImplementedError: write num_free(): how many blocks can" in result.stdout
    assert "Traceback" not in result.output


def test_new_does_not_overwrite(poolproof):
    Path("mine.py").write_text("precious")
    result = poolproof("new", "mine.py")
    assert result.exit_code == 2
    assert "mine.py exists already and is left as it is" in result.output
    assert Path("mine.py").read_text() == "precious"


def test_new_says_what_is_wrong_with_the_place(poolproof):
    assert "there" not in poolproof("new", "ok.py").output
    missing = poolproof("new", "none/mine.py")
    assert (missing.exit_code, "cannot write none/mine.py: No such" in missing.output) == (2, True)
    assert "give it a name in .py" in poolproof("new", "mine.txt").output
