"""The workflows as files: what `poolproof new --ci` writes, and that what they call exists."""

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from poolproof.cli.command_line import main
from poolproof.cli.new_command import RECIPES, recipe


def loaded(name, target=None):
    return yaml.safe_load(recipe(name, target))


def steps_of(name):
    (job,) = loaded(name)["jobs"].values()
    return job["steps"]


@pytest.fixture
def new(tmp_path, monkeypatch):
    """What calls `poolproof new` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, ["new", *arguments])


def test_both_workflows_are_written_for_the_target(new):
    result = new("--ci", ".github/workflows", "--target", "engine/pool.py:Pool")
    assert result.exit_code == 0, result.output
    for name in RECIPES:
        written = yaml.safe_load(Path(".github/workflows", name).read_text())
        assert written["env"]["TARGET"] == "engine/pool.py:Pool"


@pytest.mark.parametrize("target", ["impl[eviction=lifo]", "cmd:./pool 'a: b' \\1 # x", '"'])
def test_a_target_of_any_form_stays_as_it_is(target):
    assert loaded("poolproof-gate.yml", target)["env"]["TARGET"] == target


def test_without_a_target_the_user_is_told_to_set_it(new):
    assert "set TARGET in both" in new("--ci", "ci").output


def test_nothing_is_overwritten_and_nothing_half_written(new):
    Path("ci").mkdir()
    Path("ci/poolproof-campaign.yml").write_text("precious")
    result = new("--ci", "ci")
    assert result.exit_code == 2
    assert "ci/poolproof-campaign.yml exists already and is left as it is" in result.output
    assert [path.name for path in Path("ci").iterdir()] == ["poolproof-campaign.yml"]
    assert Path("ci/poolproof-campaign.yml").read_text() == "precious"


def test_a_place_that_is_no_folder_is_named(new):
    Path("ci").write_text("")
    result = new("--ci", "ci")
    assert (result.exit_code, "cannot make folder ci: File exists" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("--ci", "--manager", "ci"), "--manager writes a skeleton and --ci workflows"),
        (("mine.py", "--target", "impl"), "add --ci"),
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
