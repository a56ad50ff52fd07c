"""How the room is kept: a file for each invariant, named alike, with predicates in it."""

import ast
import re
from pathlib import Path

import pytest

from poolproof.invariants.catalogue import STATEMENTS

ROOM = Path(__file__).resolve().parents[2] / "invariants"
BESIDE = {"__init__", "catalogue", "wording"}
FILES = {path.stem: ast.parse(path.read_text("utf-8")) for path in sorted(ROOM.glob("*.py"))}
INVARIANTS = {name: tree for name, tree in FILES.items() if name not in BESIDE}


def code_of(tree: ast.Module) -> str:
    """The code of the invariant with which the docstring of a file begins."""
    return (ast.get_docstring(tree) or "").partition(":")[0]


def predicates(tree: ast.Module) -> list[str]:
    """The public functions of a file that return a violation or None."""
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.returns is not None
        and ast.unparse(node.returns) == "Violation | None"
    ]


@pytest.mark.parametrize("name", INVARIANTS)
def test_each_file_holds_predicates(name):
    assert predicates(INVARIANTS[name]) != []


def test_each_invariant_has_one_file_that_begins_with_its_code():
    assert sorted(map(code_of, INVARIANTS.values())) == sorted(STATEMENTS)


@pytest.mark.parametrize("name", INVARIANTS)
def test_a_file_is_named_by_what_must_hold_and_not_by_a_code(name):
    codes = {code.lower() for code in STATEMENTS} - {"misuse"}  # which is a word as well
    assert not codes & set(name.split("_"))


def test_the_list_in_which_to_read_is_complete_and_in_the_order_of_the_catalogue():
    listed = re.findall(
        r"^([A-Z][A-Z0-9]*) +`(\w+)\.py`$", ast.get_docstring(FILES["__init__"]), re.MULTILINE
    )
    assert listed == [
        (code, next(name for name, tree in INVARIANTS.items() if code_of(tree) == code))
        for code in STATEMENTS
    ]


@pytest.mark.parametrize("name", INVARIANTS)
def test_only_predicates_of_a_code_are_asked_for_it(name):
    """A file words violations under its own code, or says in its docstring which others it does."""
    tree = INVARIANTS[name]
    worded = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Violation"
        and isinstance(node.args[0], ast.Constant)
    }
    assert all(re.search(rf"\b{code}\b", ast.get_docstring(tree)) for code in worded)
