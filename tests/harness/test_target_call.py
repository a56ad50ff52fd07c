"""What a target raises is told in one line with its own frames; what we raise stays ours."""

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.harness.target_call import crash, is_our_own_bug, raised, target_frames


def caught(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is looked at
        return error
    raise AssertionError


def fails(depth=0):
    if depth:
        fails(depth - 1)
    raise RuntimeError("torn\nin two")


def test_an_exception_from_outside_is_not_our_own_bug():
    assert not is_our_own_bug(caught(fails))


def test_an_exception_from_our_folders_is_our_own_bug():
    assert is_our_own_bug(caught(lambda: TokenChain(()).prefix(0, 0)))


def test_our_modules_are_known_by_name_wherever_they_were_compiled():
    code = compile("def read():\n    raise TypeError", "harness/pool_check.py", "exec")
    ours, elsewhere = ({"__name__": f"{name}.pool_check"} for name in ("poolproof.harness", "mine"))
    exec(code, ours)  # noqa: S102 -- a function with a name and a file of our choice
    exec(code, elsewhere)  # noqa: S102 -- the same
    assert is_our_own_bug(caught(ours["read"]))
    assert not is_our_own_bug(caught(elsewhere["read"]))
    assert "pool_check.py:2 read" not in target_frames(caught(ours["read"]))
    assert "pool_check.py:2 read" in target_frames(caught(elsewhere["read"]))


def test_an_exception_that_was_never_raised_has_no_frames_outside():
    assert is_our_own_bug(RuntimeError("fresh"))
    assert target_frames(RuntimeError("fresh")) == ()


def test_frames_are_the_innermost_first_and_ours_are_left_out():
    frames = target_frames(caught(lambda: fails(9)))
    assert len(frames) == 5
    assert all(frame.startswith("test_target_call.py:") for frame in frames)
    assert all(frame.endswith(" fails") for frame in frames)
    ours = target_frames(caught(lambda: TokenChain(()).prefix(0, 0)))
    assert not any("content.py" in frame for frame in ours)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (RuntimeError("torn\nin two"), "RuntimeError: torn"),
        (ValueError(), "ValueError"),
        (KeyError("x" * 999), "KeyError: '" + "x" * 299 + " ... (1,001 characters)"),
    ],
)
def test_an_exception_is_told_on_one_line(error, shown):
    assert raised(error) == shown


def test_an_exception_that_cannot_be_shown_is_told_by_its_type():
    class BrokenError(Exception):
        def __str__(self):
            raise RuntimeError

    assert raised(BrokenError()) == "BrokenError: (its message cannot be shown)"


def test_a_crash_says_what_was_legal():
    found = crash("free([3])", caught(fails))
    assert (found.invariant, found.severity) == ("CRASH", Severity.CRASH)
    assert found.sentence == "free([3]) is legal here but raised RuntimeError: torn"
    assert found.frames[0].startswith("test_target_call.py:")


def test_an_exit_is_told_as_such():
    assert crash("free([3])", SystemExit(3)).sentence == (
        "free([3]) is legal here but tried to exit the process with SystemExit: 3"
    )


def test_an_adapter_may_raise_a_finding_of_its_own():
    finding = Violation("IDX", Severity.WRONG_DATA_OF_ANOTHER, "two contents under one hash")
    assert crash("lookup(aa)", ViolationError(finding)) is finding
