"""Lets Hypothesis do beforehand what it does at its first run, which is no call of the target.

At its first draw it reads the source of every module of the project that it runs in, for the
constants. Beside an engine, or on a machine that is busy, that takes seconds: more than a call of
the target may, and the target's last command got the blame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import settings

from poolproof.contract.depth import Depth
from poolproof.contract.profile import Profile
from poolproof.harness.random_driver import PoolCampaign
from poolproof.reference.native_queue import NativeDictQueue
from poolproof.stateful_tests.queue_machine import QueueMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

__all__ = ["warm_up", "warmed_up"]

A = TypeVar("A")


def warm_up() -> None:
    """A few examples over the reference's queue. Workers that are forked afterwards profit."""
    campaign = PoolCampaign(
        "warm up", lambda num_blocks, _caching: NativeDictQueue(num_blocks), Profile()
    )
    few = settings(machine_settings(Depth.QUICK), max_examples=3)
    result = run_machine(lambda heard: QueueMachine(campaign, heard), few, seed=0)
    assert result.trace is None, result.trace


def warmed_up(load: Callable[[], A]) -> Callable[[], A]:
    """`load`, and afterwards, when its modules are there, `warm_up`.

    Before it as well: Hypothesis looks once for what refers to its generator, through all that the
    process holds, and beside an engine that took half a second.
    """

    def load_and_warm_up() -> A:
        warm_up()
        loaded = load()
        warm_up()
        return loaded

    return load_and_warm_up
