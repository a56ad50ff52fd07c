"""What is recorded of the mutants: which folders a record replaces, which files have changed."""

from pathlib import Path

import pytest
from recorded import beside_others, digest_of, mutated_paths, standing, state_of

ROW = {"mutants": 1, "killed": 1}


def survivor(file: str) -> dict[str, str]:
    return {"file": file, "function": "f", "before": "a", "after": "b"}


def test_a_record_of_one_folder_leaves_the_others_and_their_survivors() -> None:
    recorded = {
        "files": {"impl/a.py": ROW, "invariants/gone.py": ROW, "reference/r.py": ROW},
        "survivors": [survivor("impl/a.py"), survivor("invariants/gone.py")],
    }
    new = {
        "tool": "t",
        "files": {"invariants/i.py": ROW},
        "survivors": [survivor("invariants/i.py")],
    }
    whole = beside_others(new, ["invariants"], recorded)
    assert list(whole["files"]) == ["impl/a.py", "invariants/i.py", "reference/r.py"]
    assert whole["survivors"] == [survivor("impl/a.py"), survivor("invariants/i.py")]
    assert whole["tool"] == "t"


def test_a_record_of_files_leaves_those_beside_them_and_their_survivors() -> None:
    recorded = {
        "files": {"impl/a.py": ROW, "impl/c.py": ROW, "reference/r.py": ROW},
        "survivors": [survivor("impl/a.py"), survivor("impl/c.py"), survivor("reference/r.py")],
    }
    new = {"files": {"impl/a.py": {"mutants": 2}, "impl/b.py": ROW}, "survivors": []}
    whole = beside_others(new, [], recorded)
    assert list(whole["files"]) == ["impl/a.py", "impl/b.py", "impl/c.py", "reference/r.py"]
    assert whole["files"]["impl/a.py"] == {"mutants": 2}
    assert whole["survivors"] == [survivor("impl/c.py"), survivor("reference/r.py")]


def test_files_that_are_gone_leave_the_record(tmp_path: Path) -> None:
    (tmp_path / "impl").mkdir()
    (tmp_path / "impl" / "a.py").write_text("", encoding="utf-8")
    recorded = {
        "tool": "t",
        "files": {"impl/a.py": ROW, "impl/gone.py": ROW},
        "survivors": [survivor("impl/a.py"), survivor("impl/gone.py")],
    }
    assert standing(recorded, tmp_path) == {
        "tool": "t",
        "files": {"impl/a.py": ROW},
        "survivors": [survivor("impl/a.py")],
    }


@pytest.mark.parametrize(
    ("names", "paths"), [(None, ["impl/a.py", "impl/b.py"]), (["b", "c"], ["impl/b.py"])]
)
def test_the_modules_of_a_folder_are_mutated_or_those_of_these_names(
    tmp_path: Path, names: list[str] | None, paths: list[str]
) -> None:
    (tmp_path / "impl").mkdir()
    for name in ("b.py", "a.py", "__init__.py", "notes.md"):
        (tmp_path / "impl" / name).write_text("", encoding="utf-8")
    assert mutated_paths(tmp_path, "impl", names) == paths


@pytest.mark.parametrize(
    ("now", "state"), [("as it was", ""), ("something else", "changed"), (None, "moved")]
)
def test_a_file_is_as_it_was_or_has_changed_or_moved(
    tmp_path: Path, now: str | None, state: str
) -> None:
    file = tmp_path / "a.py"
    file.write_text("as it was", encoding="utf-8")
    row = {"digest": digest_of(file)}
    file.unlink()
    if now is not None:
        file.write_text(now, encoding="utf-8")
    assert state_of(file, row) == state


def test_a_row_of_before_there_were_digests_counts_as_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("", encoding="utf-8")
    assert state_of(tmp_path / "a.py", {}) == "changed"
