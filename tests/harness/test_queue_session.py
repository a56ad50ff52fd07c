"""A queue session names what a planted fault breaks, and accuses no right queue."""

import pytest

from poolproof.contract.commands import Append, AppendN, PopLeft, PopLeftN, PrependN, Remove
from poolproof.contract.target import capabilities_of
from poolproof.harness.queue_session import QueueSession
from poolproof.reference.native_queue import NativeDictQueue


def after(session, *commands):
    *before, last = commands
    for command in before:
        assert session.step(command) is None, command
    return session.step(last)


def session_of(cls=NativeDictQueue, num_blocks=4):
    return QueueSession(cls(num_blocks), num_blocks)


def test_a_right_queue_passes_every_command():
    session = session_of()
    assert session.first_look() is None
    assert after(
        session, PopLeft(), Remove(2), PopLeftN(2), PopLeftN(0), Append(3), PrependN((0, 1)),
        AppendN((2,)), AppendN(()), Remove(0), PopLeftN(3), PrependN((1, 2)), PopLeftN(2),
        Append(0), PopLeftN(1),
    ) is None  # fmt: skip
    assert session.facts == {
        "the queue was emptied",
        "a block left the middle",
        "a block left an end",
        "a block joined the empty queue",
        "several blocks were popped at once",
        "several blocks joined at once",
    }
    assert session.step_any(Append(1)) is None


class KeepsTheCallersList(NativeDictQueue):
    """Takes a list over when the next block is popped."""

    waiting = ()

    def append_n(self, block_ids):
        self.waiting = block_ids

    def num_free(self):
        waiting, self.waiting = self.waiting, ()
        super().append_n(waiting)
        return super().num_free()


def test_a_list_that_was_passed_belongs_to_the_caller():
    found = after(session_of(KeepsTheCallersList), PopLeftN(2), AppendN((1, 0)))
    assert found is not None


class PopsTheTail(NativeDictQueue):
    def popleft(self):
        block = self.free_order()[-1]
        self.remove(block)
        return block


class MiscountsAppends(NativeDictQueue):
    extra = 0

    def append(self, block_id):
        super().append(block_id)
        self.extra += 1

    def num_free(self):
        return super().num_free() + self.extra


class KeepsRemoved(NativeDictQueue):
    def remove(self, block_id):
        pass

    def num_free(self):
        return super().num_free() - 1


class LinksBackwards(NativeDictQueue):
    def free_neighbours(self, block_id):
        links = super().free_neighbours(block_id)
        return links and links[::-1]


class PrependsReversed(NativeDictQueue):
    def prepend_n(self, block_ids):
        super().prepend_n(block_ids[::-1])


class Crashes(NativeDictQueue):
    def remove(self, block_id):
        raise KeyError(block_id)


class CannotBeRead(NativeDictQueue):
    def free_order(self):
        return None


@pytest.mark.parametrize(
    ("cls", "invariant", "commands"),
    [
        (PopsTheTail, "ORD", [PopLeft()]),
        (MiscountsAppends, "OWN", [PopLeft(), Append(0)]),
        (KeepsRemoved, "OWN", [Remove(1)]),
        (PrependsReversed, "ORD", [PopLeftN(2), PrependN((0, 1))]),
        (Crashes, "CRASH", [Remove(1)]),
        (CannotBeRead, "CRASH", [PopLeft()]),
    ],
)
def test_a_planted_fault_is_named(cls, invariant, commands):
    found = after(session_of(cls), *commands)
    assert found.invariant == invariant
    assert found.command_index == len(commands) - 1


@pytest.mark.parametrize(("cls", "invariant"), [(LinksBackwards, "LINK"), (CannotBeRead, "CRASH")])
def test_a_queue_that_is_broken_from_the_start_is_named(cls, invariant):
    assert session_of(cls).first_look().invariant == invariant


def test_a_queue_that_shows_no_links_is_read_without():
    class Singly(NativeDictQueue):
        free_neighbours = None

    session = session_of(Singly)
    assert not capabilities_of(session.target).observers
    assert after(session, PopLeft(), Append(0)) is None


def test_a_batch_may_come_as_a_tuple():
    class Tuples(NativeDictQueue):
        def popleft_n(self, count):
            return tuple(super().popleft_n(count))

    assert after(session_of(Tuples), PopLeftN(2)) is None


def test_a_command_is_defined_where_its_preconditions_hold():
    session = session_of()
    assert session.is_defined(Remove(0))
    assert not session.is_defined(Append(0))
    session.target.prepend_n = None
    assert not QueueSession(session.target, 4).is_defined(PrependN(()))
