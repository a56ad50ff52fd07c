"""What `[tool.poolproof]` says of the target of a test, and which of two things counts."""

import runpy
import shutil
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

import poolproof
from poolproof.project_file import ProjectFileError
from poolproof.project_options import project_options

ROOT = Path(__file__).resolve().parents[2]

TABLE = """
[tool.poolproof]
depth = "standard"
seed = 3
known = "accepted.toml"
fail-on = ["crash"]
report = "out"

[[tool.poolproof.targets]]
target = "engine/pool.py:Pool"
call-timeout = 2
memory-limit = 512
profile = {eviction = "lifo"}
layouts = ["full"]

[[tool.poolproof.targets]]
target = "cmd:./engine/pool.py 4"

[[tool.poolproof.targets]]
target = "impl"
depth = "deep"
"""


@pytest.fixture
def project(folder):
    """A project with a table, a pool in `engine` and its tests in `tests`."""
    (folder / "pyproject.toml").write_text(TABLE)
    for name in ("engine", "tests"):
        (folder / name).mkdir()
    shutil.copy(ROOT / "examples" / "simple_pool.py", folder / "engine" / "pool.py")
    return folder


def options_of(target, project, named_from=None):
    return project_options(target, named_from=named_from or project, test=project / "tests")


def test_every_key_of_a_target_is_an_argument(project):
    assert options_of("engine/pool.py:Pool", project) == {
        "depth": "standard",
        "seed": 3,
        "known": project / "accepted.toml",
        "fail_on": ["crash"],
        "call_timeout_s": 2,
        "memory_mib": 512,
        "profile": {"eviction": "lifo"},
        "layouts": ["full"],
    }


def test_a_target_is_recognised_from_wherever_it_is_named(project):
    whole = options_of("engine/pool.py:Pool", project)
    assert options_of("pool.py:Pool", project, project / "engine") == whole
    assert options_of(f"{project}/engine/pool.py:Pool", project, Path("/")) == whole
    assert options_of("engine.pool:Pool", project) == whole


def test_a_class_is_recognised_by_its_file(project, monkeypatch):
    monkeypatch.syspath_prepend(project / "engine")
    with patch.dict(sys.modules):
        sys.modules.pop("pool", None)
        from pool import Pool

        assert options_of(Pool, project)["memory_mib"] == 512


def test_a_program_is_recognised_with_its_arguments(project):
    assert options_of("cmd:./pool.py 4", project, project / "engine")["seed"] == 3
    assert options_of("cmd:./pool.py 5", project, project / "engine") == {}


def test_another_target_and_another_profile_are_not_meant(project):
    assert options_of("impl", project)["depth"] == "deep"
    assert options_of("impl[eviction=lifo]", project) == {}
    assert options_of("engine/pool.py:Other", project) == {}


def test_a_loaded_target_is_as_it_was_loaded(project):
    assert options_of(poolproof.load_target("impl"), project) == {}


def test_without_a_table_there_is_nothing_to_add(folder):
    assert options_of("impl", folder) == {}


def test_two_answers_for_one_target_are_an_error(project):
    path = project / "pyproject.toml"
    path.write_text(f"{TABLE}\n[[tool.poolproof.targets]]\ntarget = './engine/pool.py:Pool'\n")
    with pytest.raises(ProjectFileError, match="2 times, with different layouts: name layouts in"):
        options_of("engine/pool.py:Pool", project)


def test_the_same_answer_twice_is_one(project):
    path = project / "pyproject.toml"
    path.write_text("[tool.poolproof]\ntargets = ['impl', 'impl']\nseed = 4\n")
    assert options_of("impl", project) == {"seed": 4}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("depth = 'qick'", "depth of impl: depth must be one of quick, standard, deep"),
        ("fail-on = ['crsh']", "fail-on of impl has 'crsh'; known are wrong-data"),
        ("seed = -1", "seed of impl must be 0 or more, not -1"),
        ("workers = 0", "workers of impl must be 1 or more, not 0"),
        ("call-timeout = 0", "call-timeout of impl must be above 0 and at most 86400 seconds"),
        ("sed = 3", "did you mean seed"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_file(folder, key, says):
    (folder / "pyproject.toml").write_text(f"[tool.poolproof]\ntargets = ['impl']\n{key}\n")
    with pytest.raises(ProjectFileError, match=says) as raised:
        project_options("impl", named_from=folder, test=folder)
    assert str(folder / "pyproject.toml") in str(raised.value)


@pytest.fixture
def asked(monkeypatch):
    """What `certify` is asked for, without running it."""
    calls = []

    def of(target, **options):
        calls.append(options)
        raise poolproof.TargetError("not run")

    monkeypatch.setattr("poolproof.api.Asked.of", of)
    return calls


def hold(project, call):
    """Run a test's line in a file of the project."""
    test = project / "tests" / "test_pool.py"
    test.write_text(f"import poolproof\n{call}\n")
    with pytest.raises(poolproof.TargetError):
        runpy.run_path(str(test))


def test_an_assertion_asks_for_what_the_project_of_its_file_says(project, asked, monkeypatch):
    monkeypatch.chdir("engine")
    hold(project, "poolproof.assert_holds('pool.py:Pool')")
    assert options_of("engine/pool.py:Pool", project).items() <= asked[0].items()


def test_an_argument_of_an_assertion_comes_first(project, asked):
    hold(project, "poolproof.assert_holds('impl', depth='quick', seed=9)")
    assert [asked[0][name] for name in ("depth", "seed", "fail_on")] == ["quick", 9, ["crash"]]


def test_an_assertion_is_quick_where_the_project_says_nothing(folder, asked):
    (folder / "tests").mkdir()
    hold(folder, "poolproof.assert_holds('impl')")
    assert (asked[0]["depth"], asked[0]["seed"]) == ("quick", 0)
