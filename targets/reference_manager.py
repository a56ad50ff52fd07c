"""The built-in target `reference-manager`: the specification of managers against itself.

Its layouts show each kind of cache group; rows in brackets hold in all of them, and `groups` in
brackets takes the place of the layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.targets.builtin_profile import builtin_profile
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import Make, ManagerLayout, Target, source_of

__all__ = ["reference_manager"]

_BLOCK_SIZE = 4
_LAYOUTS = ("full", "sliding:6", "full+sliding:6", "full+chunked:8", "full+state")


def reference_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """`SequenceModel` under a profile. Raises TargetError for one that it does not have."""
    groups = [overrides["groups"]] if "groups" in overrides else _LAYOUTS
    return manager_target(
        name,
        "native-manager",
        [_layout(name, {**overrides, "groups": text}) for text in groups],
        source=source_of(NativeSequenceManager),
        real_class=NativeSequenceManager,
        notes=("contents are their own keys: nothing is hashed",),
    )


def _layout(name: str, rows: Mapping[str, Any]) -> ManagerLayout:
    profile = builtin_profile(name, _own(rows), rows, ManagerProfile)
    if profile.window_blocks == "reused":
        raise TargetError(f"{name}: the specification keeps no rings; leave window_blocks out")
    if profile.states == "step-end":
        raise TargetError(f"{name}: it keeps a state at every block; leave states out")
    if profile.layout_name != "full" and profile.null_block is None:
        raise TargetError(f"{name}: what slides out needs a null block in its place")

    def make_of(block_size: int) -> Make:
        return lambda num_blocks, enable_caching: NativeSequenceManager(
            num_blocks, block_size, enable_caching=enable_caching, profile=profile
        )

    return ManagerLayout(
        profile.layout_name, profile, make_of(_BLOCK_SIZE), _BLOCK_SIZE, make_of=make_of
    )


def _own(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Where something slides out of a table, the null block takes its place."""
    return {} if rows["groups"] == "full" else {"null_block": 0}
