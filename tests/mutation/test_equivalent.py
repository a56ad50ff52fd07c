"""The list of equivalent mutants cannot rot: every entry still names a line of ours, and why."""

from collections import Counter
from pathlib import Path

import pytest
from equivalents import Equivalent, read_list, stale

SOURCE = """class Pool:
    def free(self, n):
        if n:
            self.count += n
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pool.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def entry(**changes: str) -> Equivalent:
    values = {"file": "pool.py", "function": "Pool.free", "before": "if n:", "after": "if True:"}
    return Equivalent(**{**values, "reason": "adding 0 changes nothing", **changes})


@pytest.mark.some(0)
def test_every_entry_still_points_at_a_line_of_ours() -> None:
    assert [text for text in map(stale, read_list()) if text] == []


def test_every_entry_says_why() -> None:
    assert [entry for entry in read_list() if len(entry.reason.split()) < 4] == []


def test_no_entry_stands_twice() -> None:
    counts = Counter((one.file, one.function, one.before, one.after) for one in read_list())
    assert [one for one, count in counts.items() if count > 1] == []


def test_an_entry_whose_line_stands_is_not_stale(tree: Path) -> None:
    assert stale(entry(), tree) is None
    assert stale(entry(before="if n:\nself.count += n"), tree) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file": "gone.py"}, "gone.py is gone"),
        ({"function": "Pool.touch"}, "no function Pool.touch"),
        ({"before": "if m:"}, "has no line 'if m:'"),
        ({"before": "if"}, "has no line 'if'"),
        ({"after": "if n:"}, "changes nothing"),
    ],
)
def test_an_entry_that_speaks_of_another_text_is_stale(
    tree: Path, changes: dict[str, str], message: str
) -> None:
    found = stale(entry(**changes), tree)
    assert found is not None
    assert message in found
