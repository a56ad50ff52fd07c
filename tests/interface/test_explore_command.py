"""`poolproof explore`: what it prints, writes, refuses, and the exit status."""

import json
import sys
from pathlib import Path

import pytest

from poolproof.cli import explore_command as command
from poolproof.exploration import cross_check as cross
from poolproof.exploration.breadth_first import explore, space_of
from poolproof.exploration.scope import Scope
from poolproof.report.explore_report import exploration_lines, is_as_counted

HOSTILE = Path(__file__).parents[1] / "certification" / "hostile_targets.py"


def test_the_reference_is_explored_and_counted(poolproof):
    result = poolproof("explore", "specification", "--blocks", 4)
    assert result.exit_code == 0
    assert "explored    378 orbits = 13,608 states" in result.stdout
    assert "transitions 140,160, 3,464 up to symmetry" in result.stdout
    assert "depth       12" in result.stdout
    assert "times (H+1)^N = 13,608: equal" in result.stdout
    assert "Burnside    378 orbits: equal" in result.stdout
    assert "truncated   no" in result.stdout


def test_without_symmetry_every_state_is_explored(poolproof):
    result = poolproof("explore", "specification", "--blocks", 3, "--no-symmetry", "--workers", 2)
    assert result.exit_code == 0
    assert "explored    1,026 states, unreduced" in result.stdout
    assert "2 processes" in result.stdout


def test_rules_without_a_closed_form_say_so(poolproof):
    result = poolproof("explore", "specification", "--blocks", 3, "--profile", "duplicates=last")
    assert result.exit_code == 0
    assert "duplicates=last" in result.stdout
    assert "closed form none for these rules" in result.stdout
    found = explore(space_of(Scope(2, verbs=("allocate", "free")), symmetry=True), max_depth=1)
    lines = "\n".join(exploration_lines(found, workers=1, memory_mib=1))
    assert "commands    allocate, free" in lines
    assert "covered is everything up to 1 transitions away\n" in lines


def test_a_count_that_is_not_as_predicted_is_shown():
    found = explore(space_of(Scope(2), symmetry=True))
    assert is_as_counted(found)
    found.levels.pop()
    assert not is_as_counted(found)
    assert "NOT EQUAL" in "\n".join(exploration_lines(found, workers=1, memory_mib=1))
    found.stopped = "interrupted"
    assert is_as_counted(found)


def test_a_depth_truncates(poolproof):
    result = poolproof("explore", "specification", "--blocks", 4, "--max-depth", 2)
    assert result.exit_code == 0
    assert "truncated   at depth 2, as asked for" in result.stdout
    assert "% of the closed form)" in result.stdout


def test_graphs_are_written(poolproof, folder):
    result = poolproof(
        "explore", "specification", "--blocks", 2, "--dot", "g.dot", "--json", "g.json"
    )
    assert result.exit_code == 0
    assert (folder / "g.dot").read_text().startswith("digraph pool {")
    assert len(json.loads((folder / "g.json").read_text())["nodes"]) == 28


def test_a_page_of_the_states_is_written(poolproof, folder):
    result = poolproof("explore", "specification", "--blocks", 2, "--html", "states.html")
    assert result.exit_code == 0
    assert "States of a pool: 2 blocks" in (folder / "states.html").read_text()


def test_a_page_of_the_path_to_a_failure_is_written(poolproof, folder, buggy):
    result = poolproof("explore", buggy, "--blocks", 3, "--workers", 1, "--html", "path.html")
    assert result.exit_code == 1
    assert "2 failures." in (folder / "path.html").read_text()


def test_work_is_kept_and_continued(poolproof):
    first = poolproof(
        "explore", "specification", "--blocks", 4, "--resume", "kept", "--max-depth", 5
    )
    again = poolproof("explore", "specification", "--blocks", 4, "--resume", "kept", "--workers", 2)
    assert "continuing behind" in again.stderr
    complete = poolproof("explore", "specification", "--blocks", 4, "--resume", "kept")
    whole = poolproof("explore", "specification", "--blocks", 4)
    assert first.exit_code == again.exit_code == complete.exit_code == 0
    counts = [result.stdout.rpartition("took")[0] for result in (again, complete, whole)]
    assert counts[0] == counts[1] == counts[2]


