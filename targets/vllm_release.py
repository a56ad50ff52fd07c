"""`vllm@V`, `vllm-queue@V`, `vllm-index@V` and `vllm-manager@V`: releases read from their sources.

`poolproof engines vllm==V` puts the files of a release into the folder `vllm-V`
(`release_sources.py`). They are run unmodified; neither vLLM nor PyTorch has to be there. Of the
package run the V1 core (`vllm/v1/core`, without its scheduler) and what it decides with: requests,
the specs of cache groups, events, hashing, arithmetic, inputs and adapters. Stand-ins are
everything else, above all PyTorch, msgspec (of which objects are made and nothing is encoded), the
configuration, sampling parameters and logging. A stand-in that is asked to decide something ends
the run.

Releases before 0.4 are `vllm-v0@V` (`v0_release.py`). Not covered are those up to 0.7, whose V1
core is not what a server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.target import TargetError
from poolproof.targets.apart import NoAnswerError, apart
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.release_modules import ReleaseModules, msgspec_stand_in, silent_logger
from poolproof.targets.release_sources import fetch_release, in_order
from poolproof.targets.source_patch import patch_key
from poolproof.targets.target import Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.v0_release import fetch_v0, v0_release
from poolproof.targets.vllm_manager_target import vllm_manager_target
from poolproof.targets.vllm_pool_parts import vllm_index_target, vllm_queue_target
from poolproof.targets.vllm_requests import BYTES_OF_VLLM_HASHES, prepare_vllm
from poolproof.targets.vllm_shape import VllmShape, shape_of
from poolproof.targets.vllm_target import vllm_target

__all__ = ["RELEASES", "class_of", "fetch_vllm", "given_to", "runs_of", "vllm_modules"]

WANTED = (
    "vllm/adapter_commons/request.py",
    "vllm/distributed/kv_events.py",
    "vllm/envs.py",
    "vllm/lora/request.py",
    "vllm/multimodal/inputs.py",
    "vllm/multimodal/utils.py",
    "vllm/utils.py",
    "vllm/utils/__init__.py",
    "vllm/utils/collection_utils.py",
    "vllm/utils/hashing.py",
    "vllm/utils/jsontree.py",
    "vllm/utils/math_utils.py",
    "vllm/utils/mem_constants.py",
    "vllm/v1/core/",
    "vllm/v1/hisparse/",
    "vllm/v1/kv_cache_interface.py",
    "vllm/v1/kv_cache_layout.py",
    "vllm/v1/kv_cache_spec_registry.py",
    "vllm/v1/metrics/cache_hit_source.py",
    "vllm/v1/metrics/stats.py",
    "vllm/v1/request.py",
    "vllm/v1/utils.py",
)
"""The files and folders that are run; no release has all of them."""

_BYTES_OF = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}


def runs_of(package: str) -> Callable[[str], bool]:
    """Whether a module of `package`, which is vLLM or a fork of it, is run from its source."""

    def runs(name: str) -> bool:
        top, _, below = name.replace(".", "/").partition("/")
        place = f"vllm/{below}" if top == package else name
        if place.startswith("vllm/v1/core/sched"):
            return False
        return any(
            place == wanted.removesuffix("/__init__.py").removesuffix(".py")
            or (wanted.endswith("/") and place.startswith(wanted))
            for wanted in WANTED
        )

    return runs


class _Dtype:
    """A number type, of which only the size matters."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name, self.itemsize = name, itemsize

    def __repr__(self) -> str:
        return f"torch.{self.name}"


def _empty_tensor(_: list[Any], dtype: _Dtype) -> SimpleNamespace:
    """What releases up to 0.9 ask for the size of a number."""
    return HandedFields(element_size=lambda: dtype.itemsize)


