"""Runs of an allocator under the small engine, as `poolproof certify` does them.

The kernel is the torch reference, which is certified on its own: a wrong output is the allocator's
fault. A run gives a trace of the allocator's own commands, like every other driver.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from poolproof.contract.commands import Command
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.kernels.serving.forward import AllocatorBrokeError, WrongOutputError
from poolproof.kernels.serving.manager_engine import ManagerEngine, windows_of
from poolproof.kernels.serving.manager_traffic import ManagerTraffic
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.serving.pool_engine import ServingSession
from poolproof.kernels.target import gather_target

__all__ = ["AllocatorRun", "serve_manager", "serve_pool"]

Make = Callable[[int, bool], Any]
Bump = Callable[..., None]

OPERATIONS = 40


@dataclass(frozen=True, slots=True)
class AllocatorRun:
    """One run: its commands, how many outputs were compared, and what broke.

    `shared` counts admissions, or blocks, that a request shared with another one.
    """

    trace: Trace
    compared: int
    shared: int


def serve_pool(setup: Trace, make: Make, seed: str, bump: Bump) -> AllocatorRun:
    """A native pool; `setup` is the head of its trace, with a number of blocks still to choose."""
    torch.set_num_threads(1)

    def build(num_blocks: int) -> Any:
        built.append(num_blocks)
        return make(num_blocks, True)

    built: list[int] = []
    session = ServingSession(
        gather_target("cpu"),
        build,
        random.Random(seed).randrange,
        hash_bytes=setup.profile.usual_hash_bytes,
    )

    def drive() -> None:
        for _ in range(OPERATIONS):
            bump()
            session.run(1)

    violation = _broken(drive)
    engine = session.engine
    setup = replace(setup, num_blocks=built[0], options={**setup.options, "seed": seed})
    return AllocatorRun(_ended(setup, engine.commands, violation), engine.compared, engine.shared)


def serve_manager(setup: Trace, make: Make, seed: str, bump: Bump) -> AllocatorRun:
    """A manager, of the block size in the options of `setup`."""
    torch.set_num_threads(1)
    draw = random.Random(seed)
    profile = setup.profile
    assert isinstance(profile, ManagerProfile)
    num_blocks = (
        5 + draw.randrange(6) + (profile.null_block or 0) + (profile.null_block is not None)
    )
    model = TinyModel.random(2, 1, 16, draw.randrange(100), windows_of(profile))
    engine = ManagerEngine(
        gather_target("cpu"),
        make(num_blocks, True),
        profile,
        num_blocks,
        int(setup.options["block_size"]),
        model,
    )
    session = ManagerTraffic(engine, draw.randrange, bump)
    violation = _broken(lambda: session.run(OPERATIONS))
    setup = replace(setup, num_blocks=num_blocks, options={**setup.options, "seed": seed})
    return AllocatorRun(
        _ended(setup, engine.commands, violation), engine.forward.compared, engine.shared
    )


def _broken(drive: Callable[[], None]) -> Violation | None:
    try:
        drive()
    except WrongOutputError as error:
        return Violation("DATA", Severity.WRONG_DATA_OF_ANOTHER, f"paged attention, {error}")
    except AllocatorBrokeError as error:
        return Violation("CRASH", Severity.CRASH, f"paged attention: {error}")
    return None


def _ended(setup: Trace, commands: list[Command], violation: Violation | None) -> Trace:
    if violation is not None:
        violation = replace(violation, command_index=len(commands) - 1)
    return replace(setup, commands=tuple(commands), violation=violation)