def test_an_interruption_says_what_was_covered(poolproof, monkeypatch):
    def interrupted(space, partitions=None, **options):
        found = explore(space, partitions, max_depth=3)
        found.stopped = "interrupted"
        return found

    monkeypatch.setattr("poolproof.exploration.breadth_first.explore", interrupted)
    result = poolproof("explore", "specification", "--blocks", 4)
    assert result.exit_code == 2
    assert "truncated   interrupted: covered is everything up to 3 transitions" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "TARGET is missing"),
        (("--blocks", 4), "or specification (the rules alone"),
        (("specification", "--blocks", 40), "MiB may be used; ask for fewer"),
        (("specification", "--blocks", 10, "--memory-limit", 50), "335,112 orbits, about"),
        (("specification", "--hashes", 6), "at most 5 hashes"),
        (("specification", "--profile", "eviction=unspecified"), "no one transition relation"),
        (("specification", "--profile", "eviction"), "is not KEY=VALUE"),
        (("specification", "--profile", "colour=red"), "unknown profile key 'colour'"),
        (("specification", "--dot", "g.dot"), "up to 2,000"),
        (("specification", "--html", "s.html"), "the page would have 3,916 states and is written"),
        (("impl", "--html", "no/where/s.html"), "there is no folder"),
        (("specification", "--blocks", 2, "--json", "no/where/g.json"), "there is no folder"),
        (("specification", "--pairs"), "are for allocators"),
        (("specification", "--commands", 2), "name another TARGET"),
        (("impl", "--max-depth", 3), "say specification instead of the TARGET"),
        (("impl", "--cross-check"), "say specification instead of the TARGET"),
        (("nothing",), "unknown target 'nothing'"),
        (("nothing", "--in-process"), "unknown target 'nothing'"),
        (("reference[retention=may-drop]",), "vanish at any time"),
        (("impl-manager", "--in-process", "--pairs"), "its workloads have no --hashes"),
        (("impl-nano", "--in-process", "--layout", "x"), "has no layout 'x'"),
        (("impl", "--in-process", "--commands", 2), "leave out --layout and --commands"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(poolproof, arguments, says):
    result = poolproof("explore", *arguments)
    assert result.exit_code == 2
    assert says in result.stderr.replace("\n", " ")
    assert "bug in Poolproof" not in result.stderr


def test_a_target_is_executed_in_every_state(poolproof):
    result = poolproof("explore", "impl", "--blocks", 3, "--pairs", "--workers", 1)
    assert result.exit_code == 0
    assert "every orbit, 3 blocks, pairs: holds" in result.stdout
    assert "108/108 orbits (1,026 states), every action, calls for two blocks" in result.stdout


def test_a_target_is_executed_in_every_state_unreduced(poolproof):
    result = poolproof("explore", "impl", "--blocks", 2, "--no-symmetry", "--in-process")
    assert result.exit_code == 0
    assert "90/90 states, every action; 2 hashes, references up to 2" in result.stdout


def test_a_queue_is_executed_in_every_state(poolproof):
    result = poolproof("explore", "impl-queue", "--blocks", 3, "--in-process")
    assert result.exit_code == 0
    assert "16/16 orders of the queue" in result.stdout


def test_a_bug_is_shown_with_its_shortest_trace(poolproof, buggy):
    result = poolproof("explore", buggy, "--blocks", 3, "--workers", 1)
    assert result.exit_code == 1
    assert "refused" in result.stdout
    assert "no shorter trace fails in this way" in " ".join(result.stdout.split())


def test_a_target_that_cannot_be_built_is_said_to_be(poolproof, folder):
    source = (
        "class Pool:\n    def __init__(self, num_blocks, *, enable_caching=True):\n        1/0\n"
    )
    methods = "".join(
        f"    def {name}(self, *a): pass\n"
        for name in ("allocate", "free", "cache", "num_free", "touch", "lookup")
    )
    (folder / "unbuilt.py").write_text(source + methods)
    result = poolproof("explore", "unbuilt.py:Pool", "--in-process")
    assert result.exit_code == 2
    assert "ZeroDivisionError" in result.stderr


def test_a_target_whose_import_takes_the_process_is_said_to(poolproof, folder):
    (folder / "dies.py").write_text("import os\nos._exit(3)\n")
    result = poolproof("explore", "dies.py:Pool")
    assert result.exit_code == 2
    assert "bug in Poolproof" not in result.stderr


def checks(*counted):
    return [
        cross.CrossCheck("TLC", "orbits", (108, None), count, missing="install it")
        for count in counted
    ]


@pytest.mark.parametrize(
    ("counted", "status", "says"),
    [
        ([(108, None), None], 0, "TLC   108 orbits: as here"),
        ([(107, None)], 1, "but here (108, None)"),
        ([None], 2, "not run: install it"),
    ],
)
def test_a_cross_check_has_the_status_of_its_worst(poolproof, monkeypatch, counted, status, says):
    monkeypatch.setattr(cross, "cross_check", lambda _: checks(*counted))
    result = poolproof("explore", "specification", "--blocks", 3, "--cross-check")
    assert result.exit_code == status
    assert says in result.stdout


def test_many_states_are_shared_by_the_processors(poolproof, monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setattr(command, "_ENOUGH_FOR_PROCESSES", 10)
    monkeypatch.setattr("poolproof.certification.options.usable_processors", lambda: 2)
    assert "2 processes" in poolproof("explore", "specification", "--blocks", 3).stdout


@pytest.fixture
def in_bulk(monkeypatch):
    """Small scopes are explored in bulk as well."""
    pytest.importorskip("numpy")
    monkeypatch.setattr(command, "_ENOUGH_FOR_BULK", 0)


def counts(result):
    assert result.exit_code == 0
    return result.stdout.rpartition("took")[0]


def how(result):
    return " ".join(result.stdout.rpartition("how ")[2].split())


@pytest.mark.parametrize("row", ["duplicates=kept", "duplicates=last", "eviction=lifo"])
def test_in_bulk_everything_is_printed_as_one_by_one(poolproof, in_bulk, monkeypatch, row):
    arguments = ("explore", "specification", "--blocks", 4, "--profile", row)
    bulk = poolproof(*arguments, "--workers", 1)
    assert how(bulk) == "in bulk, whole levels at once"
    processes = poolproof(*arguments, "--workers", 2)
    assert how(processes) == "orbit by orbit (--workers asks for processes)"
    monkeypatch.setitem(sys.modules, "numpy", None)
    alone = poolproof(*arguments)
    assert "orbit by orbit (NumPy cannot be imported" in how(alone)
    assert "pip install 'poolproof[bulk]'" in how(alone)
    assert counts(bulk) == counts(processes) == counts(alone)


def test_small_scopes_and_states_are_not_explored_in_bulk(poolproof):
    small = poolproof("explore", "specification", "--blocks", 3)
    assert how(small) == "orbit by orbit (fewer than 3,000 orbits)"
    states = poolproof("explore", "specification", "--blocks", 3, "--no-symmetry")
    assert how(states) == "state by state (only orbits can be)"


def test_work_is_kept_in_bulk_and_continued_in_either_way(poolproof, in_bulk):
    arguments = ("explore", "specification", "--blocks", 4, "--resume", "kept")
    first = poolproof(*arguments, "--max-depth", 4)
    second = poolproof(*arguments, "--max-depth", 7, "--workers", 2)
    third = poolproof(*arguments)
    assert [result.exit_code for result in (first, second, third)] == [0, 0, 0]
    assert "continuing behind" in third.stderr
    assert how(third) == "in bulk, whole levels at once"
    again = poolproof(*arguments)
    assert how(again) == "all of it was in the folder"
    whole = poolproof("explore", "specification", "--blocks", 4)
    assert counts(third) == counts(again) == counts(whole)


def test_graphs_and_depths_are_as_they_are_one_by_one(poolproof, in_bulk, folder):
    arguments = ("explore", "specification", "--blocks", 2, "--max-depth", 3)
    bulk = poolproof(*arguments, "--dot", "bulk.dot", "--json", "bulk.json")
    alone = poolproof(*arguments, "--dot", "one.dot", "--json", "one.json", "--workers", 2)
    assert "truncated   at depth 3, as asked for" in bulk.stdout
    assert counts(bulk) == counts(alone)
    for form in ("dot", "json"):
        assert (folder / f"bulk.{form}").read_text() == (folder / f"one.{form}").read_text()


def test_less_memory_is_needed_in_bulk_and_a_refusal_says_why_not(poolproof, in_bulk, monkeypatch):
    arguments = ("explore", "specification", "--blocks", 12, "--memory-limit")
    bulk = poolproof(*arguments, 100)
    assert bulk.exit_code == 2
    assert "3,024,436 orbits, about 139 MiB, and 100 MiB" in " ".join(bulk.stderr.split())
    monkeypatch.setitem(sys.modules, "numpy", None)
    alone = " ".join(poolproof(*arguments, 300).stderr.split())
    assert "about 515 MiB, and 300 MiB" in alone
    assert "(not explored in bulk: NumPy cannot be imported" in alone
