"""The commands of docs/first-hour.md do what the page says, in an empty folder."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "first-hour.md"
TASKS = re.findall(
    r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def test_the_page_has_commands_for_each_task() -> None:
    assert len(TASKS) == 3


# Whole pools and managers are certified, which takes minutes on a slow core.
@pytest.mark.deep
@pytest.mark.parametrize("task", TASKS)
def test_the_commands_end_as_the_page_says(task: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for line in task.splitlines():
        command, _, status = line.rpartition("#")
        program, *arguments = shlex.split(command)
        assert program == "poolproof"
        run = subprocess.run(
            [sys.executable, "-m", "poolproof", *arguments],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert run.returncode == int(status), f"{line}\n{run.stdout}{run.stderr}"
