"""Every row of the collection of public bugs is a specimen, shares one, or says why it is none."""

import re

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.rows import FALSE_ALARMS, KINDS, ROWS, SHARED, UNSTATED, row_of
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.invariants.catalogue import STATEMENTS

EVERYWHERE = {**SPECIMENS, **MANAGER_SPECIMENS}
WITH_A_SPECIMEN = {row_of(name) for name in EVERYWHERE}
MADE_UP = re.compile(r"Q\d|L\d+|F-swap")


def test_the_collection_has_115_rows_of_known_kinds():
    assert len(ROWS) == 115
    assert {row[0] for row in ROWS} == set(KINDS)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_accounted_for_in_exactly_one_way(row):
    thread = ROWS[row]
    ways = {
        "a specimen of its own": row in WITH_A_SPECIMEN,
        "shares one": row not in WITH_A_SPECIMEN and thread in SHARED,
        "cannot be stated": thread in UNSTATED,
        "no bug": row[0] == "X" and thread in FALSE_ALARMS,
    }
    assert sum(ways.values()) == 1, (row, ways)


def test_every_specimen_belongs_to_a_row_or_is_made_up():
    strangers = [name for name in EVERYWHERE if row_of(name) not in ROWS]
    assert strangers
    assert all(MADE_UP.fullmatch(name) for name in strangers)


def test_a_specimen_of_a_row_tells_the_thread_of_its_row_or_of_a_sibling():
    for name, found in EVERYWHERE.items():
        row = row_of(name)
        if row in ROWS and found.thread:
            threads = {EVERYWHERE[other].thread for other in EVERYWHERE if row_of(other) == row}
            assert ROWS[row] in threads, name


def test_every_specimen_has_all_that_a_row_has():
    for name, found in EVERYWHERE.items():
        assert found.id == name
        assert found.level in ("queue", "pool", "manager")
        assert len(found.title) > 20
        assert found.thread or MADE_UP.fullmatch(name) or name == "J5b"
        assert found.invariants
        assert set(found.invariants) <= set(STATEMENTS)
        assert isinstance(found.severity, Severity)
        assert isinstance(found.silent, bool)


def test_nothing_is_listed_as_shared_or_unstated_that_no_row_or_specimen_speaks_of():
    told = set(ROWS.values())
    assert set(UNSTATED) <= told
    assert set(FALSE_ALARMS) <= told
    assert set(SHARED.values()) <= set(EVERYWHERE)


def test_blocks_that_the_cache_keeps_and_blocks_on_their_way_back_are_not_leaks():
    profile = ManagerProfile(frees="after-step")
    campaign = ManagerCampaign(
        "clean", lambda n, on: CleanManager(n, 4, enable_caching=on, rules=profile), profile, 4
    )
    facts = set()
    for number in range(12):
        result = campaign.run(number)
        assert result.trace is None
        facts |= result.facts
    assert "everything was freed at the end" in facts
