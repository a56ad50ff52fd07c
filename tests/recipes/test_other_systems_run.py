"""action.yml and the fragments for other systems: their scripts, run by bash in a checkout."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from poolproof.cli.ci_recipes import write_recipes

ROOT = Path(__file__).resolve().parents[2]
RIGHT, WRONG = "simple_pool.py:Pool", "stale_index.py:Pool"

pytestmark = pytest.mark.deep


@pytest.fixture
def checkout(folder, monkeypatch):
    """A repository with a right and a wrong pool; its Poolproof is that of this environment."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    for example in ("simple_pool.py", "stale_index.py"):
        shutil.copy(ROOT / "examples" / example, folder)
    return folder


def bash(script, folder, environment):
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder, env={**os.environ, **environment}, check=False, capture_output=True, text=True,
    )  # fmt: skip


def run_action(checkout, **given):
    """The scripts of action.yml after the installation, as the service calls them."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: str(one["default"]) for name, one in action["inputs"].items()}
    inputs.update({name.replace("_", "-"): value for name, value in given.items()})

    def filled(text):
        return re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: inputs[found[1]], text)

    summary = checkout / "summary.md"
    done = []
    for step in action["runs"]["steps"][1:]:
        environment = {name: filled(value) for name, value in step["env"].items()}
        environment["GITHUB_STEP_SUMMARY"] = str(summary)
        done.append(bash(step["run"], checkout / filled(step["working-directory"]), environment))
    return done, summary.read_text() if summary.is_file() else ""


def test_the_action_annotates_what_it_refuses(checkout):
    (certified, summed), summary = run_action(checkout, target=WRONG, depth="quick")
    assert certified.returncode == 1, certified.stderr
    assert "::error file=stale_index.py,line=21,title=Poolproof IDX" in certified.stdout
    assert summed.returncode == 0
    assert "REFUSED" in summary
    assert (checkout / "poolproof-report" / "certificate.sarif").is_file()


def test_the_action_certifies_what_the_project_lists(checkout):
    (checkout / "pyproject.toml").write_text(
        f'[tool.poolproof]\ntargets = ["{RIGHT}"]\ndepth = "quick"\n'
    )
    (certified, _), summary = run_action(checkout)
    assert certified.returncode == 0, certified.stdout + certified.stderr
    assert "HOLDS" in summary


def test_the_gate_of_gitlab_refuses_and_keeps_its_report(checkout):
    write_recipes(checkout, WRONG, ("poolproof.gitlab-ci.yml",))
    written = yaml.safe_load((checkout / "poolproof.gitlab-ci.yml").read_text())
    job = written["poolproof-gate"]
    script = "\n".join(job["script"][1:])
    done = bash(script, checkout, {**written["variables"], "DEPTH": "quick"})
    assert done.returncode == 1, done.stderr
    assert (checkout / job["artifacts"]["reports"]["junit"][0]).is_file()


@pytest.mark.parametrize("name", ["poolproof.gitlab-ci.yml", "poolproof.buildkite.yml"])
def test_a_gate_without_a_target_certifies_what_the_project_lists(checkout, name):
    (checkout / "pyproject.toml").write_text(
        f'[tool.poolproof]\ntargets = ["{RIGHT}", "{WRONG}"]\ndepth = "quick"\n'
    )
    write_recipes(checkout, "", (name,))
    written = yaml.safe_load((checkout / name).read_text())
    if "variables" in written:
        line, variables = written["poolproof-gate"]["script"][-1], written["variables"]
    else:
        line, variables = written["steps"][0]["commands"][-1], written["env"]
    line = line.replace("$$", "$").replace(".poolproof-venv/bin/", "")
    done = bash(line, checkout, {key: str(value) for key, value in variables.items()})
    assert done.returncode == 1, done.stderr
    reports = sorted(path.name for path in (checkout / "poolproof-report").iterdir())
    assert reports == ["1-simple_pool-py-pool", "2-stale_index-py-pool"]


def test_the_campaign_of_gitlab_finds_it_too(checkout):
    write_recipes(checkout, WRONG, ("poolproof.gitlab-ci.yml",))
    written = yaml.safe_load((checkout / "poolproof.gitlab-ci.yml").read_text())
    script = "\n".join(written["poolproof-campaign"]["script"][1:])
    done = bash(script, checkout, {**written["variables"], "CAMPAIGN_SECONDS": "3"})
    assert done.returncode == 1, done.stderr
    assert (checkout / "poolproof-campaign.html").is_file()


def test_the_gate_of_buildkite_refuses(checkout):
    write_recipes(checkout, WRONG, ("poolproof.buildkite.yml",))
    written = yaml.safe_load((checkout / "poolproof.buildkite.yml").read_text())
    (checkout / ".poolproof-venv").mkdir()
    (checkout / ".poolproof-venv" / "bin").symlink_to(Path(sys.executable).parent)
    line = written["steps"][0]["commands"][-1].replace("$$", "$")
    done = bash(line, checkout, {**written["env"], "DEPTH": "quick"})
    assert done.returncode == 1, done.stderr
    assert (checkout / "poolproof-report" / "certificate.json").is_file()


def test_the_hook_certifies_the_target(checkout):
    write_recipes(checkout, RIGHT, ("poolproof.pre-commit-config.yaml",))
    written = yaml.safe_load((checkout / "poolproof.pre-commit-config.yaml").read_text())
    done = bash(written["repos"][0]["hooks"][0]["entry"], checkout, {})
    assert done.returncode == 0, done.stdout + done.stderr
