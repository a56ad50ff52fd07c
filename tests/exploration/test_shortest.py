"""Breadth-first search finds the shortest failures, always the same, and none in clean pools."""

from dataclasses import replace
from itertools import count

import pytest

from poolproof.bugs.catalogue import specimen
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.exploration.shortest import shortest_failure, shortest_queue_failure
from poolproof.harness.replay import replay
from poolproof.impl.block_pool import BlockPool

SHORTEST = {
    "A1": 3, "A3": 1, "A4": 1, "A6": 1, "A12": 4, "A13": 3, "A16": 2, "A21": 2, "A32": 2,
    "B14": 1, "D1": 3, "D3": 4, "D4": 4, "D6": 3, "D7": 2, "D8": 3, "D11": 4, "D17": 2,
    "D21": 1, "E1": 2, "E4": 2, "E8": 1, "E10": 4, "E13": 3, "J1": 3, "J9": 4, "J10": 2,
}  # fmt: skip
SHORTEST_OF_QUEUES = {"Q1": 2, "Q2": 3, "Q3": 2, "Q4": 1, "Q7": 2}


def found_in(specimen_id, **options):
    planted = specimen(specimen_id)
    num_blocks = 3 + (planted.profile.null_block is not None)
    return shortest_failure(planted.make, planted.profile, num_blocks, **options)


@pytest.mark.parametrize(("specimen_id", "length"), SHORTEST.items())
def test_the_shortest_failure_of_a_pool_has_the_known_length(specimen_id, length):
    result = found_in(specimen_id, max_commands=5)
    assert len(result.commands) == length
    assert result.depth == length - 1
    assert result.violation.invariant in specimen(specimen_id).invariants


@pytest.mark.parametrize(("specimen_id", "length"), SHORTEST_OF_QUEUES.items())
def test_the_shortest_failure_of_a_queue_has_the_known_length(specimen_id, length):
    result = shortest_queue_failure(specimen(specimen_id).make, 3, max_commands=5)
    assert len(result.commands) == length
    assert result.violation.invariant in specimen(specimen_id).invariants


@pytest.mark.deep
def test_a_bug_that_remembers_where_a_block_stood_needs_five_commands():
    assert len(found_in("E7", max_commands=5).commands) == 5


def test_a_shortest_failure_reads_as_a_person_would_write_it():
    shown = [str(command) for command in found_in("A12").commands]
    assert shown == ["allocate(1)", "cache([0], [01010101])", "free([0])", "touch([0])"]


def test_the_same_search_gives_the_same_result():
    first, second = found_in("D8"), found_in("D8")
    assert replace(first, duration_s=0.0) == replace(second, duration_s=0.0)


def test_a_replay_of_the_shortest_failure_shows_it():
    planted, result = specimen("D4"), found_in("D4")
    trace = Trace("D4", "pool", planted.profile, 3, True, result.commands)
    assert replay(trace, planted.make).violation == result.violation


def test_nothing_is_found_in_the_clean_pool():
    profile = Profile(events="per-copy", misuse="undefined", null_block=0, null_in_lists="ignored")
    result = shortest_failure(
        lambda n, caching: CleanPool(n, enable_caching=caching, rules=profile),
        profile, 3, hashes=1, max_commands=3,
    )  # fmt: skip
    assert (result.commands, result.violation, result.depth) == (None, None, 3)
    assert not result.exhausted


def test_nothing_is_found_with_caching_off():
    result = shortest_failure(
        lambda n, caching: CleanPool(n, enable_caching=caching), Profile(), 2,
        enable_caching=False, max_commands=4,
    )  # fmt: skip
    assert (result.commands, result.depth) == (None, 4)


def test_all_states_of_a_small_queue_are_seen():
    result = shortest_queue_failure(lambda n, _caching: CleanQueue(n), 3, max_commands=20)
    assert result.exhausted
    # Each of 0 to 3 blocks in any order: 1 + 3 + 6 + 6.
    assert result.num_states <= 16


def test_the_search_stops_at_its_bound_on_states():
    result = shortest_failure(
        lambda n, caching: CleanPool(n, enable_caching=caching), Profile(), 3,
        max_commands=6, max_states=20,
    )  # fmt: skip
    assert result.commands is None
    assert result.depth < 6


class Unpicklable(CleanPool):
    """A pool that pickle cannot write, with the bug of D3."""

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot be pickled")

    def _revive(self, block_id):
        super()._revive(block_id)
        self._drop_hash(block_id)


def test_a_target_that_cannot_be_pickled_is_searched_by_what_it_shows():
    result = shortest_failure(
        lambda n, caching: Unpicklable(n, enable_caching=caching), Profile(), 3, max_commands=4
    )
    assert result.commands == found_in("D3").commands


def test_a_constructor_that_raises_is_the_shortest_failure_of_all():
    def make(num_blocks, _caching):
        raise RuntimeError(f"no room for {num_blocks} blocks")

    result = shortest_failure(make, Profile(), 3)
    assert result.commands == ()
    assert "no room for 3 blocks" in result.violation.sentence


def make_but_every(number):
    built = count(1)

    def make(num_blocks, enable_caching):
        if next(built) % number == 0:
            raise RuntimeError("no more")
        return CleanPool(num_blocks, enable_caching=enable_caching)

    return make


def test_a_constructor_that_raises_later_is_a_failure_as_well():
    result = shortest_failure(make_but_every(5), Profile(), 3)
    assert result.commands == ()
    assert "no more" in result.violation.sentence
    assert "does not behave the same way twice" in result.violation.sentence


def test_a_constructor_that_raises_later_ends_a_search_for_something_else():
    result = shortest_failure(
        make_but_every(5), Profile(), 3, is_wanted=lambda violation, _: violation.invariant == "IDX"
    )
    assert result.commands is None
    assert not result.exhausted


def test_a_pool_that_is_broken_from_the_start_needs_no_command():
    result = shortest_failure(
        lambda n, caching: CleanPool(n + 1, enable_caching=caching), Profile(), 3
    )
    assert (result.commands, result.depth) == ((), -1)


def test_a_target_that_counts_its_calls_costs_no_more_than_was_allowed():
    """None of its states merge, and each is further away than the last."""

    class Counts(BlockPool):
        calls = 0

        def allocate(self, n):
            self.calls += 1
            return super().allocate(n)

    heard = []
    found = shortest_failure(
        lambda num_blocks, caching: Counts(num_blocks, enable_caching=caching),
        Profile(), 1, max_commands=10_000, max_states=10_000, max_applied=5_000,
        announce=heard.append,
    )  # fmt: skip
    assert found.commands is None
    assert not found.exhausted
    assert found.out_of_steps
    assert len(heard) <= 5_000 + 100 * (found.depth + 1)  # what one state's commands may take


def test_a_search_that_ends_within_its_steps_is_not_out_of_them():
    found = shortest_failure(
        lambda blocks, caching: BlockPool(blocks, enable_caching=caching),
        Profile(), 2, max_commands=3, max_applied=100_000,
    )  # fmt: skip
    assert not found.out_of_steps
    assert found.depth == 3
