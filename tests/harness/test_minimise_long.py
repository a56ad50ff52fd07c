"""Long traces and large pools cost a bounded amount of work; a minimisation can be gone on with."""

import itertools

import pytest

from poolproof.contract.commands import Allocate, Cache, Free, Lookup, Reset, Touch
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.harness.minimise import (
    EXECUTIONS_MORE,
    Attempt,
    Effort,
    Minimisation,
    execute_in_process,
    improved,
    minimise,
    run_candidate,
)
from poolproof.harness.relative import Naming, RelativeCommand
from poolproof.harness.replay import replay
from poolproof.impl.block_pool import BlockPool
from poolproof.reference.dict_pool import DictPool


def counted(cls, verb, number, spoil):
    """The pool, whose method goes wrong from its so many-th call on."""

    class Counted(cls):
        calls = 0

    def method(self, *arguments):
        self.calls += 1
        answer = getattr(cls, verb)(self, *arguments)
        return spoil(answer) if self.calls >= number else answer

    setattr(Counted, verb, method)
    return Counted


def executing(cls):
    return execute_in_process(lambda blocks, caching: cls(blocks, enable_caching=caching))


def long_trace(num_commands, num_blocks):
    """Blocks come and go, one of them is cached now and then, some stay."""
    commands = []
    for number in range(num_commands // 4):
        block = (2 * number) % (num_blocks - 2)
        commands += [Allocate(2), Lookup(bytes([number % 200]) * 8), Free((block, block + 1))]
        commands.append(Reset() if number % 7 == 0 else Allocate(0))
    return Trace("t", "pool", Profile(), num_blocks, True, tuple(commands))


def work_of(execute, spent):
    def counting(setup, candidate):
        spent.append(len(candidate) + setup.num_blocks)
        return execute(setup, candidate)

    return counting


@pytest.mark.some(0)
@pytest.mark.parametrize("num_blocks", [16, pytest.param(4096, marks=pytest.mark.deep)])
def test_a_long_trace_costs_a_bounded_amount_of_work(num_blocks):
    """Nothing of what is counted can go, so that most of the attempts are in vain."""
    cls = counted(BlockPool, "allocate", 300, lambda taken: taken[::-1])
    trace = long_trace(1_000, num_blocks)
    spent = []
    small = minimise(trace, work_of(executing(cls), spent), max_work=20_000)
    largest = len(trace.commands) + num_blocks
    most = 20_000 + EXECUTIONS_MORE * largest
    assert sum(spent) <= most + 3 * largest  # the first and the last are not foreseen
    assert small.violation is not None
    assert len(small.commands) < len(trace.commands)
    assert small.num_blocks == 16 or small.num_blocks < num_blocks
    assert not replay(small, lambda n, caching: cls(n, enable_caching=caching)).num_left_out


@pytest.mark.some(0)
def test_what_has_nothing_to_do_with_the_failure_goes_first():
    cls = counted(BlockPool, "lookup", 50, lambda _: 0)
    trace = long_trace(2_000, 4096)
    small = minimise(trace, executing(cls), max_work=50_000)
    assert len(small.commands) <= 60
    assert small.num_blocks <= 64


def test_a_pool_becomes_as_small_as_the_failure_allows():
    class Wraps(BlockPool):
        """Ids have eight bits."""

        def touch(self, block_ids):
            super().touch([block % 256 for block in block_ids])

    trace = Trace(
        "t", "pool", Profile(), 4096, True, (Allocate(3), Allocate(3000), Touch((300, 12)))
    )
    small = minimise(trace, executing(Wraps), max_work=20_000)
    assert 257 <= small.num_blocks < 4096
    assert small.violation is not None


def test_what_was_not_touched_is_seen_at_the_end_of_a_trace():
    class LosesAnotherCount(BlockPool):
        def reset(self):
            answer = super().reset()
            self._ref_counts[70] = 2
            return answer

    def make(num_blocks, caching):
        return LosesAnotherCount(num_blocks, enable_caching=caching)

    trace = Trace("t", "pool", Profile(), 100, True, (Allocate(1), Reset()))
    assert replay(trace, make).violation is not None
    assert run_candidate(trace, trace.commands, make).violation is not None


def slices_of(trace, execute, attempts_at_once, keep_attempt):
    """The minimisation, stopped after so many attempts each time; all progress on the way."""
    progress = Minimisation(trace)
    while not progress.cursor.is_finished:
        left = itertools.count(1 - attempts_at_once)
        progress = improved(progress, execute, Effort(), lambda left=left: next(left) < 0)
        yield progress
        if not keep_attempt:
            progress = Minimisation(progress.trace, progress.cursor)


@pytest.mark.parametrize("attempts_at_once", [1, 7])
def test_a_minimisation_that_is_stopped_goes_on_where_it_was(attempts_at_once):
    """Up to the passes of a round, which are those for the length at which the round began."""
    cls = counted(BlockPool, "allocate", 6, lambda taken: taken[::-1])
    trace = long_trace(80, 8)
    straight = minimise(trace, executing(cls))
    *_, last = slices_of(trace, executing(cls), attempts_at_once, keep_attempt=True)
    assert last.trace == straight


def test_a_long_trace_that_has_become_short_goes_on_as_a_short_one():
    """What was being tried last is no pass of short traces."""
    cls = counted(BlockPool, "allocate", 6, lambda taken: taken[::-1])
    *_, last = slices_of(long_trace(400, 8), executing(cls), 1, keep_attempt=True)
    assert len(last.trace.commands) <= 8


def test_nothing_is_tried_anew_after_every_restart():
    """The trace and the cursor are kept, as in a campaign's folder that is killed each time."""
    cls = counted(BlockPool, "allocate", 6, lambda taken: taken[::-1])
    trace = long_trace(120, 8)
    every = list(slices_of(trace, executing(cls), 1, keep_attempt=False))
    lengths = [len(progress.trace.commands) for progress in every]
    assert lengths == sorted(lengths, reverse=True)
    assert [p.cursor.attempts for p in every[:-1]] == list(range(1, len(every)))
    assert every[-1].cursor.is_finished
    assert lengths[-1] <= 8


def test_a_trace_that_does_not_fail_is_finished():
    trace = long_trace(20, 8)
    progress = improved(Minimisation(trace), executing(BlockPool))
    assert progress.cursor.is_finished
    assert progress.trace.violation is None
    assert improved(progress, lambda *_: pytest.fail("tried again")) == progress


def test_an_attempt_after_a_stop_is_not_executed_again():
    """What was carried over says what the best trace did."""
    cls = counted(BlockPool, "allocate", 6, lambda taken: taken[::-1])
    trace = long_trace(120, 8)
    execute = executing(cls)
    first = improved(Minimisation(trace), execute, go_on=lambda: False)
    assert isinstance(first.attempt, Attempt)
    tried = []

    def listening(setup, candidate):
        tried.append(tuple(candidate))
        return execute(setup, candidate)

    improved(first, listening, go_on=lambda: False)
    assert len(tried) == 1
    assert tried[0] != first.trace.commands


def named(naming, pool, *commands):
    """The commands in relative form, applied to the reference."""
    relative = []
    for command in commands:
        relative.append(naming.relative(command, command))
        taken = pool.allocate(command.count) if isinstance(command, Allocate) else ()
        naming.note_taken(relative[-1], taken)
    return relative


def test_a_block_of_a_large_pool_is_named_by_where_it_came_from():
    pool = DictPool(100, Profile())
    relative = named(Naming(pool), pool, Allocate(3), Allocate(2), Touch((4, 0)), Free((99,)))
    assert [item.origin for item in relative] == [0, 3, None, None]
    assert relative[2].roles == (("given", 4), ("given", 0))
    assert relative[3].roles == (("raw", 99),)


def test_what_a_deleted_allocation_gave_is_left_out_of_lists():
    pool = DictPool(100, Profile())
    naming = Naming(pool)
    second = RelativeCommand(Allocate(2), origin=3)
    naming.note_taken(second, pool.allocate(2))
    touch = RelativeCommand(Touch((4, 0)), (("given", 4), ("given", 0)))
    cache = RelativeCommand(Cache((0, 3), (b"a", b"b")), (("given", 0), ("given", 3)))
    gone = RelativeCommand(Free((0,)), (("given", 0),))
    assert naming.concrete(touch) == Touch((1,))
    assert naming.concrete(cache) == Cache((0,), (b"b",))
    assert naming.concrete(gone) is None
    assert naming.relative(touch, Touch((1,))).roles == (("given", 4),)


def test_a_small_pool_names_blocks_by_their_roles():
    pool = DictPool(8, Profile())
    relative = named(Naming(pool), pool, Allocate(3), Touch((1,)))
    assert relative[1].roles == (("held", 1),)
