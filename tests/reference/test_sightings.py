"""Sightings: what every index that keeps out what comes once must have taken, and what none can."""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.sequence_model import SequenceModel
from poolproof.reference.sightings import Sightings

KEY, OTHER = b"key", b"other"


def sightings_of(prior=1, **rows):
    return Sightings(ManagerProfile.from_mapping({"prior_sightings": prior, **rows}))


def seen(sightings, *, sure=0, unsure=0, asked=True, counted=True):
    """Whether the index takes what is computed now."""
    return sightings.takes(
        KEY, num_sure=sure, num_unsure=unsure, was_asked_for=asked, is_counted=counted
    )


@pytest.mark.parametrize("prior", [1, 2, 3])
def test_by_the_rows_each_time_counts_and_nothing_is_forgotten(prior):
    sightings = sightings_of(prior, index="exact")
    assert [seen(sightings, counted=False) for _ in range(prior)] == [False] * prior
    assert seen(sightings, counted=False) is True
    sightings.reset()
    assert seen(sightings) is True
    assert sightings.num_seen(KEY) == prior + 2


def test_by_the_rows_asking_counts_for_nothing():
    sightings = sightings_of(index="exact")
    sightings.ask([KEY, KEY])
    assert sightings.num_seen(KEY) == 0
    assert seen(sightings) is False


@pytest.mark.parametrize("prior", [1, 2])
def test_what_each_request_asks_for_and_computes_is_taken_in_its_turn(prior):
    sightings = sightings_of(prior)
    answers = []
    for _ in range(prior + 1):
        sightings.ask([KEY, OTHER])
        answers.append(seen(sightings))
    assert answers == [False] * prior + [True]
    assert sightings.num_seen(KEY) == prior + 1
    assert not sightings.is_early(KEY)


def test_who_asked_twice_may_have_it_taken_the_first_time():
    sightings = sightings_of()
    sightings.ask([KEY])
    assert sightings.is_early(KEY)
    sightings.ask([KEY])
    assert not sightings.is_early(KEY)
    assert sightings.is_early(OTHER)
    assert seen(sightings) is None


def test_what_nobody_asked_for_counts_when_it_is_computed_for_some():
    sightings = sightings_of()
    answers = [seen(sightings, asked=False, counted=False) for _ in range(3)]
    assert answers == [False, None, None]


def test_what_was_not_computed_here_counts_for_some():
    sightings = sightings_of()
    sightings.ask([KEY])
    assert seen(sightings, counted=False) is False
    sightings.ask([KEY])
    assert seen(sightings) is None
    sightings.ask([KEY])
    assert seen(sightings, unsure=1) is True


@pytest.mark.parametrize(("sure", "unsure", "taken"), [(0, 0, None), (0, 1, True), (1, 0, True)])
def test_sightings_count_anew_once_what_was_taken_is_gone(sure, unsure, taken):
    sightings = sightings_of()
    for _ in range(2):
        sightings.ask([KEY])
        seen(sightings)
    sightings.ask([KEY])
    assert seen(sightings, sure=sure, unsure=unsure) is taken


def test_a_copy_that_is_gone_may_have_been_the_one_that_was_taken():
    sightings = sightings_of()
    for unsure in (0, 1):
        sightings.ask([KEY])
        sightings.ask([KEY])
        seen(sightings, unsure=unsure)
    sightings.ask([KEY])
    assert seen(sightings, unsure=1) is None


def test_a_reset_may_forget_what_was_seen_and_may_not():
    sightings = sightings_of()
    sightings.ask([KEY])
    seen(sightings)
    sightings.reset()
    sightings.ask([KEY])
    assert seen(sightings) is None
    sightings.ask([KEY])
    assert seen(sightings, unsure=1) is True


def test_states_differ_where_what_is_taken_next_does():
    one, other = sightings_of(), sightings_of()
    assert one.state() == other.state()
    one.ask([KEY])
    assert one.state() != other.state()
    other.ask([KEY])
    assert one.state() == other.state()
    seen(one)
    seen(other, counted=False)
    assert one.state() != other.state()


# In a model.


def model_of(**rows):
    """Blocks of two tokens."""
    profile = ManagerProfile.from_mapping({"prior_sightings": 1, **rows})
    return SequenceModel(12, 2, profile)


def admitted(model, seq_id, tokens, table, loading=0):
    sequence = model.new_sequence(seq_id, TokenChain(tuple(tokens)))
    model.asked(sequence)
    sequence.num_scheduled = len(tokens)
    sequence.loading = loading
    model.admit(sequence, 0, [list(table)])
    return sequence


def computed(model, *given, **named):
    sequence = admitted(model, *given, **named)
    model.computed(sequence)
    model.publish(sequence)
    return sequence