class _SamplingParams(SimpleNamespace):
    """Parameters that ask for nothing but what is named."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def given_to(package: str) -> dict[str, Mapping[str, Any]]:
    """Contents of stand-ins for what `package`, which is vLLM or a fork of it, imports."""
    dtypes = {name: _Dtype(name, size) for name, size in _BYTES_OF.items()}

    def get_dtype_size(dtype: _Dtype) -> int:
        return dtype.itemsize

    return {
        "msgspec": msgspec_stand_in(),
        "torch": {"dtype": _Dtype, "tensor": _empty_tensor, **dtypes},
        f"{package}.logger": {"init_logger": silent_logger},
        f"{package}.sampling_params": {"SamplingParams": _SamplingParams},
        f"{package}.utils.torch_utils": {"get_dtype_size": get_dtype_size},
    }


@cache
def _modules_in(root: Path, _patch: str) -> ReleaseModules:
    return ReleaseModules(root, "vllm", runs_of("vllm"), given_to("vllm"))


def vllm_modules(version: str) -> ReleaseModules:
    """The modules of a release. Raises TargetError where it is none, or has not been fetched."""
    if version[:1].isdigit():
        _require_v1(version)
    prepare_vllm()
    how = f"run `poolproof engines vllm=={version}`"
    folder = engine_folder(f"vllm-{version}", how) if version else Path()
    if not (folder / "vllm" / "v1" / "core").is_dir():
        raise TargetError(
            f"{folder if version else 'a name that ends in @'} holds no V1 core of vLLM; write the "
            "version of a release, as vllm@0.28.0, and fetch it before: "
            "`poolproof engines vllm==0.28.0`"
        )
    return _modules_in(folder, patch_key())


def fetch_vllm(version: str, into: Path | None = None) -> tuple[Path, bool]:
    """The folder of a release, and whether it had to be fetched. Raises TargetError."""
    if in_order(version) < [0, 4]:
        return fetch_v0(version, into)
    _require_v1(version)
    return fetch_release("vllm", version, WANTED, into)


def _require_v1(version: str) -> None:
    if in_order(version) < [0, 8]:
        raise TargetError(
            f"vLLM {version} is not read from its sources: the V1 core that servers run begins "
            "with 0.8.0, and the managers of V0 that are driven (vllm-v0@VERSION) end with 0.3.3"
        )


def class_of(modules: Any, module: str, name: str) -> type:
    """A class of a release, or of a fork. Raises TargetError where it has none of that name."""
    found = getattr(modules(module), name, None) if modules.has(module) else None
    if not isinstance(found, type):
        raise TargetError(f"not driven, because this release has no {module}.{name}")
    return found


def _version_in(name: str) -> str:
    return TargetSpec.parse(name).base.partition("@")[2]


def _pool(name: str, declared: Mapping[str, Any]) -> Target:
    version = _version_in(name)
    modules = vllm_modules(version)
    cls = class_of(modules, "vllm.v1.core.block_pool", "BlockPool")
    stated = _stated(cls)
    rows = {row: value for row, (value, _) in stated.items() if row not in declared}
    target = vllm_target(name, cls, {**rows, **declared}, f"vllm {version}", modules)
    notes = (f"{row}={value}: {stated[row][1]}" for row, value in rows.items())
    return replace(target, notes=(*target.notes, *notes))


def _stated(cls: type) -> dict[str, tuple[str, str]]:
    """Rows in which a release asks more of its caller than the published engine, and why."""
    try:
        null_is_cached, is_freed_twice = apart(lambda: _asks_more(shape_of(cls)))
    except NoAnswerError:
        return {}
    rows = {}
    if null_is_cached:
        why = (
            "cache_full_blocks() gives the null block a hash where later releases pass it over; "
            "whether a caller of this release hands it over is not looked at here"
        )
        rows["null_in_lists"] = ("uncached", why)
    if is_freed_twice:
        why = (
            "free_blocks() queues a block twice that stands twice in its list; whether a caller of "
            "this release writes such a list is not looked at here"
        )
        rows["repeats_in_free"] = ("forbidden", why)
    return rows


def _asks_more(shape: VllmShape) -> tuple[bool, bool]:
    """Whether the null block is given a hash, and whether `free([1, 1])` queues a block twice."""
    pool = shape.build(6, enable_caching=True)
    taken = pool.get_new_blocks(1)
    before = pool.get_num_free_blocks()
    pool.touch((taken,) if shape.nested_touch else taken)
    pool.free_blocks(taken * 2)
    is_freed_twice = pool.get_num_free_blocks() > before + 1
    pool = shape.build(6, enable_caching=True)
    request = shape.opaque_request([bytes(BYTES_OF_VLLM_HASHES)])
    shape.call_cache_full(pool, request, [pool.null_block], 0, 0)
    return pool.null_block.block_hash is not None, is_freed_twice


def _queue(name: str, declared: Mapping[str, Any]) -> Target:  # noqa: ARG001 -- one signature for all built-ins
    version = _version_in(name)
    modules = vllm_modules(version)
    cls = class_of(modules, "vllm.v1.core.kv_cache_utils", "FreeKVCacheBlockQueue")
    return vllm_queue_target(name, cls, f"vllm {version}")


def _index(name: str, declared: Mapping[str, Any]) -> Target:
    version = _version_in(name)
    modules = vllm_modules(version)
    cls = class_of(modules, "vllm.v1.core.block_pool", "BlockHashToBlockMap")
    return vllm_index_target(name, cls, f"vllm {version}", declared)


def _manager(name: str, overrides: Mapping[str, Any]) -> Target:
    version = _version_in(name)
    modules = vllm_modules(version)
    cls = class_of(modules, "vllm.v1.core.kv_cache_manager", "KVCacheManager")
    return vllm_manager_target(name, cls, overrides, f"vllm {version}", modules)


RELEASES = {
    "vllm": _pool,
    "vllm-queue": _queue,
    "vllm-index": _index,
    "vllm-manager": _manager,
    "vllm-v0": v0_release,
}
"""What builds the target of a name with a version behind an @."""
