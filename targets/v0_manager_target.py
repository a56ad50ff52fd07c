"""The targets in vLLM V0's shape: `vllm-v0` (0.2.7), `impl-vllm-v0`, and any class of the shape.

Layouts: `full`; `sliding`, where a table is a ring over the window; and `sliding-single`, the same
for requests of one sequence, without forks and swapping. All keep one block free as watermark and
have four blocks in host memory, since V0's default watermark rounds to nothing in a small pool.

vLLM 0.2.7 frees the blocks of a sequence in the order of a set of objects, which is that of their
addresses; so no order is declared for it. Its `can_append_slot` wants a free block for each running
sequence of the group, whether it needs one or not: growth may be refused although it fits, and
admission is exact.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import ProfileError
from poolproof.contract.target import TargetError
from poolproof.impl.block_space_manager import BlockSpaceManager
from poolproof.targets.builtin_profile import builtin_profile
from poolproof.targets.installed_vllm_v0 import VLLM_V0, vllm_v0
from poolproof.targets.manager_target import MANAGER_SHAPES, ManagerShape, manager_target
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.v0_manager import V0_METHODS, V0Manager
from poolproof.targets.v0_manager_parts import v0_parts

__all__ = ["impl_vllm_v0_manager", "vllm_v0_manager"]

_BLOCK_SIZE = 4
_LAYOUTS = (("full", "full"), ("sliding", "sliding:8"), ("sliding-single", "sliding:8"))

_SHAPE = {
    "publishes": "never",
    "reserves": "sequence",
    "watermark_blocks": 1,
    "host_blocks": 4,
}
_PUBLISHED = {
    "admission": "exact-at-admission",
    "eviction": "unspecified",
    "release_order": "unspecified",
    "misuse": "undefined",
}
# The block freed last is used first, so the head goes back first for the tail to go out first.
_OWN = {"eviction": "lifo", "release_order": "head-first"}

_NOTES = (
    "a cache of prefixes: the shape has none, so adapters, salts and images make no difference",
    "reset(), which drops what is held: no command means that",
    "the scheduler's dict of copies, which loses their order: copies are performed when ordered",
)
_STUBS = (
    "stand-ins: torch, psutil and vllm._C.cuda_utils, which are named and never called",
    "vllm/__init__.py, which starts the engine, is not run",
)


def vllm_v0_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The class of vLLM 0.2.7, unmodified. Raises TargetError where its sources are not there."""
    cls = vllm_v0().BlockSpaceManager

    def profile_of(rows: Mapping[str, Any]) -> ManagerProfile:
        return builtin_profile(name, {**_SHAPE, **_PUBLISHED}, rows, ManagerProfile)

    layouts = _layouts(name, cls, overrides, profile_of)
    return manager_target(
        name, "v0", layouts, version=VLLM_V0.replace("-", " "), source=source_of(cls),
        real_class=cls, notes=(*_STUBS, *_NOTES),
    )  # fmt: skip


def impl_vllm_v0_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """Poolproof's own class in this shape. Raises TargetError for a row that it does not have."""

    def profile_of(rows: Mapping[str, Any]) -> ManagerProfile:
        return builtin_profile(name, {**_SHAPE, **_OWN}, rows, ManagerProfile)

    layouts = _layouts(name, BlockSpaceManager, overrides, profile_of)
    return manager_target(
        name, "v0", layouts, source=source_of(BlockSpaceManager), real_class=BlockSpaceManager,
        notes=("block ids are counted from the last block, which is handed out first", *_NOTES),
    )  # fmt: skip


def _class_in_this_shape(
    name: str, cls: type, overrides: Mapping[str, Any], version: str | None
) -> Target:
    """Any class with the shape's methods. Raises TargetError."""
    methods = (*V0_METHODS, "get_block_table", "get_num_free_gpu_blocks")
    missing = [method for method in methods if not callable(getattr(cls, method, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{method}()' for method in missing)}, which a "
            "manager in vLLM V0's shape has"
        )
    declared = getattr(cls, "profile", {})

    def profile_of(rows: Mapping[str, Any]) -> ManagerProfile:
        try:
            ManagerProfile.from_mapping(declared)
            return ManagerProfile.from_mapping({**_SHAPE, **_PUBLISHED, **declared, **rows})
        except ProfileError as error:
            raise TargetError(f"{name}: {error}") from error

    layouts = _layouts(name, cls, overrides, profile_of)
    return manager_target(
        name, "v0", layouts, version=version, source=source_of(cls), real_class=cls, notes=_NOTES
    )


# For `--api v0`, and for classes that have all these methods.
MANAGER_SHAPES["v0"] = ManagerShape(V0_METHODS, _class_in_this_shape)


def _layouts(
    name: str, cls: type, overrides: Mapping[str, Any], profile_of: Any
) -> list[ManagerLayout]:
    """The named layouts, or the one that `groups` in brackets asks for."""
    wanted = [("", overrides["groups"])] if "groups" in overrides else _LAYOUTS
    layouts = []
    for layout, groups in wanted:
        rows = {**overrides, "groups": groups}
        if layout == "sliding-single":
            rows["host_blocks"] = 0
        profile = profile_of(rows)
        if profile.groups[0].kind == "sliding":
            profile = profile_of({"window_blocks": "reused", **rows})
        layouts.append(_layout(name, layout, cls, profile))
    return layouts


def _layout(name: str, layout: str, cls: type, profile: ManagerProfile) -> ManagerLayout:
    (group, *others) = profile.groups
    if others or group.kind not in {"full", "sliding"} or group.window % _BLOCK_SIZE:
        raise TargetError(
            f"{name}: managers in vLLM V0's shape have one group, full or with a sliding window of "
            f"a multiple of {_BLOCK_SIZE} tokens, not {profile.layout_name}"
        )
    layout = layout or profile.layout_name
    window = group.window or None
    if window is not None and "sliding_window" not in inspect.signature(cls).parameters:
        why_not = f"{cls.__name__}() takes no sliding_window"
        return ManagerLayout(layout, profile, None, _BLOCK_SIZE, why_not)
    parts = v0_parts(cls, _BLOCK_SIZE)
    options = {
        "mirrored": profile.eviction != "unspecified",
        "forks": layout != "sliding-single",
        "swaps": profile.host_blocks > 0,
    }

    def make(num_blocks: int, enable_caching: bool) -> V0Manager:  # noqa: ARG001 - see Target.make
        named: dict[str, Any] = {} if window is None else {"sliding_window": window}
        # A half is added, so that rounding down after a multiplication gives the number again.
        watermark = (profile.watermark_blocks + 0.5) / num_blocks
        manager = cls(_BLOCK_SIZE, num_blocks, profile.host_blocks, watermark=watermark, **named)
        return V0Manager(manager, parts, num_blocks, _BLOCK_SIZE, **options)

    return ManagerLayout(layout, profile, make, _BLOCK_SIZE)
