"""SGLang's own scheduler, loaded without its server: from the files that `installed_sglang` finds.

Unmodified are `managers/scheduler.py` (`Scheduler`), `schedule_batch.py` (`Req`, `ScheduleBatch`),
`schedule_policy.py` (`SchedulePolicy`, `PrefillAdder`), the processor of results and the tracker of
the token ratio in `scheduler_components`, all of `mem_cache` but one allocator and the builder of
pools, `runtime_context.py`, and what they import of `utils`, `dllm`, `beam_search`, `session` and
`sampling`. So is `layers/attention/mamba/prefill_track_metadata.py`, which says where a prompt's
kernels find the state that is to be kept.

Every other module of `sglang` is a stub whose every name does nothing, see `BlankModule`: kernels,
layers, models, distribution, disaggregation, LoRA, images, grammars, sockets, metrics, the Rust
server. The classes that `Scheduler` mixes in from there are empty, so that an attribute that is
missing raises. `SamplingBatchInfo` says nothing of states; a stub follows its calls.

Other targets over SGLang stub less of it. So these modules are kept apart, and stand among Python's
imported ones only while the server is called: functions of SGLang import more when they run.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import BlankModule
from poolproof.targets.installed_sglang import Sglang, sglang_parts
from poolproof.targets.source_patch import patch_key, patched_by_others

__all__ = ["SglangServer", "sglang_server"]

_MANAGERS = "sglang.srt.managers"
_CACHE = "sglang.srt.mem_cache"

_REAL = (
    _CACHE,
    "sglang.srt.arg_groups",
    "sglang.srt.beam_search",
    "sglang.srt.constants",
    "sglang.srt.disaggregation.decode_schedule_batch_mixin",
    "sglang.srt.disaggregation.utils",
    "sglang.srt.dllm",
    "sglang.srt.environ",
    "sglang.srt.model_executor.forward_batch_info",
    "sglang.srt.multimodal.modality",
    "sglang.srt.runtime_context",
    "sglang.srt.sampling.sampling_params",
    "sglang.srt.session.streaming_session",
    "sglang.srt.utils",
    f"{_MANAGERS}.prefill_delayer",
    f"{_MANAGERS}.schedule_batch",
    f"{_MANAGERS}.schedule_policy",
    f"{_MANAGERS}.scheduler",
    f"{_MANAGERS}.scheduler_components.batch_result_processor",
    f"{_MANAGERS}.scheduler_components.new_token_ratio_tracker",
    f"{_MANAGERS}.utils",
)
"""Modules that are run, each with everything below it."""

_STUBBED = (
    # Pools of one model, and the reader of a model's configuration: both ask for model layers.
    f"{_CACHE}.allocator.hisparse",
    f"{_CACHE}.kv_cache_builder",
    "sglang.srt.utils.hf_transformers_utils",
)
"""What is not run below them."""

_MIXINS = {
    "sglang.srt.disaggregation.decode": "SchedulerDisaggregationDecodeMixin",
    "sglang.srt.disaggregation.prefill": "SchedulerDisaggregationPrefillMixin",
    "sglang.srt.multiplex.multiplexing_mixin": "SchedulerMultiplexMixin",
    f"{_MANAGERS}.scheduler_pp_mixin": "SchedulerPPMixin",
}
"""Modules whose classes become bases, which may not answer for attributes that are missing."""

_TRACK_PLAN = Path("srt") / "layers" / "attention" / "mamba" / "prefill_track_metadata.py"


@dataclass(frozen=True)
class SglangServer:
    """What the adapter uses, by the engine's own names."""

    cache: Sglang
    scheduler: ModuleType
    schedule_batch: ModuleType
    schedule_policy: ModuleType
    batch_result_processor: ModuleType
    memory_pool: ModuleType
    unified_radix_cache: ModuleType
    sampling_params: ModuleType
    runtime_context: ModuleType
    disaggregation: ModuleType
    ratio: ModuleType
    track_plan: ModuleType
    modules: dict[str, ModuleType]

    @contextmanager
    def imported(self) -> Iterator[None]:
        """While the block runs, what is imported of SGLang is this server's."""
        others = {name: sys.modules.pop(name) for name in self.modules if name in sys.modules}
        sys.modules.update(self.modules)
        try:
            yield
        finally:
            for name in self.modules:
                sys.modules.pop(name, None)
            sys.modules.update(others)


def sglang_server() -> SglangServer:
    """The modules. Raises TargetError, which says how to get what is missing."""
    return _server(patch_key())


