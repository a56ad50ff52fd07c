"""What follows from the outcomes of searches: medians, lone detectors, false alarms."""

# Fixtures come by name; the types of tests are not checked.
# mypy: ignore-errors

import pytest

from poolproof.harness.isolation import Died, Failed, Hung
from poolproof.kill_matrix.building import digest_of_code
from poolproof.kill_matrix.cells import Cell, CellSearch, _judged, cells_of
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.matrix import Column, Matrix, MatrixCell, MatrixRow, summed_up
from poolproof.kill_matrix.matrix_json import matrix_json, read_matrix
from poolproof.kill_matrix.subject import subjects
from poolproof.kill_matrix.wording import cell_text, conclusions, seconds_of, steps_of


def seen_of(*outcomes):
    cell = Cell("Q1", "plain", tuple(range(len(outcomes))))
    return summed_up(cell, dict(zip(cell.searches, outcomes, strict=True)))


def caught(steps, length=None):
    return SearchOutcome(True, steps, steps / 100, "I1", length)


def missed(steps=400):
    return SearchOutcome(False, steps, 4.0)


def row(name, *, is_oddity=False, **cells):
    return MatrixRow(name, "title", "pool", is_oddity, ("vllm#1",), "leak", True, cells)


def matrix(*rows):
    columns = (
        Column("plain", "driver", False, False),
        Column("unit", "examples", False, False),
        Column("certify-quick", "runs", False, True),
        Column("I1", "free", True, False),
    )
    return Matrix("0", "c0de", "CPython 3", (0, 1, 2), columns, rows)


HIT, MISS = MatrixCell(1, 1, 10, 0.1, 3, ("I1",)), MatrixCell(0, 1)


def test_steps_and_seconds_are_medians_over_the_seeds():
    seen = seen_of(caught(30, 4), caught(10, 3), caught(20, 5))
    assert (seen.caught, seen.of, seen.steps, seen.seconds, seen.length) == (3, 3, 20, 0.2, 3)
    assert cell_text(seen) == "20"


def test_a_seed_that_missed_counts_as_endless():
    assert seen_of(caught(30), missed(), caught(20)).steps == 30
    assert cell_text(seen_of(caught(30), missed(), caught(20))) == "30 2/3"


def test_a_bug_that_most_seeds_miss_has_no_median():
    seen = seen_of(caught(30), missed(), missed())
    assert (seen.caught, seen.steps) == (1, None)
    assert cell_text(seen) == "1/3"


def test_cells_say_missed_not_applicable_and_not_installed_apart():
    assert cell_text(seen_of(missed())) == "-"
    assert cell_text(MatrixCell(why_not="no events")) == "."
    assert cell_text(MatrixCell(why_not="not installed: z3")) == "?"
    assert cell_text(seen_of(SearchOutcome(True, 0, 0.1))) == "yes"


def test_a_detector_whose_module_is_missing_searches_nothing():
    detector = Detector("odd", "x", lambda *_: missed(), needs=("json", "no_such_module"))
    (cell,) = cells_of([subjects()["Q1"]], [detector], [0, 1])
    assert cell.searches == []
    assert cell.why_not == "not installed: no_such_module"


def test_a_search_that_takes_no_seed_is_done_once():
    detector = Detector("odd", "x", lambda *_: missed(), is_seeded=False)
    (cell,) = cells_of([subjects()["Q1"]], [detector], [0, 1, 2])
    assert cell.seeds == (0,)


@pytest.mark.parametrize("lost", [Hung(seconds=3, progress=7), Died(status=-11, progress=7)])
def test_a_lost_worker_is_caught_by_those_who_look_for_it(lost):
    by_driver = _judged(CellSearch("Q1", "plain", 0), lost)
    assert (by_driver.caught, by_driver.steps, by_driver.invariant) == (True, 7, "CRASH")
    assert _judged(CellSearch("Q1", "CRASH", 0), lost).caught
    assert not _judged(CellSearch("Q1", "I1", 0), lost).caught


def test_what_we_broke_ourselves_is_raised():
    with pytest.raises(RuntimeError) as raised:
        _judged(CellSearch("Q1", "plain", 5), Failed("KeyError", "x", "..."))
    assert "plain on Q1 from seed 5 failed: KeyError" in str(raised.value)


def test_all_caught_and_nobody_accused_passes():
    one = row("A", plain=HIT, unit=MISS, **{"certify-quick": HIT, "I1": MISS})
    odd = row("B", is_oddity=True, plain=MISS, unit=MISS, **{"certify-quick": MISS, "I1": MISS})
    assert matrix(one, odd).exit_status == 0


def test_a_missed_bug_or_an_accused_oddity_fails():
    one = row("A", plain=MISS, unit=MISS, **{"certify-quick": MISS, "I1": MISS})
    odd = row("B", is_oddity=True, plain=HIT, unit=MISS, **{"certify-quick": MISS, "I1": MISS})
    assert matrix(one).exit_status == 1
    assert matrix(odd).exit_status == 1
    assert dict(conclusions(matrix(odd)))["oddities accused"] == "B by plain"


def test_a_lone_detector_is_named_and_one_made_of_others_does_not_count():
    one = row("A", plain=HIT, unit=MISS, **{"certify-quick": HIT, "I1": HIT})
    two = row("B", plain=HIT, unit=HIT, **{"certify-quick": MISS, "I1": MISS})
    found = dict(conclusions(matrix(one, two)))
    assert found["found by one search alone"] == "plain: A"
    assert found["found by one invariant alone"] == "I1: A"
    assert found["not caught at quick"] == "B: plain, unit"


def test_the_steps_of_a_detector_are_the_median_over_what_it_caught():
    rows = [row(str(steps), plain=MatrixCell(1, 1, steps, 0.1)) for steps in (5, 10, 1000)]
    assert steps_of([*rows, row("missed", plain=MISS)], "plain") == "10"
    assert seconds_of([*rows, row("missed", plain=MISS)], "plain") == "0.1"
    assert seconds_of([row("missed", plain=MISS)], "plain") == "-"
    assert steps_of([row("proved", plain=MatrixCell(1, 1, 0.0, 0.1))], "plain") == "-"


def test_a_matrix_is_read_back_as_it_was_written(tmp_path):
    none = MatrixCell(why_not="no events")
    written = matrix(row("A", plain=HIT, unit=MISS, **{"certify-quick": none, "I1": MISS}))
    path = tmp_path / "matrix.json"
    path.write_text(matrix_json(written))
    assert read_matrix(path) == written


def test_the_code_is_named_by_a_digest_of_what_searches_depend_on(monkeypatch):
    before = digest_of_code()
    assert len(before) == 12
    monkeypatch.setattr("poolproof.kill_matrix.building.SEARCHING", ())
    assert digest_of_code() != before
