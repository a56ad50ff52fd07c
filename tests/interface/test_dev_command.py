"""`poolproof dev`: certifies again when a file changes, and says what to write next."""

from pathlib import Path

import pytest

POOL = "class Pool:\n    def allocate(self, n): ...\n    def free(self, block_ids): ...\n"


@pytest.fixture
def edits(monkeypatch):
    """What happens while `dev` waits, one after another; then Ctrl-C."""
    waiting = []

    def sleep(_):
        if not waiting:
            raise KeyboardInterrupt
        waiting.pop(0)()

    monkeypatch.setattr("poolproof.cli.dev_command.time.sleep", sleep)
    return waiting


@pytest.fixture
def certified(monkeypatch, samples):
    """The targets that were certified; each holds."""
    from poolproof.certification.verdict import Rules, judge

    targets = []

    def certify(target, *, progress, **options):
        targets.append((target, options["depth"]))
        return judge(samples.certificate(), Rules())

    monkeypatch.setattr("poolproof.api.certify", certify)
    return targets


def test_a_file_is_certified_again_when_it_changes(poolproof, edits, certified):
    Path("mine.py").write_text(POOL)
    edits += [lambda: None, lambda: Path("mine.py").write_text(POOL + "\n")]
    edits += [lambda: Path("helper.py").write_text("x = 1\n")]
    done = poolproof("dev", "mine.py", "--profile", "eviction=lifo")
    assert done.exit_code == 0
    assert certified == [("mine.py:Pool[eviction=lifo]", "quick")] * 3
    assert done.stderr.count("waiting for mine.py to change") == 3


def test_a_mistake_in_the_file_is_said_and_waited_for(poolproof, edits, certified):
    Path("mine.py").write_text("class Pool(\n")
    edits += [lambda: Path("mine.py").write_text(POOL)]
    done = poolproof("dev", "mine.py")
    assert "mine.py cannot be read" in done.stderr
    assert certified == [("mine.py:Pool", "quick")]


def test_of_several_classes_one_has_to_be_named(poolproof, edits, certified):
    Path("mine.py").write_text(f"{POOL}class Other: ...\n")
    done = poolproof("dev", "mine.py")
    assert "name the class: poolproof dev mine.py:CLASS; it has Pool, Other" in done.stderr
    assert done.exit_code == 2
    assert poolproof("dev", "mine.py:Other", "--depth", "deep").exit_code == 0
    assert certified == [("mine.py:Other", "deep")]


@pytest.mark.parametrize("name", ["nowhere.py", "pool.txt", "impl"])
def test_what_is_no_file_is_said_with_how_to_start_one(poolproof, name):
    done = poolproof("dev", name)
    assert done.exit_code == 2
    assert "is no Python file; `poolproof new" in done.output


@pytest.mark.parametrize(
    ("shell", "place"),
    [
        ("bash", "share/bash-completion/completions/poolproof"),
        ("fish", "config/fish/completions/poolproof.fish"),
        ("zsh", ".zfunc/_poolproof"),
    ],
)
def test_completion_is_put_where_the_shell_looks(poolproof, folder, monkeypatch, shell, place):
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(folder / "share"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    done = poolproof("completion", "--install")
    assert done.exit_code == 0, done.output
    assert "_POOLPROOF_COMPLETE" in (folder / place).read_text()
    assert (folder / place).read_text() == poolproof("completion", shell).output


def test_a_shell_that_is_not_known_has_to_be_named(poolproof, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/dash")
    done = poolproof("completion")
    assert (done.exit_code, "name the shell: bash, zsh, fish" in done.output) == (2, True)


def test_what_a_shell_asks_is_answered(poolproof, monkeypatch, runner):
    from poolproof.cli.command_line import main

    asked = {
        "_POOLPROOF_COMPLETE": "bash_complete",
        "COMP_WORDS": "poolproof exp",
        "COMP_CWORD": "1",
    }
    done = runner.invoke(main, [], prog_name="poolproof", env=asked)
    assert [line for line in done.output.splitlines() if line] == ["plain,explain", "plain,explore"]
