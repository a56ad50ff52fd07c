"""The table of limits against a run: what the page says of a level is what its runs reach."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from poolproof.certification.certify import NEVER_TRIED, not_covered
from poolproof.certification.depths import BUDGETS
from poolproof.certification.description import describe
from poolproof.certification.options import CertifyOptions
from poolproof.contract.profile import Profile
from poolproof.harness.isolation import InProcess
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets.load import load_target

PAGE = Path(__file__).resolve().parents[2] / "docs" / "what-a-verdict-says.md"


def row(table: str, what: str) -> list[str]:
    """The cells of a row of the table whose first column is headed `table`, one for each level."""
    _, _, rows = PAGE.read_text(encoding="utf-8").partition(f"| {table} | ")
    found = re.search(
        rf"^\| {re.escape(what)} \| (.*) \|$", rows.partition("\n\n")[0], re.MULTILINE
    )
    assert found, f"{table}: no row {what!r}"
    return found[1].split(" | ")


def largest(cell: str) -> int:
    return int(cell.rpartition(" ")[2].replace(",", ""))


def test_the_longest_run_of_quick_goes_as_far_as_the_page_says():
    sizes = BUDGETS["quick"].production
    assert sizes is not None
    campaign = PoolCampaign("impl", load_target("impl").make, Profile(), production=sizes)
    tried = campaign.run(sizes.short_runs).extent
    for of_page, of_run in {
        "blocks, production sizes": "blocks",
        "blocks in one allocation, entries in one list, up to": "entries in one list",
        "references to one block, up to": "references to one block",
        "commands in one run, up to": "commands in a run",
    }.items():
        reached = tried.get(of_run)
        assert reached is not None
        # A run ends with what it still has to give back, and may name a little more than is there.
        assert reached[1] == pytest.approx(largest(row("A pool", of_page)[0]), rel=0.1), of_page


@pytest.mark.parametrize("table", ["A queue", "An index", "A pool", "A manager"])
def test_no_level_goes_less_far_than_a_cheaper_one(table):
    longest = [largest(cell) for cell in row(table, "commands in one run, up to")]
    assert longest == sorted(longest)
    assert len(longest) == len(BUDGETS)


def test_a_certificate_says_what_the_page_says_that_no_stage_tries():
    with InProcess(lambda: load_target("impl")) as isolation:
        (outcome,) = isolation.map(describe, [None])
    about = outcome.value
    last = not_covered(about, CertifyOptions(), ())[-1]
    page = PAGE.read_text(encoding="utf-8")
    for what in NEVER_TRIED:
        assert what in last
        assert f"- {what}\n" in page
