"""The page on managers names every verb, row and value that there is."""

from pathlib import Path

import pytest

from poolproof.contract import manager_profile
from poolproof.contract.manager_target import MANAGER_METHODS, MANAGER_OBSERVERS

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "managers.md").read_text()
ROWS = manager_profile._CHOICES


@pytest.mark.parametrize("method", sorted(set(MANAGER_METHODS.values())))
def test_every_method_is_explained(method):
    assert f"`{method}(" in PAGE or f"def {method}(" in PAGE


@pytest.mark.parametrize("observer", sorted(set(MANAGER_OBSERVERS) - {"take_events"}))
def test_every_observer_is_explained(observer):
    assert f"`{observer}(" in PAGE


@pytest.mark.parametrize("row", [*ROWS, *manager_profile._NUMBERS, "groups"])
def test_every_row_and_value_is_explained(row):
    (line,) = [line for line in PAGE.splitlines() if line.startswith("| `") and f"`{row}`" in
               line.split("|")[1]]  # fmt: skip
    for value in ROWS.get(row, ()):
        assert f"`{value}`" in line, value
