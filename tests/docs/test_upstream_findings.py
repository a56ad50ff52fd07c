"""Each finding for upstream has all its parts, and its script stands alone."""

from __future__ import annotations

import ast
import re
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


def cause_paragraphs(folder) -> list[str]:
    """A cause for each finding of a folder; where there are several each begins with its name."""
    section = (folder / "README.md").read_text("utf-8").partition("## Cause\n")[2]
    return section.partition("\n## ")[0].strip().split("\n\n")


def num_sentences(paragraph: str) -> int:
    """Sentences end with a full stop before a capital, a name in code or a number of a thread."""
    return len(re.split(r"[.?!]\s+(?=[A-Z`#\[])", " ".join(paragraph.split())))


@every_finding
def test_each_cause_has_at_most_two_sentences(folder):
    paragraphs = cause_paragraphs(folder)
    assert {each: num for each in paragraphs if (num := num_sentences(each)) > 2} == {}
    if len(paragraphs) > 1:
        assert [each for each in paragraphs if not re.match(r"[a-z-]+: ", each)] == []


@every_finding
def test_each_cause_names_a_line(folder):
    named = re.compile(r"\blines?\s+\d+")
    assert [each for each in cause_paragraphs(folder) if not named.search(each)] == []


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("`f` (a.py line 3) frees it. `g` does not.", 2),
        ("A table of v0.31.0 has it, e.g. the first; it stays. So it is read. #12 has more.", 3),
    ],
)
def test_sentences_are_counted(words, number):
    assert num_sentences(words) == number


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
