"""Minimised traces are short, still break the same invariant as badly, and are always the same."""

from dataclasses import replace

import pytest

from poolproof.contract.commands import (
    Allocate,
    Append,
    Cache,
    Evict,
    Free,
    Lookup,
    PopLeft,
    PopLeftN,
    Remove,
    Touch,
)
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.minimise import execute_in_process, minimise, run_candidate
from poolproof.harness.minimising_passes import Repeated, TraceVariant
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.replay import replay
from poolproof.impl.block_pool import BlockPool
from poolproof.reference.native_queue import NativeDictQueue

A, B, C = (bytes([number]) * 16 for number in range(3))


class KeepsAnIndexEntry(BlockPool):
    def __init__(self, num_blocks, **rows):
        super().__init__(num_blocks, **rows)
        self.stale = {}

    def allocate(self, n):
        hashes = list(map(self.block_hash, range(self.num_blocks)))
        taken = super().allocate(n)
        for block in taken:
            if super().lookup(hashes[block]) is None:
                self.stale[hashes[block]] = block
        return taken

    def evict(self, block_ids):
        super().evict(block_ids)
        self.stale = {h: block for h, block in self.stale.items() if block not in block_ids}

    def reset(self):
        done = super().reset()
        if done:
            self.stale.clear()
        return done

    def lookup(self, block_hash, *, group=0):
        found = super().lookup(block_hash, group=group)
        return self.stale.get(block_hash) if found is None else found


class QueuesTwice(BlockPool):
    """Two loops: every entry is counted down first, and queued afterwards if its count is 0."""

    def free(self, block_ids):
        super().free(block_ids)
        if len(block_ids) > len(set(block_ids)):
            self._queue.length += 1


class ForgetsTheThirdOwner(BlockPool):
    def touch(self, block_ids):
        super().touch(block_ids)
        for block in set(block_ids):
            if self._ref_counts[block] == 4:
                self._ref_counts[block] = 3


class ReordersOnRefusal(BlockPool):
    def allocate(self, n):
        if n > self.num_free() > 1:
            super().free(super().allocate(1))
        return super().allocate(n)


class RaisesHalfway(BlockPool):
    def free(self, block_ids):
        legal = [block for block in block_ids if 0 <= block < self.num_blocks]
        if len(legal) < len(block_ids):
            BlockPool.free(self, legal)
        super().free(block_ids)


GOLDEN = [
    (KeepsAnIndexEntry, 4, Severity.WRONG_DATA_OF_ANOTHER),
    (QueuesTwice, 3, Severity.WRONG_DATA_OF_ANOTHER),
    (ForgetsTheThirdOwner, 2, Severity.WRONG_DATA_OF_ANOTHER),
    (ReordersOnRefusal, 1, Severity.ORDER),
    (RaisesHalfway, 2, Severity.WRONG_DATA_OF_ANOTHER),
]


def campaign_of(cls):
    def make(num_blocks, enable_caching):
        return cls(num_blocks, enable_caching=enable_caching)

    return PoolCampaign(cls.__name__, make, Profile())


def failing(cls, start=0, severity=None):
    campaign = campaign_of(cls)
    traces = (campaign.run(number).trace for number in range(start, start + 300))
    broken = (trace for trace in traces if trace is not None)
    trace = next(trace for trace in broken if severity in (None, trace.violation.severity))
    return trace, campaign.make


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("cls", "length", "severity"), GOLDEN, ids=[row[0].__name__ for row in GOLDEN]
)
def test_a_planted_fault_shrinks_to_its_known_length(cls, length, severity):
    """The shortest length from one of a few seeds, and within two commands of it from all."""
    lengths = []
    for start in (0, 300, 600, 900):
        trace, make = failing(cls, start, severity)
        small = minimise(trace, execute_in_process(make))
        lengths.append(len(small.commands))
        assert small.violation.invariant == trace.violation.invariant
        assert small.violation.severity.rank <= trace.violation.severity.rank
        again = replay(small, make)
        assert again.violation == small.violation
        assert again.applied == small.commands
    assert min(lengths) == length
    assert max(lengths) <= length + 2


