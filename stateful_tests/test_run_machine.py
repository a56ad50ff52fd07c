"""Running a machine: reproducible, silent, no files, and only mistakes of ours are raised."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import hypothesis
import pytest

from poolproof.contract.commands import Allocate, Command
from poolproof.contract.depth import Depth
from poolproof.contract.profile import Profile
from poolproof.harness.random_driver import PoolCampaign
from poolproof.impl.block_pool import BlockPool
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

FEW = hypothesis.settings(machine_settings("quick"), max_examples=20, stateful_step_count=20)


def make(num_blocks, enable_caching):
    return BlockPool(num_blocks, enable_caching=enable_caching)


def campaign(make=make):
    return PoolCampaign("impl", make, Profile.from_mapping(BlockPool(2).profile))


class Recording(MachineLog):
    def __init__(self):
        super().__init__()
        self.heard: list[Command] = []

    def announce(self, command):
        super().announce(command)
        self.heard.append(command)


def commands_under(seed):
    log = Recording()
    run_machine(lambda log: PoolMachine(campaign(), log), FEW, seed=seed, log=log)
    return log.heard


def test_same_seed_gives_the_same_commands():
    assert commands_under(7) == commands_under(7)


def test_other_seed_gives_other_commands():
    assert commands_under(7) != commands_under(8)


def test_derandomised_settings_give_the_same_commands_without_a_seed():
    assert commands_under(None) == commands_under(None)


def test_log_hears_a_command_before_the_target_does():
    log = Recording()

    def make_listening(num_blocks, enable_caching):
        pool = make(num_blocks, enable_caching)
        allocate = pool.allocate

        def heard_first(n):
            assert log.heard[-1] == Allocate(n)
            return allocate(n)

        pool.allocate = heard_first
        return pool

    result = run_machine(
        lambda log: PoolMachine(campaign(make_listening), log), FEW, seed=0, log=log
    )
    assert result.trace is None
    assert result.num_steps == len(log.heard) > 0


class LosesBlocks(BlockPool):
    def free(self, block_ids):
        super().free(list(block_ids)[:1])


def test_trace_ends_with_the_command_that_broke_something():
    losing = campaign(lambda n, caching: LosesBlocks(n, enable_caching=caching))
    trace = run_machine(lambda log: PoolMachine(losing, log), FEW, seed=0).trace
    assert trace is not None
    assert trace.violation.command_index == len(trace.commands) - 1
    assert (trace.target, trace.level, trace.profile) == ("impl", "pool", losing.profile)


def test_block_lost_only_when_everything_was_given_back_is_a_leak():
    def make_lying(num_blocks, enable_caching):
        """A pool whose counter is wrong only when it is read twice with no call in between."""
        pool = make(num_blocks, enable_caching)
        asked = [False]
        honest_count = pool.num_free

        def num_free():
            lie = asked[0]
            asked[0] = True
            return honest_count() - lie

        def told_truth_once(method):
            def call(*arguments):
                asked[0] = False
                return method(*arguments)

            return call

        for verb in ("allocate", "touch", "free", "cache", "lookup", "evict", "reset"):
            setattr(pool, verb, told_truth_once(getattr(pool, verb)))
        pool.num_free = num_free
        return pool

    trace = run_machine(lambda log: PoolMachine(campaign(make_lying), log), FEW, seed=0).trace
    assert trace is not None
    assert trace.violation.invariant == "LEAK"


def test_nondeterministic_target_is_told_and_not_raised():
    calls = itertools.count()

    def make_moody(num_blocks, enable_caching):
        """Breaks once, and never again."""
        pool = make(num_blocks, enable_caching)
        count = pool.num_free
        pool.num_free = lambda: count() + (next(calls) == 100)
        return pool

    result = run_machine(
        lambda log: PoolMachine(campaign(make_moody), log), machine_settings("quick"), seed=0
    )
    assert result.nondeterministic
    assert result.trace is not None


def test_mistake_of_ours_is_raised():
    class Mistaken(PoolMachine):
        def make_workload(self, choices):
            raise LookupError("a mistake in the harness")

    with pytest.raises(LookupError, match="a mistake in the harness"):
        run_machine(lambda log: Mistaken(campaign(), log), FEW, seed=0)


@pytest.mark.parametrize("depth", Depth)
def test_depths_do_not_depend_on_the_current_hypothesis_profile(depth):
    hypothesis.settings.register_profile("before", hypothesis.settings())
    expected = repr(machine_settings(depth))
    hypothesis.settings.load_profile("nightly")
    try:
        assert repr(machine_settings(depth)) == expected
        assert machine_settings(depth).derandomize
    finally:
        hypothesis.settings.load_profile("before")


SCRIPT = """
import sys
from pathlib import Path
from local_pool import LosesBlocks
from poolproof.contract.profile import Profile
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings
profile = Profile.from_mapping(LosesBlocks(2).profile)
losing = PoolCampaign("x", lambda n, caching: LosesBlocks(n, enable_caching=caching), profile)
trace = run_machine(lambda log: PoolMachine(losing, log), machine_settings("quick")).trace
Path(sys.argv[1]).write_text("\\n".join(trace.lines()))
"""

LOCAL_POOL = """
from poolproof.impl.block_pool import BlockPool

class LosesBlocks(BlockPool):
    def free(self, block_ids):
        super().free(list(block_ids)[:3])
"""


def run_in(folder, out, hash_seed):
    paths = [str(folder), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(out)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": hash_seed,
             "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        capture_output=True,
        text=True,
    )  # fmt: skip


def test_failure_leaves_neither_output_nor_files_and_is_the_same_in_every_process(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "local_pool.py").write_text(LOCAL_POOL)
    first = run_in(project, tmp_path / "first", "1")
    second = run_in(project, tmp_path / "second", "2")
    assert (first.stdout, first.stderr) == (second.stdout, second.stderr) == ("", "")
    assert [path.name for path in project.iterdir()] == ["local_pool.py"]
    assert (tmp_path / "first").read_text() == (tmp_path / "second").read_text()
