"""The managers that kernels are certified with, and recorded runs of them.

Kernels know no allocator, and the harness knows no kernel; they meet here. A recorded run is the
commands that a campaign of the harness gave a manager, in the form of a trace file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.kernels.serving.manager_engine import ServedManager
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.targets.load import load_target
from poolproof.targets.target import Make

__all__ = ["recorded_run", "served_managers"]

_BUILT_IN = {
    "impl-manager": ("full", "sliding", "full+sliding"),
    "impl-vllm-v0": ("full",),
    "impl-nano": ("full",),
}
_OF_ANY_BLOCK_SIZE: Mapping[str, Mapping[str, Any]] = {
    "full": {"host_blocks": 8},
    "sliding": {"null_block": 0, "groups": "sliding:6"},
}


def served_managers() -> tuple[ServedManager, ...]:
    """Poolproof's own managers, and the specification for kernels with other block sizes."""
    found = []
    for name, layouts in _BUILT_IN.items():
        target = load_target(name)
        for layout_name in layouts:
            layout = target.layout(layout_name)
            assert layout.make is not None
            assert isinstance(layout.profile, ManagerProfile)
            make = partial(_of_layout, layout.make)
            found.append(_served(f"{name} {layout_name}", layout.profile, make, layout.block_size))
    for name, rows in _OF_ANY_BLOCK_SIZE.items():
        profile = ManagerProfile.from_mapping(rows)
        make = partial(_of_specification, profile)
        found.append(_served(f"reference-manager {name}", profile, make, None))
    return tuple(found)


def _of_layout(make: Make, num_blocks: int, _block_size: int) -> Any:
    return make(num_blocks, True)


def _of_specification(profile: ManagerProfile, num_blocks: int, block_size: int) -> Any:
    return NativeSequenceManager(num_blocks, block_size, enable_caching=True, profile=profile)


def _served(
    name: str, profile: ManagerProfile, make: Callable[[int, int], Any], block_size: int | None
) -> ServedManager:
    def record(seed: int, size: int) -> Trace:
        return recorded_run(name, profile, make, size, seed)

    return ServedManager(
        name=name, profile=profile, make=make, record=record, block_size=block_size
    )


def recorded_run(
    name: str, profile: ManagerProfile, make: Callable[[int, int], Any], block_size: int, seed: int
) -> Trace:
    """What one run of the harness's plain driver gave a manager with caching on."""
    campaign = ManagerCampaign(
        name, lambda blocks, _caching: make(blocks, block_size), profile, block_size, seed
    )
    given: list[Command] = []
    setup = replace(campaign.setup(0), enable_caching=True)
    campaign.run_from(setup, given.append)
    return setup.with_commands(given)