def test_minimising_is_deterministic():
    trace, make = failing(KeepsAnIndexEntry)
    first, second = (minimise(trace, execute_in_process(make)) for _ in range(2))
    assert first == second


def test_arguments_and_blocks_become_few_and_small():
    trace, make = failing(KeepsAnIndexEntry)
    small = minimise(trace, execute_in_process(make))
    assert small.num_blocks == 1
    assert [type(command) for command in small.commands] == [Allocate, Cache, Free, Allocate]
    assert small.commands[0] == small.commands[3] == Allocate(1)
    assert small.commands[2] == Free((0,))


def trace_of(*commands, num_blocks=6, profile=None):
    return Trace("t", "pool", profile or Profile(), num_blocks, True, commands, fingerprint="f-old")


def test_a_trace_that_does_not_fail_comes_back_without_violation():
    trace = trace_of(Allocate(1), Free((0,)))
    small = minimise(trace, execute_in_process(campaign_of(BlockPool).make))
    assert small == trace.with_commands(trace.commands)


def test_other_hashes_are_lowered_to_earlier_ones():
    class MissesAll(BlockPool):
        def lookup(self, block_hash):
            return None

    trace = trace_of(Lookup(A), Allocate(3), Lookup(C), Cache((2, 1), (C, B)))
    small = minimise(trace, execute_in_process(campaign_of(MissesAll).make))
    assert small.commands == (Allocate(1), Cache((0,), (B,)))


def test_a_repeat_of_hashes_is_lowered_to_one_hash():
    class MissesAfterward(BlockPool):
        seen = 0

        def lookup(self, block_hash):
            return None if self.seen else super().lookup(block_hash)

        def free(self, block_ids):
            self.seen = any(map(self.block_hash, block_ids))
            super().free(block_ids)

    trace = trace_of(
        Lookup(A), Allocate(3), Lookup(A), Lookup(B), Cache((1, 2), (B, C)), Free((1, 2))
    )
    small = minimise(trace, execute_in_process(campaign_of(MissesAfterward).make))
    assert len(small.commands) == 3
    assert small.num_blocks == 1


def test_wrong_data_is_not_shrunk_to_a_lost_hit():
    class MissesOrMixes(BlockPool):
        """One free block is lost from the index, with two the wrong one answers."""

        def lookup(self, block_hash):
            found = super().lookup(block_hash)
            if found is None or self.ref_count(found) < 2:
                return found
            return None if self.num_free() == self.num_blocks - 1 else self.free_order()[0]

    trace = trace_of(Allocate(2), Cache((0,), (A,)), Touch((0,)))
    small = minimise(trace, execute_in_process(campaign_of(MissesOrMixes).make))
    assert small.violation.severity is Severity.WRONG_DATA_OF_ANOTHER
    lost = trace_of(Allocate(1), Cache((0,), (A,)), Touch((0,)))
    other = minimise(lost, execute_in_process(campaign_of(MissesOrMixes).make))
    assert other.violation.invariant == small.violation.invariant
    assert other.violation.severity is Severity.LOST_HIT


def right_pool(num_blocks, enable_caching):
    return BlockPool(num_blocks, enable_caching=enable_caching)


@pytest.mark.parametrize("last", [Free((0,)), Touch((0,)), Allocate(1)])
def test_the_operation_that_failed_stays_the_last_one(last):
    """Everything fails here; what allocate breaks must not stand for what free breaks."""

    def execute(setup, candidate):
        attempt = run_candidate(setup, candidate, right_pool)
        broken = Violation("IDX", Severity.WRONG_DATA_OF_ANOTHER, "all is lost")
        return replace(attempt, violation=broken if attempt.commands else None)

    commands = (Allocate(1), Touch((0,)), Allocate(1), last)
    trace = Trace("t", "pool", Profile(), 4, True, commands)
    minimal = minimise(trace, execute)
    assert minimal.commands[-1].verb == last.verb
    assert len(minimal.commands) == (1 if last.verb == "allocate" else 2)


