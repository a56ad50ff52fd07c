"""What is recorded of the planted bugs: all are found, at the recorded length and no shorter."""

import json
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.exploration.shortest import shortest_failure, shortest_queue_failure

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "exploration.json"
ROWS = {row["id"]: row for row in json.loads(RESULTS.read_text())["bugs"]}
# As in benchmarks/exploration.py: alike in their low bits, where a short digest looks.
ALIKE = (b"\x01" * 16, b"\x09" * 16)
BUGS = [name for name, specimen in SPECIMENS.items() if specimen.level in {"pool", "queue"}]


def test_every_bug_of_a_pool_or_a_queue_is_recorded():
    assert list(ROWS) == BUGS
    assert all(row["blocks"] <= 4 for row in ROWS.values() if row["minimum"] is not None)


def test_a_bug_beyond_the_breadth_first_search_shows_in_the_states():
    """L1 needs more commands than the search has states for."""
    assert [name for name, row in ROWS.items() if row["minimum"] is None] == ["L1"]
    assert ROWS["L1"]["in_states"]


@pytest.mark.parametrize("name", [name for name in BUGS if name != "L1"])
def test_a_bug_shows_after_the_recorded_number_of_commands(name):
    specimen, row = SPECIMENS[name], ROWS[name]
    bounds = {"max_commands": row["minimum"], "max_states": 60_000}
    if specimen.level == "queue":
        found = shortest_queue_failure(specimen.make, row["blocks"], **bounds)
    else:
        blocks = row["blocks"] + (specimen.profile.null_block is not None)
        found = shortest_failure(specimen.make, specimen.profile, blocks, hashes=ALIKE, **bounds)
    assert len(found.commands) == row["minimum"]
    # Minimising a random failure never gives less than the minimum.
    assert all(length >= row["minimum"] for length in row["minimised"])
