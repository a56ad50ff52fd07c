"""A repository with the recipes in it, and a service that plays their actions."""

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from poolproof.cli.ci_recipes import write_recipes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def runner() -> ModuleType:
    """The module `workflow_runner.py`; tests are no package, so it is loaded by its path."""
    name = "poolproof_workflow_runner"
    spec = importlib.util.spec_from_file_location(
        name, Path(__file__).with_name("workflow_runner.py")
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@dataclass
class Repository:
    """Somebody's repository: two allocators, one right and one wrong, and the workflows."""

    runner: Any
    folder: Path
    service: Any
    run_ids: list[str] = field(default_factory=list)

    def run(
        self, name: str, target: str, event: str, *, project: str = "", **environment: str
    ) -> Any:
        """A fresh checkout, in which one workflow runs for the event `push` or another.

        `project` is its pyproject.toml.
        """
        self.run_ids.append(str(len(self.run_ids)))
        checkout = self.folder / f"checkout-{len(self.run_ids)}"
        checkout.mkdir()
        for example in ("simple_pool.py", "stale_index.py"):
            shutil.copy(ROOT / "examples" / example, checkout)
        (checkout / "pyproject.toml").write_text(project)
        write_recipes(checkout / ".github" / "workflows", target)
        return self.runner.run_workflow(
            checkout / ".github" / "workflows" / name,
            checkout,
            self.service,
            {
                "github.event_name": event,
                "github.sha": f"sha-{self.run_ids[-1]}",
                "github.run_id": self.run_ids[-1],
                "github.run_attempt": "1",
                "github.event.pull_request.base.sha": "sha-unknown",
            },
            environment,
        )


@pytest.fixture
def repository(runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository whose runs use the Python and the Poolproof of this environment."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    (tmp_path / "service").mkdir()
    return Repository(runner, tmp_path, runner.Service(tmp_path / "service"))
