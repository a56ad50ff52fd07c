"""A release: one version, whose changes are told, and workflows that fit the tree."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import poolproof

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _release() -> ModuleType:
    """.ci/release.py; .ci/ is no package."""
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RELEASE = _release()


def tree(folder: Path, version: str, changes: str) -> Path:
    (folder / "interface").mkdir()
    (folder / "interface" / "__init__.py").write_text(f'__version__ = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(changes)
    return folder


def test_the_version_is_read_from_where_the_package_has_it() -> None:
    assert RELEASE.version_of(ROOT) == poolproof.__version__


def test_the_version_stands_in_no_second_place() -> None:
    for name in ("pyproject.toml", "setup.py", "Makefile", ".ci/run", *map(str, WORKFLOWS)):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert not re.search(rf"""["'=]{re.escape(poolproof.__version__)}["'\n]""", text), name


def test_the_present_version_has_its_changes() -> None:
    assert RELEASE.heading_of(ROOT, poolproof.__version__)


def test_a_version_without_changes_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, "1.2.3", "# Changes\n\n## 1.2.30\n\nMuch.\n")
    with pytest.raises(RELEASE.NotReadyError, match=r"no heading .## 1\.2\.3."):
        RELEASE.heading_of(tmp_path, "1.2.3")


def test_a_heading_with_nothing_below_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, "1.2.3", "# Changes\n\n## 1.2.3\n\n## 1.2.2\n\nMuch.\n")
    with pytest.raises(RELEASE.NotReadyError, match="says nothing"):
        RELEASE.heading_of(tmp_path, "1.2.3")


def test_a_tag_must_be_the_version(tmp_path: Path) -> None:
    tree(tmp_path, "1.2.3", "# Changes\n\n## 1.2.3, 1 May\n\nMuch.\n")
    RELEASE.check_tag(tmp_path, "v1.2.3")
    with pytest.raises(RELEASE.NotReadyError, match=r"the tag is v1\.2\.4, the version 1\.2\.3"):
        RELEASE.check_tag(tmp_path, "v1.2.4")


def test_a_version_called_not_released_is_not_tagged(tmp_path: Path) -> None:
    tree(tmp_path, "1.2.3", "# Changes\n\n## 1.2.3, not released\n\nMuch.\n")
    with pytest.raises(RELEASE.NotReadyError, match="still says"):
        RELEASE.check_tag(tmp_path, "v1.2.3")


def test_the_bill_of_materials_names_the_version(tmp_path: Path) -> None:
    bill = tmp_path / "bill.json"
    bill.write_text('{"metadata": {"component": {"name": "poolproof"}}, "components": []}')
    RELEASE.name_version(bill, "1.2.3")
    written = json.loads(bill.read_text())
    assert written["metadata"]["component"] == {"name": "poolproof", "version": "1.2.3"}


def workflow(name: str) -> dict[str, Any]:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def test_both_systems_and_every_supported_python_are_tested() -> None:
    matrix = workflow("test.yml")["jobs"]["tests"]["strategy"]["matrix"]
    assert {"ubuntu-latest", "macos-latest"} <= set(matrix["os"])
    classified = re.findall(r":: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert matrix["python"] == classified


def test_a_release_is_published_from_a_tag_alone_and_with_no_stored_secret() -> None:
    jobs = workflow("release.yml")["jobs"]
    allowed = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert allowed == {"publish"}
    assert "github.ref_type == 'tag'" in jobs["publish"]["if"]
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    assert "secrets." not in str(jobs)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_what_is_there(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    jobs = workflow(path.name)["jobs"].values()
    lines = "\n".join(step["run"] for job in jobs for step in job["steps"] if "run" in step)
    for target in re.findall(r"\bmake ([a-z-]+)", lines):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for script in re.findall(r"(?<!\w)\.ci/[\w.]+", lines):
        assert (ROOT / script).is_file(), script
