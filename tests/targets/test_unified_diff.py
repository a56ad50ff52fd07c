"""A diff is read as git writes it, and applied exactly, or refused with the line that is wrong."""

from __future__ import annotations

import difflib

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets.unified_diff import apply_hunks, read_diff

BEFORE = "".join(f"line {number}\n" for number in range(1, 21))
CHANGE = """\
--- a/pkg/pool.py
+++ b/pkg/pool.py
@@ -4,5 +4,5 @@
 line 4
 line 5
-line 6
+line six
 line 7
 line 8
"""


def applied(diff: str, text: str = BEFORE) -> tuple[str, list[str]]:
    (file,) = read_diff(diff, "fix.diff")
    return apply_hunks(text, file.hunks, file.path, "fix.diff")


def refusal(diff: str, text: str = BEFORE) -> str:
    with pytest.raises(TargetError) as caught:
        applied(diff, text)
    return str(caught.value)


def test_a_hunk_replaces_what_stands_where_it_says():
    text, moved = applied(CHANGE)
    assert text == BEFORE.replace("line 6\n", "line six\n")
    assert moved == []


def test_a_hunk_that_stands_elsewhere_is_applied_there_and_told():
    text, moved = applied(CHANGE, f"# one\n# two\n{BEFORE}")
    assert text == f"# one\n# two\n{BEFORE.replace('line 6', 'line six')}"
    assert moved == ["hunk 1 of pkg/pool.py stands 2 lines further down than it says"]


def test_hunks_below_one_that_moved_are_looked_for_as_far_away():
    diff = f"{CHANGE}@@ -18,3 +18,4 @@\n line 18\n line 19\n+new\n line 20\n"
    text, moved = applied(diff, f"# one\n{BEFORE}")
    assert text.endswith("line 19\nnew\nline 20\n")
    assert [words.partition(" of ")[0] for words in moved] == ["hunk 1"]


def test_a_line_that_differs_is_named_with_what_was_expected():
    said = refusal(CHANGE, BEFORE.replace("line 5", "line five"))
    assert said == (
        "fix.diff: hunk 1 of pkg/pool.py (line 3) does not apply: line 5 should be 'line 5' and is "
        "'line five'"
    )


def test_a_line_that_differs_in_blanks_alone_does_not_apply():
    assert "line 5 should be" in refusal(CHANGE, BEFORE.replace("line 5\n", "line 5 \n"))


def test_a_line_that_differs_in_its_end_alone_does_not_apply():
    assert r"should be 'line 4\n' and is 'line 4\r\n'" in refusal(
        CHANGE, BEFORE.replace("\n", "\r\n")
    )


def test_a_hunk_that_would_fit_in_two_places_is_refused():
    diff = "--- a/p.py\n+++ b/p.py\n@@ -9,2 +9,2 @@\n same\n-old\n+new\n"
    said = refusal(diff, "same\nold\nmore\nsame\nold\n")
    assert "it is not at line 9, and would be at lines 1, 4; write it with more context" in said


def test_a_change_that_is_there_already_is_said_to_be():
    after, _ = applied(CHANGE)
    assert "what it makes stands there already" in refusal(CHANGE, after)


def test_a_hunk_without_context_is_refused():
    diff = "--- a/p.py\n+++ b/p.py\n@@ -3,0 +4 @@\n+new\n"
    assert "write the diff with context" in refusal(diff)


def test_a_file_that_ends_too_early_is_named():
    assert "'line 6' was expected, and the file has ended" in refusal(
        CHANGE, "line 1\nline 2\nline 3\nline 4\nline 5\n"
    )


def test_the_end_of_a_file_without_a_newline_is_kept():
    diff = (
        "--- a/p.py\n+++ b/p.py\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of file\n"
        "+three\n\\ No newline at end of file\n"
    )
    assert applied(diff, "one\ntwo") == ("one\nthree", [])
    assert "does not apply" in refusal(diff, "one\ntwo\n")


def test_what_git_says_of_files_is_read():
    diff = (
        "diff --git a/new.py b/new.py\nnew file mode 100644\nindex 000..111\n--- /dev/null\n"
        "+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
        "diff --git a/old.py b/old.py\ndeleted file mode 100644\n--- a/old.py\n+++ /dev/null\n"
        "@@ -1 +0,0 @@\n-x = 1\n"
        "diff --git a/one.py b/two.py\nrename from one.py\nrename to two.py\n"
        "diff --git a/k.so b/k.so\nBinary files a/k.so and b/k.so differ\n"
        "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n"
    )
    assert [(file.path, file.change) for file in read_diff(diff, "d")] == [
        ("new.py", "created"),
        ("old.py", "deleted"),
        ("one.py", "renamed"),
        ("k.so", "binary"),
    ]


def test_words_around_a_diff_are_anybodys():
    mail = f"From 12ab Mon Sep 17\nSubject: mend\n\n- a list\n+ of words\n---\n{CHANGE}-- \n2.39\n"
    assert [file.path for file in read_diff(mail, "d")] == ["pkg/pool.py"]


@pytest.mark.parametrize(
    ("diff", "said"),
    [
        ("", "changes no file"),
        ("only words\n", "changes no file"),
        ("@@ -1 +1 @@\n-a\n+b\n", "line 1 does not parse: a hunk comes before"),
        (CHANGE.replace("@@ -4,5 +4,5 @@", "@@ -4 @@"), "line 3 does not parse: '@@ -4 @@'"),
        (CHANGE.replace("-4,5 +4,5", "-4,6 +4,6"), "it ends within the hunk of line 3"),
        (CHANGE.replace("-4,5 +4,5", "-4,4 +4,4"), "line 9 does not parse: the hunk before it"),
        (CHANGE.replace("+line six", "*line six"), "line 7 does not parse: '*line six'"),
        (CHANGE.replace("a/pkg", "a/../pkg"), "line 1 does not parse: ../pkg/pool.py leads out"),
        (CHANGE.replace("b/pkg", "/etc"), "/etc/pool.py leads out of the package"),
        (CHANGE.replace("b/pkg/pool.py", '"b/p\\303.py"'), "a path in quotes is not read"),
    ],
)
def test_what_does_not_parse_is_named_by_its_line(diff, said):
    with pytest.raises(TargetError, match=r"^fix\.diff ") as caught:
        read_diff(diff, "fix.diff")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_diff_of_two_texts_makes_the_second_of_the_first():
    before = [f"{'    ' * (number % 3)}x{number % 7} = {number}\n" for number in range(300)]
    after = list(before)
    del after[250:260]
    after[100:103] = ["new\n"]
    after.insert(3, "\n")
    diff = "".join(difflib.unified_diff(before, after, "a/p.py", "b/p.py"))
    assert applied(diff, "".join(before)) == ("".join(after), [])