@cache
def _server(patch: str) -> SglangServer:
    others = _taken_out()
    try:
        server = _loaded()
    finally:
        _taken_out()
        sys.modules.update(others)
    patched = None if patch else patched_by_others(None, lambda _: True, server.modules)
    if patched is not None:
        raise TargetError(
            f"sglang-engine: this process has loaded {patched} with a patch; load the two in "
            "processes of their own"
        )
    return server


def _taken_out() -> dict[str, ModuleType]:
    """What is imported of SGLang, which is no more."""
    names = [name for name in sys.modules if name == "sglang" or name.startswith("sglang.")]
    return {name: sys.modules.pop(name) for name in names}


def _loaded() -> SglangServer:
    parts = sglang_parts()
    names = {
        "scheduler": f"{_MANAGERS}.scheduler",
        "schedule_batch": f"{_MANAGERS}.schedule_batch",
        "schedule_policy": f"{_MANAGERS}.schedule_policy",
        "batch_result_processor": f"{_MANAGERS}.scheduler_components.batch_result_processor",
        "memory_pool": f"{_CACHE}.memory_pool",
        "unified_radix_cache": f"{_CACHE}.unified_radix_cache",
        "sampling_params": "sglang.srt.sampling.sampling_params",
        "runtime_context": "sglang.srt.runtime_context",
        "disaggregation": "sglang.srt.disaggregation.utils",
        "ratio": f"{_MANAGERS}.scheduler_components.new_token_ratio_tracker",
    }
    with _stubs():
        try:
            modules = {field: importlib.import_module(name) for field, name in names.items()}
            track_plan = _alone(parts.folder / _TRACK_PLAN)
        except ModuleNotFoundError as error:
            raise TargetError(
                f"{parts.folder} needs the module {error.name}, which is not installed in "
                f"{sys.executable}; run `make engines` and use `.venv-vllm/bin/poolproof`"
            ) from error
        except (Exception, SystemExit) as error:
            raise TargetError(
                f"{_MANAGERS} in {parts.folder} cannot be imported: {type(error).__name__}: {error}"
            ) from error
    taken = _taken_out()
    return SglangServer(cache=parts, track_plan=track_plan, modules=taken, **modules)


def _alone(path: Path) -> ModuleType:
    """A file that imports nothing of SGLang, below a folder that is stubbed."""
    name = f"poolproof_engine_sglang_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _stubs() -> Iterator[None]:
    """While the block runs, modules of SGLang that are not wanted are stubs."""
    finder = _ServerStubs()
    lent = [name for name in ("orjson", "setproctitle") if not _is_installed(name)]
    for name in lent:
        sys.modules[name] = BlankModule(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in lent:
            sys.modules.pop(name, None)


def _is_installed(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


class _Sampling:
    """Stands for the sampling parameters of a batch: none of them needs anything of a step."""

    def __init__(self) -> None:
        self.penalizer_orchestrator = HandedFields(is_required=False)

    @classmethod
    def from_schedule_batch(cls, _batch: Any, _vocab_size: int) -> _Sampling:
        return cls()

    def merge_batch(self, _other: _Sampling) -> None:
        """Nothing to merge."""

    def filter_batch(self, _kept: Any, _kept_on_device: Any) -> None:
        """Nothing to leave out."""


class _NoStats:
    """Stands for what is counted of a prompt's step."""

    @staticmethod
    def from_adder(*_arguments: Any, **_named: Any) -> None:
        """Nothing is counted."""


def _undecorated(_stage: Any) -> Any:
    """In place of a decorator that takes times."""
    return lambda method: method


_CONTENTS: dict[str, dict[str, Any]] = {
    **{module: {name: type(name, (), {})} for module, name in _MIXINS.items()},
    "sglang.srt.observability.scheduler_stage_metrics": {"scheduler_stage_method": _undecorated},
    "sglang.srt.sampling.sampling_batch_info": {"SamplingBatchInfo": _Sampling},
    f"{_MANAGERS}.scheduler_components.metrics_reporter": {"PrefillStats": _NoStats},
}
"""What a stub has beside names that do nothing."""


class _ServerStubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for every module of SGLang that is not run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if not fullname.startswith("sglang.") or _is_run(fullname):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        blank = BlankModule(spec.name)
        vars(blank).update(_CONTENTS.get(spec.name, {}))
        return blank

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def _is_run(name: str) -> bool:
    """Whether a module is one of those that are run, lies below one, or holds one."""
    if name in _STUBBED:
        return False
    below = any(name == real or name.startswith(f"{real}.") for real in _REAL)
    return below or any(real.startswith(f"{name}.") for real in _REAL)
