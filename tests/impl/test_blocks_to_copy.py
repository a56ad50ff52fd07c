"""The copies of a step: their order, and what may run at once."""

import random

from poolproof.impl.blocks_to_copy import BlocksToCopy


def collected(pairs: list[tuple[int, int]]) -> BlocksToCopy:
    copies = BlocksToCopy()
    for pair in pairs:
        copies.add(pair)
    return copies


def test_the_copies_of_one_source_are_merged() -> None:
    assert collected([(1, 2), (5, 6), (1, 3)]).batches() == [{1: [2, 3], 5: [6]}]


def test_no_copy_is_nothing() -> None:
    copies = BlocksToCopy()
    copies.add(None)
    assert (copies.pairs, copies.batches()) == ([], [])


def test_a_reused_source_waits() -> None:
    assert collected([(1, 2), (4, 1)]).batches() == [{1: [2]}, {4: [1]}]


def test_a_copy_of_a_copy_waits() -> None:
    assert collected([(1, 2), (2, 3)]).batches() == [{1: [2]}, {2: [3]}]


def test_what_does_not_have_to_wait_does_not() -> None:
    assert collected([(1, 2), (2, 3), (2, 4)]).batches() == [{1: [2]}, {2: [3, 4]}]


def test_a_block_written_twice_waits() -> None:
    assert collected([(1, 2), (3, 2)]).batches() == [{1: [2]}, {3: [2]}]


def test_a_source_with_new_content_is_not_merged_with_its_old_one() -> None:
    assert collected([(1, 2), (4, 1), (1, 3)]).batches() == [{1: [2]}, {4: [1]}, {1: [3]}]


def test_a_reset_leaves_no_copy() -> None:
    copies = collected([(1, 2)])
    copies.clear()
    assert copies.batches() == []


def test_batches_in_any_order_within_give_what_the_pairs_give_in_order() -> None:
    choose = random.Random(0)
    for _ in range(300):
        pairs = [tuple(choose.sample(range(5), 2)) for _ in range(choose.randint(0, 6))]
        expected, memory = list(range(5)), list(range(5))
        for source, destination in pairs:
            expected[destination] = expected[source]
        for batch in collected(pairs).batches():
            single = [(s, d) for s, destinations in batch.items() for d in destinations]
            choose.shuffle(single)
            for source, destination in single:
                memory[destination] = memory[source]
        assert memory == expected
