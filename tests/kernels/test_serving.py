"""The small engine over a real pool: clean with a clean pool, wrong outputs with a faulty one."""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.contract.commands import Cache
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.impl.block_pool import BlockPool
from poolproof.kernels.serving.allocator_runs import serve_pool
from poolproof.kernels.serving.forward import AllocatorBrokeError, WrongOutputError
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.serving.pool_engine import PoolEngine, ServingSession
from poolproof.kernels.strategies import machine_for
from poolproof.kernels.target import gather_target, paged_target

GATHER = gather_target("cpu")


def session(make_pool=BlockPool, seed=0, target=GATHER) -> ServingSession:
    return ServingSession(target, make_pool, random.Random(seed).randrange)


def campaign(make_pool) -> None:
    for seed in range(150):
        session(make_pool, seed).run(40)


def test_a_clean_pool_gives_dense_attention_and_everything_happens():
    steps = compared = shared = preempted = 0
    for seed in range(40):
        driven = session(seed=seed)
        driven.run(40)
        steps += driven.engine.steps
        compared += driven.engine.compared
        shared += driven.engine.shared
        preempted += len(driven.engine.preempted)
    assert min(steps, compared, shared, preempted) > 10


@pytest.mark.parametrize("length", [8, 16, 32, 256])
def test_a_pool_of_one_width_is_given_hashes_of_that_width(length):
    profile = Profile(hash_bytes=length)
    setup = Trace("it", "pool", profile, 1, True, ())

    class OneWidth(BlockPool):
        def cache(self, block_ids, hashes):
            if any(len(key) != length for key in hashes):
                raise ValueError
            super().cache(block_ids, hashes)

    runs = [serve_pool(setup, lambda n, _: OneWidth(n), str(seed), int) for seed in range(8)]
    assert [run.trace.violation for run in runs] == [None] * 8
    assert sum(run.shared for run in runs) > 4


def test_our_kernels_give_it_too():
    driven = session(seed=1, target=paged_target("cpu"))
    driven.run(25)
    assert driven.engine.compared > 10


def test_hypothesis_drives_the_machine():
    run_state_machine_as_test(
        machine_for(GATHER, BlockPool),
        settings=settings(
            max_examples=15, stateful_step_count=20, deadline=None, database=None,
            derandomize=True, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["A12", "C1", "D1", "D4", "D17"])
def test_a_faulty_pool_shows_as_a_wrong_output(name):
    with pytest.raises(WrongOutputError) as wrong:
        campaign(SPECIMENS[name].make)
    assert "the output is off by" in str(wrong.value)
    assert "wrote last" in str(wrong.value)


@pytest.mark.parametrize("name", ["A16", "A28"])
def test_a_pool_that_raises_is_told_from_one_that_answers_wrongly(name):
    with pytest.raises(AllocatorBrokeError, match="raised ValueError"):
        campaign(SPECIMENS[name].make)


def test_a_faulty_kernel_is_named_as_such():
    from dataclasses import replace

    def doubled(*arguments, **options):
        return GATHER.attend(*arguments, **{**options, "scale": 2 * options["scale"]})

    driven = session(target=replace(GATHER, attend=doubled))
    with pytest.raises(WrongOutputError, match="the kernel is wrong"):
        driven.run(40)


class Generous(BlockPool):
    """Hands out one block more than asked for."""

    def allocate(self, n):
        return super().allocate(n + 1)


def test_a_wrong_number_of_blocks_is_the_pools_fault():
    with pytest.raises(AllocatorBrokeError, match=r"allocate\(\d+\) gave \["):
        session(Generous).run(40)


class Refusing(BlockPool):
    """Counts blocks as free and refuses them all the same."""

    def allocate(self, n):
        raise MemoryError


class Raising(BlockPool):
    """Raises what no pool may."""

    def allocate(self, n):
        raise KeyError(n)


def engine(pool) -> PoolEngine:
    return PoolEngine(GATHER, pool, 8, 4, TinyModel.random(2, 1, 16, 0))


def test_a_refusal_is_no_fault():
    assert engine(Refusing(8)).admit([0, 1, 0]) is None


def test_another_exception_is_one():
    with pytest.raises(AllocatorBrokeError, match="raised KeyError"):
        engine(Raising(8)).admit([0, 1, 0])


def test_a_fork_without_room_gives_its_references_back():
    pool = BlockPool(2)
    driven = engine(pool)
    request = driven.admit([0, 1, 0, 1, 1])
    driven.step({request.name: 64}, lambda: 0)
    assert driven.fork(request) is None
    driven.finish(request)
    assert pool.num_free() == 2


def test_a_request_without_room_stays_swapped_out():
    pool = BlockPool(2)
    driven = engine(pool)
    request = driven.admit([0, 1, 0, 1, 1])
    driven.step({request.name: 64}, lambda: 0)
    driven.swap_out(request)
    taken = pool.allocate(1)
    assert not driven.swap_in(request)
    pool.free(taken)
    assert driven.swap_in(request)
    driven.step({request.name: 64}, lambda: 1)
    assert driven.compared == 6


def test_blocks_that_were_swapped_in_are_hashed_before_a_fork_shares_them():
    # vLLM's pool asserts that a block which gets a hash has none.
    driven = engine(BlockPool(8))
    request = driven.admit([0, 1, 0, 1, 1])
    driven.step({request.name: 64}, lambda: 0)
    driven.swap_out(request)
    assert driven.swap_in(request)
    child = driven.fork(request)
    driven.step({request.name: 64, child.name: 64}, lambda: 1)
    assert request.blocks[0] == child.blocks[0]
    hashed = [command.block_ids for command in driven.commands if isinstance(command, Cache)]
    assert len(hashed) == len(set(hashed)) == 2
