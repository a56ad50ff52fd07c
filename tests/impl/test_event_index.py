"""A router's index: which engine has which prefix, by events alone."""

from __future__ import annotations

import random

import pytest

from poolproof.impl.event_index import EventIndex

SIZE = 2
A, B, C = (1, 2), (3, 4), (5, 6)


def stored(*hashes, tokens=None, parent=None, medium="GPU", lora=None, salt=None):
    given = [(10 * h, 10 * h + 1) for h in hashes] if tokens is None else tokens
    return {
        "type": "stored", "hashes": list(hashes), "parent": parent, "medium": medium,
        "tokens": [token for block in given for token in block], "lora": lora, "salt": salt,
    }  # fmt: skip


def removed(*hashes, medium="GPU"):
    return {"type": "removed", "hashes": list(hashes), "medium": medium}


CLEARED = {"type": "cleared"}


def told(index, sequence, *events, engine="e", replayed=False):
    batch = {"engine": engine, "sequence": sequence, "replayed": replayed, "events": list(events)}
    return index.apply(batch)


def index_of(*batches):
    index = EventIndex(SIZE)
    for sequence, events in enumerate(batches):
        assert told(index, sequence, *events) is None
    return index


def test_blocks_are_counted_from_the_beginning_up_to_the_first_that_is_missing():
    index = index_of([stored(1, 2, tokens=[A, B])])
    assert index.lookup([*A, *B, *C]) == {"e": 2}
    assert index.lookup([*A, *B[:1]]) == {"e": 1}
    assert index.lookup([*B, *A]) == {"e": 0}
    assert index.lookup([]) == {"e": 0}


def test_a_block_is_found_behind_its_own_parent_only():
    index = index_of([stored(1, tokens=[A]), stored(2, tokens=[B], parent=1)])
    assert index.lookup([*A, *B]) == {"e": 2}
    assert index.lookup([*C, *B]) == {"e": 0}
    assert index.lookup(B) == {"e": 0}


def test_adapter_and_salt_are_part_of_what_a_block_stands_for():
    index = index_of([stored(1, tokens=[A], lora="x", salt="s")])
    assert index.lookup(A, lora="x", salt="s") == {"e": 1}
    for other in ({}, {"lora": "x"}, {"salt": "s"}, {"lora": "s", "salt": "x"}):
        assert index.lookup(A, **other) == {"e": 0}


def test_engines_are_told_apart():
    index = index_of([stored(1, tokens=[A])])
    told(index, 0, engine="f")
    told(index, 1, removed(1), engine="f")
    assert index.lookup(A) == {"e": 1, "f": 0}


def test_the_last_copy_takes_the_block_along_and_what_is_behind_it_counts_again_later():
    index = index_of([stored(1, 2, tokens=[A, B]), stored(1, tokens=[A])], [removed(1)])
    assert index.lookup([*A, *B]) == {"e": 2}
    told(index, 2, removed(1))
    assert index.lookup([*A, *B]) == {"e": 0}
    told(index, 3, stored(1, tokens=[A]))
    assert index.lookup([*A, *B]) == {"e": 2}


def test_what_stands_for_nothing_any_more_is_forgotten():
    index = index_of([stored(1, 2, tokens=[A, B])], [removed(2, 1)])
    known = index.engines["e"]
    assert (known.copies, known.hashes_of, known.meanings) == ({}, {}, {})
    told(index, 2, removed(7))
    assert not known.copies


@pytest.mark.parametrize("medium", ["CPU", "CPU_PINNED", "DISK"])
def test_another_medium_keeps_what_a_block_stands_for_and_does_not_count(medium):
    index = index_of([stored(1, tokens=[A])], [stored(1, tokens=[()], medium=medium), removed(1)])
    assert index.lookup(A) == {"e": 0}
    told(index, 2, stored(1, tokens=[()]))
    assert index.lookup(A) == {"e": 1}
    told(index, 3, removed(1), removed(1, medium=medium), stored(1, tokens=[()]))
    assert index.lookup(A) == {"e": 0}


def test_a_cleared_cache_is_empty_and_known():
    index = index_of([stored(1, tokens=[A])], [CLEARED])
    assert index.lookup(A) == {"e": 0}
    assert index.engines["e"].is_known is True


