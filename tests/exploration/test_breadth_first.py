"""Exploration finds what counting predicts, alone and over processes, whole and interrupted."""

import os
import signal

import pytest

from poolproof.exploration.breadth_first import (
    OnePartition,
    WorkerLostError,
    WorkerProcesses,
    explore,
    reachable,
    space_of,
)
from poolproof.exploration.scope import Scope


@pytest.mark.parametrize("symmetry", [True, False])
def test_everything_is_found_and_counted(symmetry):
    scope = Scope(4)
    space = space_of(scope, symmetry=symmetry)
    found = explore(space)
    total = found.total
    assert found.stopped == ""
    assert total.num_states == scope.num_states
    assert total.num_found == (scope.num_orbits if symmetry else scope.num_states)
    assert found.depth == 12
    # TLC generates 140,161 states, the first among them.
    assert total.num_transitions == 140_160
    # Each but the first was found by one transition.
    assert sum(total.new.values()) == total.num_found - 1
    assert len(set(reachable(space))) == total.num_found


@pytest.mark.parametrize("symmetry", [True, False])
def test_processes_find_the_same_level_by_level(symmetry):
    scope = Scope(3)
    alone = explore(space_of(scope, symmetry=symmetry))
    with WorkerProcesses(scope, 3, symmetry=symmetry) as partitions:
        together = explore(space_of(scope, symmetry=symmetry), partitions)
        assert partitions.memory_mib() > 0
    assert together.levels == alone.levels


def test_a_depth_truncates_and_says_so():
    found = explore(space_of(Scope(4), symmetry=True), max_depth=3)
    assert found.stopped == "at depth 3, as asked for"
    assert found.depth == 3
    assert found.total.num_states < Scope(4).num_states


def test_an_interruption_keeps_whole_levels():
    def interrupt(found, frontier):
        if len(found.levels) == 5:
            raise KeyboardInterrupt

    space = space_of(Scope(4), symmetry=True)
    found = explore(space, after_level=interrupt)
    assert found.stopped == "interrupted"
    assert found.levels == explore(space, max_depth=4).levels


def test_an_exploration_goes_on_from_earlier_levels():
    space = space_of(Scope(3), symmetry=True)
    levels = [[space.initial()]]
    begun = explore(
        space, max_depth=4, after_level=lambda _, frontier: levels.append(list(frontier))
    )
    whole = explore(space)
    for partitions in (OnePartition(space), WorkerProcesses(Scope(3), 2)):
        begun.stopped, begun.levels = "", whole.levels[:5]
        partitions.begin(levels)
        assert explore(space, partitions, earlier=begun).levels == whole.levels
    partitions.__exit__(None, None, None)


def test_a_worker_that_dies_is_named():
    with WorkerProcesses(Scope(3), 2) as partitions:
        partitions.begin([[space_of(Scope(3), symmetry=True).initial()]])
        os.kill(partitions._processes[1].pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="fewer --workers"):
            explore(space_of(Scope(3), symmetry=True), partitions)
