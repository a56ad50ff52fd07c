"""Each mutation operator on a source of a few lines."""

from pathlib import Path

import pytest

from poolproof.power.mutation import Source
from poolproof.power.planting import candidates, compiled, functions_of

CASES = [
    ("comparison swapped", "return a < b", ["return a <= b"]),
    ("comparison swapped", "return a <= b < c", ["return a < b < c", "return a <= b <= c"]),
    ("comparison swapped", "return (a) is not (b)", ["return (a) is (b)"]),
    ("comparison swapped", "return a not in b", ["return a in b"]),
    ("arithmetic swapped", "return a + b", ["return a - b"]),
    ("arithmetic swapped", "return a // b", ["return a * b"]),
    ("and/or swapped", "return a and b and c", ["return (a or b or c)"]),
    ("not dropped", "return not a", ["return (a)"]),
    ("off by one", "return a + 1", ["return a + 2"]),
    ("constant flipped", "return a, True", ["return a, False"]),
    ("condition negated", "if a: return b", ["if (not (a)): return b"]),
    ("condition negated", "return a if b else c", ["return a if (not (b)) else c"]),
    ("reversal dropped", "return reversed(a)", ["return (a)"]),
    ("reversal dropped", "return a[::-1]", ["return a"]),
    ("sorting dropped", "return sorted(a)", ["return (a)"]),
    ("slice dropped", "return a[:b]", ["return a"]),
    ("copy dropped", "return list(a)", ["return (a)"]),
    ("copy dropped", "return a[:]", ["return a"]),
    ("bound swapped", "return max(0, a)", ["return min(0, a)"]),
    ("other end", "return a.popleft()", ["return a.pop()"]),
    ("default None", "return a.get(b, c)", ["return a.get(b, None)"]),
    ("arguments swapped", "return a(b, c)", ["return a(c, b)"]),
    ("statement deleted", "a.append(b)", ["pass"]),
    ("statement deleted", "a.hash = None", ["pass"]),
    ("statement deleted", "del a[b]", ["pass"]),
    ("statement deleted", "a.length -= 1", ["pass"]),
    ("ref count kept", "a.ref_cnt -= 1", ["pass"]),
    ("+= and -= swapped", "a.length += 1", ["a.length -= 1"]),
    ("refusal dropped", "raise ValueError(a)", ["pass"]),
    ("nothing returned", "return a(b)", ["return None"]),
    ("order reversed", "for x in a: b(x)", ["for x in reversed(list(a)): b(x)"]),
]


def edits(folder: Path, body: str, operator: str | None = None) -> list[str]:
    """The changed lines of every candidate in a function with this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    text = f"def f(a, b, c):\n{lines}\n".encode()
    source = Source("m", folder / "m.py", text)
    places = {
        (code.co_name, code.co_firstlineno) for _, code in functions_of(compiled(text, source.path))
    }
    found = candidates(source, places)
    return [m.after for m in found if operator in (None, m.operator)]


@pytest.mark.parametrize(("operator", "body", "after"), CASES)
def test_an_operator_makes_its_edits(tmp_path, operator, body, after):
    assert edits(tmp_path, body, operator) == after


def test_an_early_return_and_a_guard_can_be_dropped(tmp_path):
    body = "if a:\n    return None\nreturn b"
    assert edits(tmp_path, body, "early return dropped") == ["pass"]


def test_a_function_can_return_before_it_does_anything(tmp_path):
    assert edits(tmp_path, "a.append(b)", "returned early") == ["return None a.append(b)"]


def test_a_loop_can_end_after_its_first_pass(tmp_path):
    body = "for x in a:\n    b(x)"
    assert edits(tmp_path, body, "loop left early") == ["b(x) break"]


def test_break_and_continue_are_swapped(tmp_path):
    body = "for x in a:\n    if b: break\n    c(x)"
    assert edits(tmp_path, body, "break and continue swapped") == ["if b: continue"]


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        '"""A docstring with 1 < 2."""',
        "assert a < b, 'never'",
        'logger.info("a < b", a, b)',
        'print(f"{a + 1}")',
        "x: list[1] = a",
    ],
)
def test_what_only_speaks_or_guards_is_left_alone(tmp_path, body):
    assert [after for after in edits(tmp_path, body) if not after.startswith("return None")] == []


def test_messages_of_exceptions_are_left_alone(tmp_path):
    assert edits(tmp_path, "raise ValueError(a + 1, b < c)") == ["pass"]


def test_text_that_is_not_ascii_moves_nothing(tmp_path):
    assert edits(tmp_path, 'return "é" if a < b else c', "comparison swapped") == [
        'return "é" if a <= b else c'
    ]
