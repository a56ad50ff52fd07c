"""Graphs of small scopes, and the memory that is asked for before an exploration."""

import json

import pytest

from poolproof.exploration.breadth_first import space_of
from poolproof.exploration.graph import as_dot, as_json, check_size
from poolproof.exploration.scope import (
    Scope,
    ScopeError,
    check_memory,
    expected_mib,
    peak_mib,
    usable_mib,
)


def test_a_graph_of_orbits_has_every_orbit_and_transition():
    graph = json.loads(as_json(space_of(Scope(2, 1, 1), symmetry=True)))
    assert [node["state"] for node in graph["nodes"]][:3] == ["- - |", "- | 1-", "| 1- 1-"]
    assert sum(node["states"] for node in graph["nodes"]) == Scope(2, 1, 1).num_states
    assert {"from": 0, "to": 1, "verb": "allocate"} in graph["edges"]


def test_a_graph_of_states_names_the_blocks():
    dot = as_dot(space_of(Scope(2, 1, 1), symmetry=False))
    assert '  s0 [label="0:- 1:- |", peripheries=2];' in dot
    assert '  s1 [label="1:- | 0:1-"];' in dot
    assert '  s0 -> s1 [label="allocate"];' in dot
    assert dot.startswith("digraph pool {\n")
    assert dot.endswith("}\n")


def test_a_graph_that_nobody_can_look_at_is_refused():
    check_size(2_000)
    with pytest.raises(ScopeError, match="2,001 states and is written up to 2,000"):
        check_size(2_001)


def test_a_scope_that_does_not_fit_is_refused_with_an_estimate():
    check_memory(Scope(4), 64, symmetry=True)
    with pytest.raises(ScopeError, match=r"3,024,436 orbits, about 5\d\d MiB, and 100 MiB"):
        check_memory(Scope(12), 100, symmetry=True)
    with pytest.raises(ScopeError, match="leave out --no-symmetry"):
        check_memory(Scope(8), 4096, symmetry=False)
    with pytest.raises(ScopeError, match="raise --memory-limit"):
        check_memory(Scope(20), 4096, symmetry=False)
    assert expected_mib(Scope(6), symmetry=False) > expected_mib(Scope(6), symmetry=True)


def test_the_memory_that_may_be_used_is_three_quarters_of_what_is_free(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 8192000 kB\nMemAvailable: 4096000 kB\n")
    assert usable_mib(meminfo) == 3000
    meminfo.write_text("MemTotal: 8192000 kB\n")
    assert usable_mib(meminfo) == 2048
    assert usable_mib(tmp_path / "nothing") == 2048
    assert peak_mib() > 0
