"""A folder continues an exploration, and says what is wrong with it when it cannot."""

import json

import pytest

from poolproof.exploration.breadth_first import OnePartition, explore, space_of
from poolproof.exploration.level_files import LevelFiles, ResumeError
from poolproof.exploration.scope import Scope

SPACE = space_of(Scope(3), symmetry=True)


def begun(folder, depth=3):
    files = LevelFiles(folder, SPACE)
    explore(SPACE, max_depth=depth, after_level=files.keep)
    return files


def test_a_folder_is_continued_to_the_same_end(tmp_path):
    files = begun(tmp_path / "new" / "folder")
    earlier = files.earlier()
    partitions = OnePartition(SPACE)
    partitions.begin(files.levels(earlier))
    again = explore(SPACE, partitions, after_level=files.keep, earlier=earlier)
    assert again.levels == explore(SPACE).levels
    complete = files.earlier()
    assert complete.stopped == "complete"
    assert complete.levels == again.levels


def test_a_new_folder_holds_nothing(tmp_path):
    assert LevelFiles(tmp_path, SPACE).earlier() is None


def test_another_scope_is_refused(tmp_path):
    begun(tmp_path)
    with pytest.raises(ResumeError, match="give the same bounds"):
        LevelFiles(tmp_path, space_of(Scope(4), symmetry=True)).earlier()


def test_a_short_level_is_refused(tmp_path):
    files = begun(tmp_path)
    (tmp_path / "level-0002.states").write_bytes(b"short")
    with pytest.raises(ResumeError, match=r"level-0002\.states does not hold its"):
        files.earlier()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda kept: kept.update(version=2), "another format"),
        (lambda kept: kept.pop("levels"), "cannot be read"),
        (lambda kept: kept.update(seconds="long"), "cannot be read"),
    ],
)
def test_counts_that_are_none_are_refused(tmp_path, change, says):
    files = begun(tmp_path)
    path = tmp_path / "exploration.json"
    kept = json.loads(path.read_text())
    change(kept)
    path.write_text(json.dumps(kept))
    with pytest.raises(ResumeError, match=says):
        files.earlier()


def test_a_folder_that_cannot_be_made_or_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResumeError, match="cannot make folder"):
        LevelFiles(tmp_path / "file" / "folder", SPACE)
    files = LevelFiles(tmp_path / "gone", SPACE)
    (tmp_path / "gone").rmdir()
    with pytest.raises(ResumeError, match="cannot write into"):
        explore(SPACE, after_level=files.keep)
