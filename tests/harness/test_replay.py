"""A trace is replayed against a fresh target; what is not defined there is counted."""

import pytest

from poolproof.contract.commands import (
    Allocate,
    Append,
    Cache,
    CacheChain,
    Free,
    LookupChain,
    PopLeft,
    Touch,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.harness.replay import replay
from poolproof.impl.block_pool import BlockPool
from poolproof.reference.native_pool import NativeDictPool
from poolproof.reference.native_queue import NativeDictQueue

A = b"\xaa" * 16


def pool(num_blocks, caching):
    return BlockPool(num_blocks, enable_caching=caching)


def queue(num_blocks, caching):
    return NativeDictQueue(num_blocks)


def trace_of(*commands, level="pool", **options):
    return Trace("t", level, Profile(), 3, True, commands, options=options)


def test_a_right_target_shows_nothing():
    trace = trace_of(Allocate(1), Cache((0,), (A,)), Free((0,)))
    result = replay(trace, pool)
    assert (result.applied, result.num_left_out, result.violation) == (trace.commands, 0, None)


def test_commands_that_are_not_defined_are_counted():
    result = replay(trace_of(Touch((1,)), Allocate(1), Append(0), Touch((0,))), pool)
    assert result.applied == (Allocate(1), Touch((0,)))
    assert result.num_left_out == 2


def test_nothing_is_applied_after_the_violation():
    class Stuck(BlockPool):
        def free(self, block_ids):
            pass

    heard = []
    result = replay(
        trace_of(Allocate(1), Free((0,)), Allocate(1)), lambda n, c: Stuck(n), heard.append
    )
    assert result.violation.invariant == "I1"
    assert result.violation.command_index == 1
    assert list(result.applied) == heard == [Allocate(1), Free((0,))]


def test_a_leak_is_looked_for_once_everything_was_given_back():
    class Shrinks(BlockPool):
        reads = 0

        def num_free(self):
            self.reads += 1
            return super().num_free() - (self.reads > 3)

    assert replay(trace_of(Allocate(1)), lambda n, c: Shrinks(n)).violation is None
    result = replay(trace_of(Allocate(1), Free((0,))), lambda n, c: Shrinks(n))
    assert result.violation.invariant == "LEAK"


@pytest.mark.parametrize("error", [RuntimeError("no memory"), SystemExit(2)])
def test_a_target_that_cannot_be_built_is_a_violation(error):
    def make(num_blocks, caching):
        raise error

    result = replay(trace_of(Allocate(1)), make)
    assert result.applied == ()
    assert result.violation.sentence.startswith("constructing the target with 3 blocks is legal")


def test_a_target_that_lacks_methods_is_an_error_of_the_run():
    with pytest.raises(TargetError, match="object lacks allocate"):
        replay(trace_of(), lambda n, c: object())


def test_a_queue_is_replayed_at_its_level():
    result = replay(trace_of(PopLeft(), Append(0), level="queue"), queue)
    assert (len(result.applied), result.violation) == (2, None)


def test_the_block_size_comes_from_the_options():
    chain = TokenChain((1, 2, 3, 4))
    commands = (Allocate(1), CacheChain(chain, (0,), 0, 0), LookupChain(chain, 4, (0,)))

    def make(num_blocks, caching):
        return NativeDictPool(num_blocks, block_size=4)

    result = replay(trace_of(block_size=4).with_commands(commands), make)
    assert (result.applied, result.violation) == (commands, None)
    assert replay(trace_of(block_size=5).with_commands(commands), make).num_left_out == 1
