"""The workflows as files: what `poolproof new --ci` writes, and that what they call exists."""

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from poolproof.cli import installed_source
from poolproof.cli.ci_recipes import RECIPES, SYSTEMS, recipe, require_pinned
from poolproof.cli.command_line import main
from poolproof.cli.installed_source import source_of

ROOT = Path(__file__).resolve().parents[2]


def loaded(name, target=None):
    return yaml.safe_load(recipe(name, target))


def loaded_file(path):
    return yaml.safe_load(Path(path).read_text())


def steps_of(name):
    (job,) = loaded(name)["jobs"].values()
    return job["steps"]


@pytest.fixture
def new(tmp_path, monkeypatch):
    """What calls `poolproof new` in an empty folder; this Poolproof came from an index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed_source, "installed_source", lambda: "poolproof==9")
    return lambda *arguments: CliRunner().invoke(main, ["new", *arguments])


def test_both_workflows_are_written_for_the_target(new):
    result = new("--ci", ".github/workflows", "--target", "engine/pool.py:Pool")
    assert result.exit_code == 0, result.output
    for name, key in zip(RECIPES, ("TARGET", "CAMPAIGN_TARGET"), strict=True):
        written = yaml.safe_load(Path(".github/workflows", name).read_text())
        assert written["env"][key] == "engine/pool.py:Pool"


@pytest.mark.parametrize("target", ["impl[eviction=lifo]", "cmd:./pool 'a: b' \\1 # x", '"'])
def test_a_target_of_any_form_stays_as_it_is(target):
    assert loaded("poolproof-gate.yml", target)["env"]["TARGET"] == target


def test_without_a_target_the_user_is_told_to_set_it(new):
    assert "set TARGET, and that" in new("--ci", "ci").output


PROJECT = "[tool.poolproof]\ntargets = ['a.py:Pool', 'b.py:Manager']\n"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_project_s_targets_are_those_of_its_table(new, system):
    Path("pyproject.toml").write_text(PROJECT)
    result = new("--ci", "ci", "--system", system)
    assert result.exit_code == 0, result.output
    assert "lists: a.py:Pool, b.py:Manager" in result.output
    text = "".join(path.read_text() for path in Path("ci").iterdir())
    assert "path/to/your_pool.py" not in text
    assert "b.py:Manager" not in text
    if system == "pre-commit":
        assert 'entry: "poolproof certify"  # TARGET' in text
    else:
        assert 'TARGET: ""' in text
        assert 'DEPTH: ""' in text
    if system in ("github", "gitlab"):
        assert 'CAMPAIGN_TARGET: "a.py:Pool"' in text
        assert "one campaign has one target" in result.output


def test_a_target_that_is_named_comes_before_the_table(new):
    Path("pyproject.toml").write_text(PROJECT)
    new("--ci", "ci", "--target", "c.py:Pool")
    assert loaded_file("ci/poolproof-gate.yml")["env"]["TARGET"] == "c.py:Pool"


def test_a_table_above_is_named_since_ci_starts_at_the_top(new, tmp_path, monkeypatch):
    Path("pyproject.toml").write_text(PROJECT)
    Path("below").mkdir()
    monkeypatch.chdir("below")
    assert f"see that {tmp_path / 'pyproject.toml'} is found there" in new("--ci", "ci").output


def test_nothing_is_overwritten_and_nothing_half_written(new):
    Path("ci").mkdir()
    Path("ci/poolproof-campaign.yml").write_text("precious")
    result = new("--ci", "ci")
    assert result.exit_code == 2
    assert "ci/poolproof-campaign.yml exists already and is left as it is" in result.output
    assert [path.name for path in Path("ci").iterdir()] == ["poolproof-campaign.yml"]
    assert Path("ci/poolproof-campaign.yml").read_text() == "precious"


def test_with_force_what_exists_is_overwritten(new):
    Path("ci").mkdir()
    Path("ci/poolproof-campaign.yml").write_text("old")
    result = new("--ci", "ci", "--target", "c.py:Pool", "--force")
    assert result.exit_code == 0, result.output
    assert loaded_file("ci/poolproof-campaign.yml")["env"]["CAMPAIGN_TARGET"] == "c.py:Pool"


def test_a_place_that_is_no_folder_is_named(new):
    Path("ci").write_text("")
    result = new("--ci", "ci")
    assert (result.exit_code, "cannot make folder ci: File exists" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--ci", "--manager", "ci"), "--manager writes a skeleton and --ci workflows"),
        (("mine.py", "--target", "impl"), "add --ci"),
        (("mine.py", "--system", "gitlab"), "--system is about the files of --ci"),
        (("mine.py", "--source", "poolproof"), "--source is about the files of --ci"),
        (("mine.py", "--force"), "--force is about the files of --ci"),
    ],
)
def test_options_that_do_not_go_together(new, arguments, wrong):
    result = new(*arguments)
    assert result.exit_code == 2
    assert wrong in result.output


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_workflow_calls_exists(name):
    called = []
    for step in steps_of(name):
        for line in re.findall(r"poolproof [a-z]+ .*", step.get("run", "").replace("\n", " ")):
            command = main.get_command(click.Context(main), shlex.split(line)[1])
            assert command is not None, line
            options = {option for p in command.params for option in p.opts}
            assert set(re.findall(r"(?<!\S)--[a-z-]+", line)) <= options, line
            called.append(command.name)
    assert called


@pytest.mark.parametrize("name", RECIPES)
def test_what_an_expression_names_is_there(name):
    given = {
        "github.event_name", "github.sha", "github.ref", "github.run_id", "github.run_attempt",
        "github.event.pull_request.base.sha",
    }  # fmt: skip
    given |= {f"env.{key}" for key in loaded(name)["env"]}
    for found in re.findall(r"\$\{\{ ([\w.]+)", recipe(name)):
        assert found in given


@pytest.mark.parametrize("name", RECIPES)
def test_a_workflow_may_do_no_more_than_read(name):
    assert loaded(name)["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", RECIPES)
def test_what_the_user_sets_reaches_the_shell_as_a_variable(name):
    """Text that is pasted into a script could be a command."""
    assert not any("${{" in step.get("run", "") for step in steps_of(name))


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_pip_installs_and_what_is_certified_is_filled_in(new, system):
    source = "poolproof @ git+https://example.org/poolproof@0123abc"
    result = new("--ci", "ci", "--system", system, "--target", "a b.py:Pool", "--source", source)
    assert result.exit_code == 0, result.output
    for path in Path("ci").iterdir():
        text = path.read_text()
        yaml.safe_load(text)
        assert source in text
        assert "a b.py:Pool" in text
        assert 'path/to/your_pool.py:Pool"\n' not in text


def test_a_hook_of_pre_commit_gets_one_command(new):
    new("--ci", "ci", "--system", "pre-commit", "--target", "a b.py:Pool", "--source", "a.whl")
    written = yaml.safe_load(Path("ci/poolproof.pre-commit-config.yaml").read_text())
    (hook,) = written["repos"][0]["hooks"]
    assert shlex.split(hook["entry"]) == ["poolproof", "certify", "a b.py:Pool", "--depth", "quick"]
    assert hook["additional_dependencies"] == ["a.whl"]


def test_files_install_what_is_installed_here(new):
    assert "installs poolproof==9" in new("--ci", "ci").output
    assert yaml.safe_load(Path("ci", RECIPES[0]).read_text())["env"]["POOLPROOF"] == "poolproof==9"


def test_a_source_that_others_cannot_reach_is_said_and_nothing_written(new, monkeypatch):
    monkeypatch.setattr(installed_source, "installed_source", lambda: None)
    result = new("--ci", "ci")
    assert result.exit_code == 2
    assert "came from a folder that others cannot reach" in result.output
    assert not Path("ci").exists()


@pytest.mark.parametrize(
    "source",
    [
        "poolproof==0.2.0",
        "poolproof[proof] == 0.2.0",
        "poolproof @ git+https://example.org/p@0123abc",
        "git+ssh://git@example.org/p.git@v0.2.0",
        "poolproof @ https://example.org/poolproof-0.2.0-py3-none-any.whl",
        "wheels/poolproof-0.2.0-py3-none-any.whl",
    ],
)
def test_a_version_a_commit_and_an_archive_are_pinned(source):
    assert require_pinned(source) == source


@pytest.mark.parametrize(
    "source",
    [
        "poolproof",
        "poolproof>=0.2",
        "poolproof==0.*",
        "poolproof @ git+https://example.org/p",
        "poolproof @ git+https://example.org/p@main",
    ],
)
def test_what_may_be_another_release_tomorrow_is_refused(new, source):
    result = new("--ci", "ci", "--target", "a.py:Pool", "--source", source)
    assert result.exit_code == 2
    assert f"--source '{source}' is not pinned" in result.output
    assert not Path("ci").exists()


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        (
            {"url": "https://example.org/p", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "poolproof @ git+https://example.org/p@abc",
        ),
        (
            {"url": "https://example.org/p.whl", "archive_info": {}},
            "poolproof @ https://example.org/p.whl",
        ),
        ({"url": "file:///nowhere/p.whl", "archive_info": {}}, None),
        ({"url": "file:///nowhere", "dir_info": {"editable": True}}, None),
    ],
)
def test_what_pip_noted_becomes_a_pinned_requirement(origin, source):
    assert source_of(origin) == source


@pytest.mark.parametrize(
    ("remote", "begins"),
    [
        ("https://example.org/p.git", "poolproof @ git+https://example.org/p.git@"),
        ("git@example.org:o/p.git", "poolproof @ git+ssh://git@example.org/o/p.git@"),
    ],
)
def test_a_checkout_is_named_by_its_remote_and_commit(tmp_path, remote, begins):
    for words in (
        ["init", "-q"],
        [
            "-c",
            "user.name=x",
            "-c",
            "user.email=x@example.org",
            "commit",
            "-qm",
            "x",
            "--allow-empty",
        ],
        ["remote", "add", "origin", remote],
    ):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    found = source_of({"url": tmp_path.as_uri(), "dir_info": {}})
    assert found.startswith(begins)
    assert len(found.rpartition("@")[2]) == 40


@pytest.mark.parametrize("name", [name for names in SYSTEMS.values() for name in names])
def test_what_a_file_calls_exists(name):
    text = recipe(name).replace('\\"', '"')
    lines = re.findall(r"poolproof (certify|fuzz) ([^#\n]*(?:\n {6}-[^\n]*)*)", text)
    assert lines
    for called, rest in lines:
        command = main.get_command(click.Context(main), called)
        options = {option for p in command.params for option in p.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) <= options


def test_the_hook_of_this_repository_is_one_of_pre_commit_s():
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "poolproof certify"
    assert not hook["pass_filenames"]


def test_the_action_hands_inputs_to_its_scripts_as_variables():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
    used = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text()))
    assert used == set(action["inputs"])
