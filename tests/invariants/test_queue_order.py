"""A free queue alone is judged by OWN, I1, LINK and ORD."""

import pytest

from poolproof.contract.observation import PoolLedger, QueueLedger, QueueObservation
from poolproof.invariants.catalogue import broken_in_queue, seen_as_pool

KNOWN = QueueLedger((2, 0))
LINKS = [(2, None), None, (None, 0)]


def test_the_right_queue_passes():
    assert broken_in_queue(QueueObservation(3, 2, [2, 0], LINKS), KNOWN) is None
    assert broken_in_queue(QueueObservation(3, 2, [2, 0]), KNOWN) is None


def test_a_block_outside_the_queue_is_seen_as_held():
    pool, ledger = seen_as_pool(QueueObservation(3, 2, [2, 0], LINKS), KNOWN)
    assert (pool.num_free, pool.free_order, pool.neighbours) == (2, [2, 0], LINKS)
    assert ledger == PoolLedger({0: (), 1: (0,), 2: ()}, {}, {}, (2, 0))


@pytest.mark.parametrize(
    ("seen", "invariant", "words"),
    [
        (QueueObservation(3, 3, [2, 0]), "OWN", "num_free() says 3"),
        (QueueObservation(3, 2, [2, 2]), "OWN", "block 2 stands in the free queue more than once"),
        (QueueObservation(3, 2, [2, 1]), "I1", "block 1 stands in the free queue although"),
        (QueueObservation(3, 2, [2, 0], [(2, None), (2, 0), (None, 0)]), "LINK", "block 1 is"),
        (QueueObservation(3, 2, [0, 2]), "ORD", "place 0 of the free queue holds block 0"),
    ],
)
def test_a_broken_queue_is_named(seen, invariant, words):
    found = broken_in_queue(seen, KNOWN)
    assert found.invariant == invariant
    assert found.sentence.startswith(words)
