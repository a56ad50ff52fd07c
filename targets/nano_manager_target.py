"""The targets in nano-vLLM's shape: `nano-vllm`, `nano-vllm:PATH`, `impl-nano`, and any class.

What the profile says follows from the generation, which the class shows: without `hash_blocks`
blocks are published when they are scheduled (nano-vLLM up to 8d63a98); with it, once they are
computed. There, an `_allocate_block` that takes an id also serves revived blocks and forgets their
hash (f64d821), so that hits and room are declared as "sound" alone; what comes after is exact. Of
two blocks with one hash the index keeps the last, which is a legal row although it loses hits
(nano-vllm#219).

For `collisions` the engine is "trusted": a hit is compared with the block's own tokens, and not
with those before it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poolproof.contract.manager_profile import FULL, ManagerProfile
from poolproof.contract.profile import ProfileError
from poolproof.contract.target import TargetError
from poolproof.impl.nano_block_manager import BlockManager
from poolproof.impl.nano_sequence import Sequence
from poolproof.targets.builtin_profile import builtin_profile
from poolproof.targets.installed_nano_vllm import NANO_VLLM_PORT, nano_vllm
from poolproof.targets.manager_target import MANAGER_SHAPES, ManagerShape, manager_target
from poolproof.targets.nano_manager import NANO_METHODS, NanoManager
from poolproof.targets.nano_manager_sequence import sequence_maker
from poolproof.targets.target import ManagerLayout, Target, source_of
from poolproof.targets.target_spec import TargetSpec

__all__ = ["impl_nano_manager", "nano_vllm_manager"]

_BLOCK_SIZE = 4

_SHAPE = {
    "reserves": "sequence",
    "never": "untold",
    "duplicates": "last",
    "collisions": "trusted",
    "misuse": "undefined",
}
_AT_SCHEDULING = {
    "publishes": "scheduled",
    "same_step_hit": "allowed",
    "full_hit": "allowed",
    "hits": "sound",
    "admission": "sound",
}
_FORGETFUL = {"hits": "sound", "admission": "sound"}

_NOTES = (
    "adapters, salts and images: the shape has none, so tokens under them are other tokens to it",
    "caching off: there is no switch, so each admission has tokens of its own",
    "forks, truncation, drafts, swapping, transfers: the shape has none",
    "lookup without use: can_allocate() tells nothing of a prefix that does not fit now",
)


def nano_vllm_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """nano-vLLM from the checkout that `name` gives behind a colon, or its published port.

    Raises TargetError where it is not there, lacks a module, or has no such row of the profile.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    engine = nano_vllm(Path(path).expanduser() if path else None)
    version = None if path else NANO_VLLM_PORT.replace("-0", " 0")
    profile = builtin_profile(
        name, _rows_of(engine.BlockManager), _of_one_group(name, overrides), ManagerProfile
    )
    return _target(name, engine.BlockManager, profile, version)


def impl_nano_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """Poolproof's own block manager in this shape. Raises TargetError for an unknown row."""
    own = {**_SHAPE, "duplicates": "kept", "collisions": "checked", "misuse": "raises"}
    profile = builtin_profile(name, own, _of_one_group(name, overrides), ManagerProfile)
    return _target(name, BlockManager, profile, None)


def _class_in_this_shape(
    name: str, cls: type, overrides: Mapping[str, Any], version: str | None
) -> Target:
    """Any class with the shape's methods. Raises TargetError."""
    declared = getattr(cls, "profile", {})
    try:
        ManagerProfile.from_mapping(declared)
        rows = {**_rows_of(cls), **declared, **_of_one_group(name, overrides)}
        profile = ManagerProfile.from_mapping(rows)
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error
    missing = [method for method in NANO_METHODS if not callable(getattr(cls, method, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{method}()' for method in missing)}, which a "
            "manager in nano-vLLM's shape has"
        )
    return _target(name, cls, profile, version)


# For `--api nano`, and for classes that have all these methods.
MANAGER_SHAPES["nano"] = ManagerShape(NANO_METHODS, _class_in_this_shape)


def _target(name: str, cls: type, profile: ManagerProfile, version: str | None) -> Target:
    new_sequence = Sequence if cls is BlockManager else sequence_maker(cls, _BLOCK_SIZE)

    def make(num_blocks: int, enable_caching: bool) -> NanoManager:
        manager = cls(num_blocks, _BLOCK_SIZE)
        return NanoManager(manager, new_sequence, _BLOCK_SIZE, enable_caching=enable_caching)

    notes = list(_NOTES)
    if not hasattr(cls, "hash_blocks"):
        notes.append("chunked prefill: this generation publishes a prompt whole, at admission")
    return manager_target(
        name,
        "nano",
        [ManagerLayout(profile.layout_name, profile, make, _BLOCK_SIZE)],
        version=version,
        source=source_of(cls),
        real_class=cls,
        notes=notes,
    )


def _rows_of(cls: type) -> dict[str, Any]:
    """The rows of the generation that a class belongs to."""
    if not hasattr(cls, "hash_blocks"):
        return {**_SHAPE, **_AT_SCHEDULING}
    takes_id = len(inspect.signature(getattr(cls, "_allocate_block", _no_argument)).parameters) > 1
    return {**_SHAPE, **_FORGETFUL} if takes_id else _SHAPE


def _no_argument(_: object) -> None:
    """Stands for an `_allocate_block` that there is not."""


def _of_one_group(name: str, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    if overrides.get("groups", "full") not in ("full", FULL):
        raise TargetError(f"{name}: managers in nano-vLLM's shape have one group, full attention")
    return overrides
