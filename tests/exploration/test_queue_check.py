"""Every operation in every state of a small queue."""

import pytest

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.exploration.exhaustive_run import MOST_FAILURES, check_part, parts_of
from poolproof.exploration.queue_check import QueueCheck, num_queue_states, queue_states
from poolproof.exploration.watch import Watch

DEAF = Watch(lambda _: None, lambda _: None)


def checked(make, num_blocks):
    states = [bytes(order) for order in queue_states(num_blocks)]
    (part,) = parts_of(states, None, num_blocks, 0)
    can = capabilities_of(make(num_blocks, True))
    return check_part(
        "it", make=make, profile=Profile(), can=can, part=part, watch=DEAF, mark=lambda _: None
    )


def test_a_queue_without_bugs_holds_in_every_state():
    found = checked(lambda n, _: CleanQueue(n), 4)
    assert found.failures == {}
    assert found.num_states == num_queue_states(4) == 65
    # 65 states, two ways to build each, every operation with every list.
    assert found.num_commands == 2_214


@pytest.mark.parametrize("name", [n for n, s in SPECIMENS.items() if s.level == "queue"])
def test_every_bug_of_a_queue_shows_in_some_state_of_three_blocks(name):
    assert checked(SPECIMENS[name].make, 3).failures


def test_operations_that_a_queue_does_not_have_are_left_out():
    class Single(CleanQueue):
        popleft_n = append_n = prepend_n = None

    # The clean queue's own single forms call the batch forms.
    class Queue:
        def __init__(self, num_blocks):
            self._queue = CleanQueue(num_blocks)

        def __getattr__(self, name):
            if name in {"popleft_n", "append_n", "prepend_n"}:
                raise AttributeError(name)
            return getattr(self._queue, name)

    found = checked(lambda n, _: Queue(n), 3)
    assert found.failures == {}
    assert found.num_commands > 0


def test_a_queue_that_fails_everywhere_ends_early():
    class Miscounts(CleanQueue):
        def num_free(self):
            return super().num_free() + 1

    found = checked(lambda n, _: Miscounts(n), 4)
    assert found.num_states == MOST_FAILURES
    assert next(iter(found.failures.values())).commands == ()


def test_a_queue_that_cannot_be_built_is_a_finding():
    def make(num_blocks, _):
        raise OSError("no memory")

    trace = QueueCheck("it", make, 2, DEAF).check(())
    assert trace.violation.invariant == "CRASH"
