"""The example of a project with the plugin, run as its owner does."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pytest_project"

pytestmark = pytest.mark.deep  # certifies two pools


@pytest.fixture
def project(folder):
    return Path(shutil.copytree(EXAMPLE, folder / "project"))


def pytest_in(project, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project, capture_output=True, text=True, check=False,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def test_it_passes_with_its_demonstration_failing_as_expected(project):
    done = pytest_in(project)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 xfailed" in done.stdout


def test_the_demonstration_prints_its_steps(project):
    done = pytest_in(project, "--runxfail", "-k", "stale")
    assert done.returncode == 1
    assert "does not hold (1 finding, depth quick): IDX" in done.stdout
    assert "> 4  allocate(1)" in done.stdout
    assert "Traceback" not in done.stdout
