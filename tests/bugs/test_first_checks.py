"""With everything on, each specimen is named first by the check that is recorded for it."""

import json
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.contract.trace import read_trace
from poolproof.harness.replay import replay

EVERYWHERE = {**SPECIMENS, **MANAGER_SPECIMENS}
RECORD = json.loads(Path(__file__).with_name("first_checks.json").read_text("utf-8"))
AGAIN = "if that is meant: .venv/bin/python tests/bugs/make_first_checks.py"


def test_every_specimen_is_recorded_under_every_seed():
    assert list(RECORD) == list(EVERYWHERE), AGAIN
    assert all([row["seed"] for row in rows] == [0, 1, 2] for rows in RECORD.values()), AGAIN


@pytest.mark.some(51)
@pytest.mark.parametrize("name", RECORD)
def test_the_recorded_check_is_the_first_to_name_it(name, golden):
    found = EVERYWHERE[name]
    for row in RECORD[name]:
        again = replay(read_trace(golden.found_path(name, row["seed"])), found.make)
        assert again.violation is not None, f"{name} is not caught by that run any more; {AGAIN}"
        named = (again.violation.invariant, len(again.applied))
        assert named == (row["invariant"], row["commands"]), AGAIN
        assert row["invariant"] in found.invariants