def test_lost_batches_are_asked_for_once_and_nothing_is_said_until_they_come():
    index = index_of([stored(1, tokens=[A])])
    assert told(index, 3, removed(1)) == 1
    assert index.lookup(A) == {}
    for sequence, event in (
        (1, stored(2, parent=1, tokens=[B])),
        (2, CLEARED),
        (3, stored(1, tokens=[A])),
    ):
        assert told(index, sequence, event, replayed=True) is None
    assert index.lookup([*A, *B]) == {"e": 1}


def test_what_does_not_come_makes_everything_unknown_until_the_cache_is_cleared():
    index = index_of([stored(1, tokens=[A])])
    assert told(index, 3, stored(2, tokens=[B])) == 1
    assert told(index, 4, stored(2, tokens=[B])) is None
    assert index.lookup(B) == {}
    told(index, 5, stored(1, tokens=[A]))
    assert index.lookup(A) == {}
    told(index, 6, CLEARED, stored(1, tokens=[A]))
    assert index.lookup([*A, *B]) == {"e": 1}


def test_replayed_batches_with_a_gap_are_followed_and_not_believed():
    index = index_of([stored(1, tokens=[A])])
    assert told(index, 3, stored(3, tokens=[C])) == 1
    assert told(index, 2, stored(2, tokens=[B]), replayed=True) is None
    assert index.engines["e"].expected == 3
    assert index.lookup(B) == {}


def test_a_later_gap_is_asked_for_as_well():
    index = index_of([])
    assert told(index, 2) == 1
    assert told(index, 1, replayed=True) is None
    assert told(index, 2, replayed=True) is None
    assert told(index, 5) == 3


def test_what_was_heard_is_passed_over_when_it_is_replayed():
    index = index_of([stored(1, tokens=[A])], [removed(1)])
    assert told(index, 0, stored(1, tokens=[A]), replayed=True) is None
    assert index.lookup(A) == {"e": 0}
    assert index.engines["e"].expected == 2


def test_numbers_that_begin_again_are_a_restart():
    index = index_of([stored(1, tokens=[A])], [], [])
    assert told(index, 0, stored(2, tokens=[B])) is None
    assert index.lookup(A) == {"e": 0}
    assert index.lookup(B) == {"e": 1}
    assert index.engines["e"].expected == 1
    assert told(index, 5) == 1
    assert index.lookup(B) == {}


def test_a_restart_of_which_the_beginning_was_lost_is_asked_for_from_0():
    index = index_of([], [], [])
    assert told(index, 1, stored(1, tokens=[A])) == 0


def test_two_hashes_of_one_meaning_leave_one_after_the_other():
    index = index_of([stored(1, tokens=[A]), stored(2, tokens=[A])], [removed(1), removed(2)])
    assert index.lookup(A) == {"e": 0}
    assert index.engines["e"].hashes_of == {}


def test_a_restart_behind_a_gap_is_known_again():
    index = index_of([stored(1, tokens=[A])])
    assert told(index, 2) == 1
    assert told(index, 0, stored(2, tokens=[B])) is None
    assert index.lookup(B) == {"e": 1}


@pytest.mark.parametrize("seed", range(20))
def test_random_events_agree_with_a_multiset(seed):
    """Chains over few tokens: what is looked up is what a plain count of copies says."""
    choose = random.Random(seed)
    index, copies = EventIndex(SIZE), {}
    chains = [tuple(choose.choice((A, B, C)) for _ in range(3)) for _ in range(4)]
    for sequence in range(60):
        events = []
        for _ in range(choose.randint(0, 3)):
            chain = choose.choice(chains)
            depth, medium = choose.randrange(3), choose.choice(("GPU", "CPU"))
            names = [chain[: at + 1] for at in range(3)]
            place = (names[depth], medium)
            if copies.get(place) and choose.random() < 0.6:
                copies[place] -= 1
                events.append(removed(names[depth], medium=medium))
            else:
                copies[place] = copies.get(place, 0) + 1
                parent = names[depth - 1] if depth else None
                events.append(
                    stored(names[depth], tokens=[chain[depth]], parent=parent, medium=medium)
                )
        told(index, sequence, *events)
        for chain in chains:
            resident = [bool(copies.get((chain[: at + 1], "GPU"))) for at in range(3)]
            expected = [*resident, False].index(False)
            assert index.lookup([t for block in chain for t in block]) == {"e": expected}
