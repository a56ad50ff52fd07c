"""Each finding for upstream has all its parts, and its script stands alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

UPSTREAM = Path(__file__).resolve().parents[2] / "docs" / "findings" / "upstream"
FOLDERS = sorted(path for path in UPSTREAM.iterdir() if path.is_dir())
every_finding = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@every_finding
def test_the_folder_has_all_parts(folder):
    assert {"README.md", "report.md", "reproduce.py"} <= {path.name for path in folder.iterdir()}


@every_finding
def test_the_page_says_what_a_maintainer_asks(folder):
    page = (folder / "README.md").read_text("utf-8")
    headings = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["Expected and what happens", "Affected releases", "Cause", "Thread"]
    thread = page.partition("## Thread")[2].lstrip()
    assert "#" in thread or thread.startswith("None found, searched for: ")


@every_finding
def test_the_script_compiles_and_needs_no_poolproof(folder):
    tree = ast.parse((folder / "reproduce.py").read_text("utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    }
    assert "poolproof" not in imported
    assert "Usage: python reproduce.py " in (ast.get_docstring(tree) or "")


def test_the_table_lists_every_folder():
    page = (UPSTREAM / "README.md").read_text("utf-8")
    assert [folder.name for folder in FOLDERS if f"]({folder.name}/README.md)" not in page] == []
