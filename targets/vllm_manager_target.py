"""The targets in the shape of vLLM V1's `KVCacheManager`: the engine's, our own, and any class.

`vllm-manager` is the class of the vLLM that is installed here, unmodified; `impl-manager` is
`poolproof.impl.kv_cache_manager`. A class of one's own is built as the one of the two whose
constructor it has. Nothing of vLLM is imported before such a target is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import ProfileError
from poolproof.contract.target import TargetError
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.targets.impl_kv_cache import IMPL_LAYOUTS, ImplParts
from poolproof.targets.installed_vllm import HOW_TO_GET_VLLM, import_of_vllm, version_of_vllm
from poolproof.targets.manager_target import MANAGER_SHAPES, ManagerShape, manager_target
from poolproof.targets.target import Make, ManagerLayout, Target, source_of
from poolproof.targets.vllm_manager import EngineParts, ManagerAdapter
from poolproof.targets.vllm_manager_engine import VllmParts
from poolproof.targets.vllm_manager_layouts import BLOCK_SIZE, LAYOUTS, NOT_DRIVEN, NamedLayout
from poolproof.targets.vllm_shape import parameters_of

__all__ = ["impl_kv_cache_manager", "installed_vllm_manager", "make_of"]

_SHAPE = "vllm-v1-manager"
_METHODS = ("get_computed_blocks", "allocate_slots", "free", "get_block_ids")


def installed_vllm_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The real `KVCacheManager`. Raises TargetError where vLLM cannot be imported."""
    cls = import_of_vllm("vllm.v1.core.kv_cache_manager", "KVCacheManager")
    return _target(name, cls, LAYOUTS, overrides, version_of_vllm())


def impl_kv_cache_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """Our own. Raises TargetError for an unknown row of the profile."""
    return _target(name, KVCacheManager, IMPL_LAYOUTS, overrides, None)


def _class_in_this_shape(
    name: str, cls: type, overrides: Mapping[str, Any], version: str | None
) -> Target:
    """Any class with the shape's methods. Raises TargetError."""
    missing = [method for method in _METHODS if not callable(getattr(cls, method, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{method}()' for method in missing)}, which a "
            "manager in vLLM V1's shape has"
        )
    rows = {**getattr(cls, "profile", {}), **overrides}
    layouts = IMPL_LAYOUTS if issubclass(cls, KVCacheManager) else LAYOUTS
    return _target(name, cls, layouts, rows, version)


# For `--api vllm-v1-manager`, and for classes that have all these methods.
MANAGER_SHAPES[_SHAPE] = ManagerShape(_METHODS, _class_in_this_shape)


def make_of(parts: EngineParts, layout: NamedLayout, profile: ManagerProfile) -> Make:
    """Builds instances of a layout behind the native contract."""

    def make(num_blocks: int, enable_caching: bool) -> ManagerAdapter:
        return ManagerAdapter(
            parts,
            num_blocks,
            enable_caching=enable_caching,
            num_lookahead_tokens=profile.lookahead_tokens,
            without=layout.without,
        )

    return make


def _target(
    name: str,
    cls: type,
    layouts: Sequence[NamedLayout],
    overrides: Mapping[str, Any],
    version: str | None,
) -> Target:
    notes = [f"{layout.name}: {note}" for layout in layouts for note in layout.notes]
    return manager_target(
        name,
        _SHAPE,
        [_layout(name, cls, layout, overrides) for layout in layouts],
        version=version,
        source=source_of(cls),
        real_class=cls,
        notes=(*notes, *(f"not driven: {what}" for what in NOT_DRIVEN)),
    )


def _layout(
    name: str, cls: type, layout: NamedLayout, overrides: Mapping[str, Any]
) -> ManagerLayout:
    parts = None if layout.why_not else _parts(cls, layout)
    if isinstance(parts, VllmParts):
        layout = parts.layout
    try:
        profile = ManagerProfile.from_mapping({**layout.profile_rows(), **overrides})
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error
    if parts is None:
        return ManagerLayout(layout.name, profile, None, BLOCK_SIZE, layout.why_not)
    return ManagerLayout(layout.name, profile, make_of(parts, layout, profile), BLOCK_SIZE)


def _parts(cls: type, layout: NamedLayout) -> EngineParts:
    if issubclass(cls, KVCacheManager):
        return ImplParts(cls, layout)
    first = next((parameter.name for parameter in parameters_of(cls, "__init__")), "")
    if first != "kv_cache_config":
        raise TargetError(
            f"{cls.__name__}() takes {first or 'no argument'} first, and a manager in vLLM V1's "
            "shape a KVCacheConfig; write a native target (`poolproof new --manager FILE`)"
        )
    try:
        importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        raise TargetError(
            f"{cls.__name__} is built from a KVCacheConfig of vLLM, which is not installed where "
            f"Poolproof runs; {HOW_TO_GET_VLLM}"
        ) from error
    return VllmParts(cls, layout)
