"""`[tool.poolproof]`: what `certify` without a target runs, and what is said of mistakes in it."""

from pathlib import Path

import pytest

from poolproof.project_file import ProjectFileError, find_project

WHOLE = """
[tool.poolproof]
targets = ["impl", {target = "impl-queue", depth = "deep", profile = {eviction = "lifo"}}]
depth = "quick"
known = "known.toml"
report = "out"
fail-on = ["crash", "leak"]
"""


@pytest.fixture
def certified(monkeypatch):
    """What the command would certify: (target, arguments, outputs) of each run, which passes."""
    runs = []

    def certify(target, arguments, outputs, *, annotate):
        if target == "impl-index":
            from poolproof import TargetError

            raise TargetError("it is gone")
        runs.append((target, arguments, outputs))
        return 1 if target == "impl-manager" else 0

    monkeypatch.setattr("poolproof.cli.certify_command._certify", certify)
    return runs


def written(text, name="pyproject.toml"):
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)


def test_each_target_is_certified_with_its_options(poolproof, certified, folder, monkeypatch):
    written(WHOLE)
    written("", "below/pyproject.toml")  # without the table it is passed over
    monkeypatch.chdir("below")
    done = poolproof("certify")
    assert done.exit_code == 0, done.output
    assert [target for target, _, _ in certified] == ["impl", "impl-queue[eviction=lifo]"]
    (_, first, outputs), (_, second, _) = certified
    assert [str(first["depth"]), str(second["depth"])] == ["quick", "deep"]
    assert [severity.value for severity in first["fail_on"]] == ["crash", "leak"]
    assert first["known"] == Path("known.toml")
    assert Path.cwd() == folder
    assert outputs.folder == Path("out/1-impl")
    assert "== impl-queue" in done.output


def test_the_command_line_comes_first_and_means_the_folder_it_is_in(
    poolproof, certified, folder, monkeypatch
):
    written(WHOLE.replace('["impl", {target = "impl-queue"', '[{target = "impl"'))
    Path("below").mkdir()
    monkeypatch.chdir("below")
    done = poolproof("certify", "--depth", "standard", "--json", "c.json", "--known", "k.toml")
    assert done.exit_code == 0, done.output
    ((_, arguments, outputs),) = certified
    assert str(arguments["depth"]) == "standard"
    assert arguments["known"] == folder / "below" / "k.toml"
    assert outputs.json_file == folder / "below" / "c.json"
    assert outputs.folder == Path("out")


def test_the_worst_of_all_targets_is_the_exit_status(poolproof, certified, folder):
    written('[tool.poolproof]\ntargets = ["impl-index", "impl"]\n')
    done = poolproof("certify")
    assert (done.exit_code, "it is gone" in done.stderr) == (2, True)
    assert len(certified) == 1
    written('[tool.poolproof]\ntargets = ["impl-manager", "impl-index", "impl"]\n')
    assert poolproof("certify").exit_code == 1


def test_without_a_file_the_target_is_missing(poolproof):
    done = poolproof("certify")
    assert done.exit_code == 2
    assert "TARGET is missing" in done.output
    assert "or list targets in [tool.poolproof]" in done.output


def test_an_empty_target_is_no_request_for_the_project(poolproof, certified):
    written(WHOLE)
    assert "TARGET is empty (is a variable unset?)" in poolproof("certify", "").output
    assert certified == []


def test_one_file_cannot_take_two_certificates(poolproof, certified):
    written(WHOLE)
    done = poolproof("certify", "--json", "c.json")
    assert done.exit_code == 2
    assert "--json names one file for the 2 targets" in done.output


def test_a_value_that_the_option_refuses_is_said_with_its_key(poolproof, certified):
    written(WHOLE.replace('"deep"', '"depp"'))
    done = poolproof("certify")
    assert done.exit_code == 2
    assert "[tool.poolproof]: depth of impl-queue: 'depp' is not one of" in done.stderr
    assert certified == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dept = 'quick'", r"unknown key 'dept'; did you mean depth\?"),
        ("level = 'quick'", r"unknown key 'level'; did you mean depth\?"),
        ("zebra = 1", "unknown key 'zebra'; known are targets, depth"),
        ("seed = '3'", "seed must be a whole number, not '3'"),
        ("seed = true", "seed must be a whole number, not True"),
        ("keep-going = 1", "keep-going must be true or false, not 1"),
        ("layouts = 'full'", "layouts must be a list of texts, not 'full'"),
        ("profile = ['lifo']", "profile must be a table of rows"),
        ("report = 3", "report must be a path, as a text, not 3"),
        ("known = ''", "known must be a path"),
    ],
)
def test_a_key_or_value_that_is_wrong_is_named_with_the_fix(folder, text, says):
    written(f'[tool.poolproof]\ntargets = ["impl"]\n{text}\n')
    with pytest.raises(ProjectFileError, match=says):
        find_project(folder)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.poolproof]\n", "targets is missing; list what is to be certified"),
        ("[tool.poolproof]\ntargets = []\n", r"targets is \[\]; list what"),
        ("[tool.poolproof]\ntargets = [3]\n", "targets holds 3; each is a text, or a table"),
        ("[tool.poolproof]\ntargets = [{target='a', targets='b'}]\n", "target a: unknown key"),
        ("[tool]\npoolproof = 3\n", "tool.poolproof must be a table, not 3"),
        ("[tool.poolproof\n", "is not TOML"),
        (
            "[tool.poolproof]\ntargets = ['a', 'b']\njson = 'c.json'\n",
            "json names one file for 2 targets; use report",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(folder, text, says):
    written(text)
    with pytest.raises(ProjectFileError, match=says):
        find_project(folder)


def test_a_project_without_the_table_is_none(folder):
    written("[tool.other]\nx = 1\n")
    assert find_project(folder) is None