def test_what_is_not_as_bad_is_not_shrunk_to_what_is_worse():
    def execute(setup, candidate):
        attempt = run_candidate(setup, candidate, right_pool)
        few = len(attempt.commands) < 3
        severity = Severity.WRONG_DATA_OF_ANOTHER if few else Severity.LEAK
        broken = Violation("OWN", severity, "counted wrong")
        return replace(attempt, violation=broken if attempt.commands else None)

    trace = Trace("t", "pool", Profile(), 4, True, (Allocate(1),) * 4)
    minimal = minimise(trace, execute)
    assert minimal.violation.severity is Severity.LEAK
    assert len(minimal.commands) == 3


def test_a_pool_that_cannot_be_built_needs_no_commands():
    def make(num_blocks, enable_caching):
        raise RuntimeError("too small")

    trace = trace_of(Allocate(1), profile=Profile(null_block=2))
    small = minimise(trace, execute_in_process(make))
    assert small.commands == ()
    assert small.num_blocks == 3
    assert small.violation.sentence.startswith("constructing the target with 3 blocks")


def test_a_pool_that_is_broken_from_the_start_needs_no_commands():
    class StartsEmpty(BlockPool):
        def num_free(self):
            return 0

    small = minimise(
        trace_of(Allocate(1), num_blocks=2), execute_in_process(campaign_of(StartsEmpty).make)
    )
    assert small.commands == ()
    assert small.num_blocks == 1


def test_a_leak_at_the_end_is_kept():
    class Leaks(BlockPool):
        ended = False

        def num_free(self):
            if self.ended:
                return super().num_free() - 1
            self.ended = self.free_order() == [1, 0]
            return super().num_free()

    trace = trace_of(Allocate(1), Free((0,)), num_blocks=2)
    small = minimise(trace, execute_in_process(campaign_of(Leaks).make))
    assert small.violation is not None


def test_caching_is_turned_on_where_the_trace_fails_as_well():
    class MiscountsWhenAllAreTaken(BlockPool):
        def num_free(self):
            return super().num_free() or 1

    trace = replace(trace_of(Allocate(6)), enable_caching=False)
    small = minimise(trace, execute_in_process(campaign_of(MiscountsWhenAllAreTaken).make))
    assert small.violation is not None
    assert small.enable_caching


def test_caching_stays_off_where_the_bug_needs_that():
    class MiscountsWithoutCaching(BlockPool):
        def num_free(self):
            return super().num_free() or int(not self.enable_caching)

    trace = replace(trace_of(Allocate(6)), enable_caching=False)
    small = minimise(trace, execute_in_process(campaign_of(MiscountsWithoutCaching).make))
    assert small.violation is not None
    assert not small.enable_caching


@pytest.mark.parametrize("enable_caching", [True, False])
def test_attempts_are_limited(enable_caching):
    trace, make = failing(QueuesTwice)
    trace = replace(trace, enable_caching=enable_caching)
    calls = []
    execute = execute_in_process(make)

    def counted(*arguments):
        calls.append(arguments)
        return execute(*arguments)

    small = minimise(trace, counted, max_attempts=5)
    assert len(calls) == 1 + 5
    assert small.violation.invariant == trace.violation.invariant


def test_commands_are_announced_before_they_are_applied():
    heard = []
    make = campaign_of(BlockPool).make
    attempt = run_candidate(trace_of(), [Allocate(1), Free((0,))], make, heard.append)
    assert tuple(heard) == attempt.commands == (Allocate(1), Free((0,)))


def test_commands_that_mean_nothing_are_left_out():
    execute = execute_in_process(campaign_of(BlockPool).make)
    attempt = execute(trace_of(), [Touch((3,)), Allocate(1), Touch((0,))])
    assert attempt.commands == (Allocate(1), Touch((0,)))
    again = execute(trace_of(), attempt.relative[1:])
    assert again.commands == ()


