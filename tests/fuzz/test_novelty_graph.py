"""The graph of a worker: what it chooses, however its states are numbered."""

import random

import pytest

from poolproof.exploration.scope import Scope
from poolproof.fuzz import novelty_graph
from poolproof.fuzz.novelty_graph import NoveltyGraph
from poolproof.fuzz.one_block import MOST_KEYS, OneBlockRules

SCOPE = Scope(4, 2, 2)


def graph_of(most_keys: int = MOST_KEYS) -> tuple[NoveltyGraph, set[int]]:
    known: set[int] = set()
    rules = OneBlockRules(SCOPE, most_keys)
    return NoveltyGraph(rules, known, SCOPE.num_orbits, random.Random(1)), known


def walk(graph: NoveltyGraph, known: set[int], steps: int) -> list[int]:
    """Walk as a run does; the numbers of the states on the way."""
    place = graph.at(bytes(4))
    numbers = []
    for _ in range(steps):
        number = graph.number(place)
        known.add(number)
        graph.is_known[place] = 1
        numbers.append(number)
        if not graph.count[place]:
            graph.open(place)
        place = graph.next[graph.first[place] + graph.choose(place)]
    return numbers


def test_a_walk_meets_every_state_in_a_few_times_as_many_steps():
    graph, known = graph_of()
    walk(graph, known, 6 * SCOPE.num_orbits)
    assert len(known) == SCOPE.num_orbits
    assert graph.is_complete


def test_a_step_is_new_where_something_unknown_is_beside_it():
    graph, known = graph_of()
    numbers = walk(graph, known, 20)
    assert len(set(numbers)) == len(numbers)


def test_states_numbered_beforehand_or_when_met_are_walked_alike():
    steps = 8 * SCOPE.num_orbits
    assert walk(*graph_of(MOST_KEYS), steps) == walk(*graph_of(0), steps)


@pytest.mark.parametrize("most_keys", [MOST_KEYS, 0])
def test_a_graph_that_was_forgotten_begins_anew_and_knows_what_is_known(monkeypatch, most_keys):
    graph, known = graph_of(most_keys)
    walk(graph, known, 500)
    before = set(known)
    monkeypatch.setattr(novelty_graph, "MOST_PLACES", 10)
    graph.tidy()
    first_new = next(number for number in walk(graph, known, 500) if number not in before)
    assert first_new in known
    assert len(known) > len(before)