def keyed(model):
    return {block for block, keys in model.pool.keys.items() if keys}


def test_without_the_row_nothing_is_counted():
    model = SequenceModel(4, 2, ManagerProfile())
    assert model.sightings is None
    assert computed(model, 0, [1, 2], [0]).num_asked == 0
    assert keyed(model) == {0}
    assert model.reset() is False


@pytest.mark.parametrize("index", ["content", "exact"])
def test_the_second_time_a_block_gets_its_key(index):
    model = model_of(index=index)
    model.end(computed(model, 0, [1, 2, 3], [0, 1]))
    assert keyed(model) == set()
    computed(model, 1, [1, 2, 3], [2, 3])
    assert keyed(model) == {2}
    assert model.pool.doubtful == set()


def test_what_is_generated_may_be_counted_as_it_is_computed():
    model = model_of()
    for seq_id in range(2):
        sequence = computed(model, seq_id, [1], [seq_id])
        model.append(sequence, [2])
        sequence.num_scheduled = 1
        model.computed(sequence)
        model.publish(sequence)
    assert model.pool.doubtful == keyed(model) == {1}


def test_what_was_cut_off_was_asked_for_no_more():
    model = model_of()
    sequence = computed(model, 0, [1, 2, 3, 4], [0, 1])
    model.truncate(sequence, 3)
    assert sequence.num_asked == 3
    model.append(sequence, [4])
    sequence.num_scheduled = 1
    model.computed(sequence)
    model.publish(sequence)
    assert model.pool.doubtful == {1}


def test_what_was_loaded_is_no_sure_sighting():
    model = model_of()
    for seq_id, table in enumerate(([0, 1, 2], [3, 4, 5])):
        sequence = computed(model, seq_id, [1, 2, 3, 4, 5], table, loading=3)
        assert sequence.num_loaded == 3
        sequence.num_scheduled = 2
        model.computed(sequence)
        model.publish(sequence)
    # The second block was computed in part.
    assert keyed(model) == model.pool.doubtful == {3, 4}
    model.preempt(sequence)
    assert sequence.num_loaded == 0


def test_a_block_that_parent_and_child_publish_may_count_twice():
    model = model_of(publishes="finish")
    parent = computed(model, 0, [1, 2, 3], [0, 1])
    child = model.new_sequence(1, parent.chain)
    model.share(parent, child)
    model.end(parent)
    assert keyed(model) == set()
    model.end(child)
    assert model.pool.doubtful == {0}


def test_what_moved_is_published_again_and_is_no_sure_sighting():
    model = model_of(host_blocks=4)
    sequence = computed(model, 0, [1, 2, 3], [0, 1])
    for place, pool, table in ("host", model.host, [0, 1]), ("device", model.pool, [4, 5]):
        model.release(sequence)
        sequence.place = place
        model.settle([sequence], [[table]], pool)
    assert sequence.num_asked == 0
    model.publish(sequence)
    assert model.pool.doubtful == {4}


def test_a_window_that_slid_leaves_nothing_to_be_seen():
    model = model_of(groups="sliding:2", null_block=0)
    sequence = admitted(model, 0, [1, 2, 3], [1, 2])
    model.computed(sequence)
    model.follow(sequence, [[0, 2]])
    model.publish(sequence)
    assert model.sightings.num_seen(model.key(sequence, 0, 0)) == 1
    assert seen_carried(model) == 0


def seen_carried(model):
    return sum(map(len, model.pool.carriers.values()))


def test_a_key_that_others_may_lose_is_in_doubt_with_them():
    model = model_of(duplicates="last")
    for seq_id in range(2):
        sequence = model.new_sequence(seq_id, TokenChain((1, 2)))
        model.asked(sequence)
        model.asked(sequence)
        sequence.loading = 2
        model.admit(sequence, 0, [[seq_id]])
        model.computed(sequence)
        model.publish(sequence)
    assert model.pool.doubtful == {0, 1}


def test_a_reset_tells_the_sightings_once_it_is_done():
    model = model_of()
    sequence = computed(model, 0, [1, 2], [0])
    assert model.reset() is False
    computed(model, 1, [1, 2], [1])
    assert keyed(model) == {1}
    model.end(sequence)
    model.end(model.sequences[1])
    assert model.reset() is True
    computed(model, 2, [1, 2], [2])
    assert model.pool.doubtful == {2}


def test_keys_that_a_sequence_asks_for_are_those_of_all_groups():
    model = model_of(groups="full+full:0:4")
    sequence = model.new_sequence(0, TokenChain((1, 2, 3, 4, 5)))
    keys = list(model.full_keys(sequence))
    assert keys == [model.key(sequence, *place) for place in ((0, 0), (0, 1), (1, 0))]