class PopsTwoAtOnceInReverse(NativeDictQueue):
    def popleft_n(self, count):
        return super().popleft_n(count)[::-1]


class ForgetsTheMiddle(NativeDictQueue):
    def remove(self, block_id):
        order = self.free_order()
        super().remove(block_id)
        if 0 < order.index(block_id) < len(order) - 1:
            super().remove(order[0])


@pytest.mark.parametrize(
    ("cls", "commands", "num_blocks"),
    [(PopsTwoAtOnceInReverse, (PopLeftN(2),), 2), (ForgetsTheMiddle, (Remove(1),), 3)],
)
def test_a_queue_is_minimised_too(cls, commands, num_blocks):
    campaign = QueueCampaign("queue", lambda num_blocks, caching: cls(num_blocks))
    trace = next(
        result.trace for result in map(campaign.run, range(100)) if result.trace is not None
    )
    small = minimise(trace, execute_in_process(campaign.make))
    assert small.commands == commands
    assert small.num_blocks == num_blocks


def test_pairs_that_only_go_together_are_deleted():
    """Neither an append alone nor a pop alone can go, both together can."""

    class CountsPops(NativeDictQueue):
        pops = appends = 0

        def popleft(self):
            self.pops += 1
            return super().popleft()

        def append(self, block_id):
            self.appends += 1
            super().append(block_id)

        def num_free(self):
            return super().num_free() + (self.pops == self.appends > 0)

    trace = Trace(
        "t", "queue", Profile(), 3, True,
        (PopLeft(), PopLeft(), Append(1), PopLeft(), Append(0), Append(2)),
    )  # fmt: skip
    small = minimise(trace, execute_in_process(lambda num_blocks, caching: CountsPops(num_blocks)))
    assert small.commands == (PopLeft(), Append(0))


def test_references_that_do_not_matter_go_with_what_gives_them_back():
    trace = trace_of(
        Allocate(3), Touch((1, 1)), Cache((1,), (A,)), Touch((1,)), Free((1, 1, 1, 1)), Allocate(4)
    )
    small = minimise(trace, execute_in_process(campaign_of(KeepsAnIndexEntry).make))
    assert small.commands == (Allocate(1), Cache((0,), (A,)), Free((0,)), Allocate(1))


def test_a_round_ends_where_the_passes_have_tried_the_best_already(monkeypatch):
    begun = []

    def named(name, variants):
        return Repeated(name, lambda best: begun.append(name) or variants(best))

    def first_left_out(best):
        return [TraceVariant(best.setup, best.relative[1:])] if len(best.relative) > 3 else []

    passes = (
        named("before", lambda _: []), named("helps", first_left_out), named("after", lambda _: [])
    )  # fmt: skip
    monkeypatch.setattr("poolproof.harness.minimise.passes_for", lambda _: passes)
    commands = (Lookup(A), Allocate(1), Touch((0,)), Free((0, 0)))
    trace = Trace("double", "pool", Profile(), 1, True, commands)
    small = minimise(trace, execute_in_process(campaign_of(QueuesTwice).make))
    assert small.commands == commands[1:]
    assert begun == ["before", "helps", "helps", "after", "before", "helps"]


def test_long_traces_are_not_searched_for_pairs():
    class CountsLookups(BlockPool):
        """Breaks only after forty lookups, so that none of them can go."""

        lookups = 0

        def lookup(self, block_hash):
            self.lookups += 1
            return super().lookup(block_hash)

        def num_free(self):
            return super().num_free() + (self.lookups >= 30)

    target = campaign_of(CountsLookups).make
    trace = trace_of(*(Evict((0,)) for _ in range(3)), *(Lookup(A) for _ in range(40)))
    small = minimise(trace, execute_in_process(target))
    assert small.violation.invariant == "OWN"
    assert len(small.commands) <= 30
