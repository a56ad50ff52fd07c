"""MAX's KV cache managers, read from a wheel of Modular's MAX: where they lie, what runs.

`poolproof engines max-manager` puts the files of the wheel of MAX 26.7.0 into the folder
`max-26.7.0`, from the package index that pip uses; it is one folder for all four targets. The
wheel has the managers as plain Python, and what they share with MAX's server in Rust compiled:
`max._kv_core` has the Jenga pool, the hashes of blocks and the rule that says how long a hit is.
All of it runs unmodified, and the requests are MAX's own `TextContext`. Its compiled part is of
Python's stable interface, so any Python from 3.10 on loads it, on a machine of the wheel's kind.
Stand-ins are what the bookkeeping does not ask: devices, graphs, tensors, tracing.

Behind a colon the folder may be named that holds a `max` of that release, as
`max-manager:venv/lib/python3.12/site-packages`.

Where they stand in for MAX's server:
- no set-up of a model: blocks have 4 tokens, and there is one replica. Hashes are the default,
  `ahash64`.
- MAX refuses to serve adapters with its prefix cache. Tokens under an adapter are other tokens
  here, and so are those of images.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.target import TargetError
from poolproof.targets.release_modules import ReleaseModules
from poolproof.targets.release_sources import fetch_release
from poolproof.targets.source_engines import PublishedEngine, fetched_folder
from poolproof.targets.source_patch import patch_key
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.token_names import TokenNames

__all__ = ["PAGED", "MaxEngine", "MaxRequests", "fetch_max", "max_engine", "max_modules"]

PAGED = "max.pipelines.kv_cache.paged_kv_cache"
"""The folder of the managers and pools."""

_VERSION = "26.7.0"
_CORE = "max._kv_core"
_RUN = (
    "max.nn.kv_cache",
    "max.nn.kv_cache.cache_params",
    "max.nn.kv_cache.metrics",
    "max.pipelines.context",
    *(
        f"max.pipelines.context.{name}"
        for name in (
            "context", "context_validators", "eos_tracking", "exceptions", "log_probabilities",
            "logit_processors_type", "outputs", "pixel_context_validators", "sampling_params",
            "status", "tokens", "video",
        )
    ),
    "max.pipelines.kv_cache.kv_connector",
    *(
        f"{PAGED}.{name}"
        for name in (
            "_common", "block_manager", "block_pool", "block_utils", "jenga_block_manager",
            "jenga_block_pool", "kv_group_coordinator", "recurrent_coordinator",
            "scratch_coordinator",
        )
    ),
    "max.support.human_readable_formatter",
    "max.support.math",
)  # fmt: skip
_PACKAGES = ("max.nn.kv_cache", "max.pipelines.context")


def _file_of(module: str) -> str:
    path = module.replace(".", "/")
    return f"{path}/__init__.py" if module in _PACKAGES else f"{path}.py"


_FILES = (*map(_file_of, _RUN), "max/_kv_core.so", "LICENSE")


@dataclass(frozen=True, kw_only=True)
class MaxEngine(PublishedEngine):
    """One of MAX's managers or pools; all of them are in one folder."""

    @property
    def folder(self) -> str:
        """The name of the folder that the wheel is unpacked into."""
        return f"max-{self.commit}"


def max_engine(name: str, what: str, **further: Any) -> MaxEngine:
    """The entry of one target."""
    return MaxEngine(
        name=name,
        what=what,
        address="the package max",
        commit=_VERSION,
        files=_FILES,
        needs=("numpy",),
        **further,
    )


def fetch_max(engine: MaxEngine, into: Path | None = None) -> tuple[Path, bool]:
    """The folder of the release, and whether it had to be fetched. Raises TargetError."""
    return fetch_release("max", engine.commit, engine.files, into, wheel=True)


def max_modules(engine: MaxEngine, name: str) -> tuple[ReleaseModules, str | None]:
    """The modules that the target `name` runs, and their version where Poolproof fetched them.

    Raises TargetError where they are not there, or cannot be run here.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    root = Path(path).expanduser() if path else fetched_folder(engine)
    if not (root / "max" / "pipelines" / "kv_cache" / "paged_kv_cache").is_dir():
        raise TargetError(
            f"{root} holds no MAX: it has no folder max/pipelines/kv_cache/paged_kv_cache; run "
            f"`poolproof engines {engine.name}`, or name the folder that MAX is installed in"
        )
    modules = _modules_in(root.resolve(), patch_key())
    return modules, None if path else f"max {engine.commit}"


@cache
def _modules_in(root: Path, _patch: str) -> ReleaseModules:
    try:
        arrays = {name: vars(importlib.import_module(name)) for name in ("numpy", "numpy.typing")}
    except ModuleNotFoundError as error:
        raise TargetError(
            f"MAX keeps tokens in arrays of numpy, which is not installed in {sys.executable}; "
            "install numpy"
        ) from error
    given = {
        **arrays,
        _CORE: vars(_compiled_core(root)),
        "max.profiler": {"traced": _untraced},
        "max.pipelines.request": {"RequestID": str},
        "max.pipelines.modeling.types": {"RequestID": str},
    }
    return ReleaseModules(root, "max", set(_RUN).__contains__, given)


def _untraced(function: Any = None, **_options: Any) -> Any:
    """The decorator that notes how long a call takes, without the note."""
    return function or _untraced


def _compiled_core(root: Path) -> Any:
    """`max._kv_core` of that folder. Raises TargetError where it is missing or of another kind."""
    path = root / "max" / "_kv_core.so"
    if not path.is_file():
        raise TargetError(
            f"{path} does not exist: the Jenga pool and the hashes of MAX {_VERSION} are compiled, "
            "and a checkout has neither; name the folder that MAX is installed in"
        )
    loader = ExtensionFileLoader("_kv_core", str(path))
    spec = spec_from_file_location("_kv_core", path, loader=loader)
    assert spec is not None
    try:
        module = module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise TargetError(
            f"{path} cannot be loaded by {sys.executable}: {error}; fetch it on this machine"
        ) from error
    return module


_MOST_TOKENS = 1 << 24
"""How long a request may become: longer than any run."""

_FIRST_NAME = 1 << 31
"""MAX hashes the lower 32 bits of a token. Names begin behind every vocabulary."""


class _NoEnd(HandedOver):
    """What tells the token that ends a text: none does."""

    def is_eos_from_tokens(self, _generated: Any) -> bool:
        return False


class MaxRequests:
    """MAX's own `TextContext` objects, one for each sequence."""

    def __init__(self, modules: ReleaseModules) -> None:
        context = modules("max.pipelines.context")
        self._new_context, self._new_tokens = context.TextContext, context.TokenBuffer
        self._sampling = context.SamplingParams(seed=0)
        self._numpy = modules("numpy")
        self._names = TokenNames(enable_caching=True, first_name=_FIRST_NAME)
        self._settings: dict[str, tuple[object, ...]] = {}

    def new(self, seq_id: int, tokens: list[int], extra_keys: Any) -> Any:
        """A request that nothing has been computed of; salts are its own, other keys are folded."""
        keys = extra_keys or ()
        salts = [value for kind, value, _, _ in keys if kind == "salt"]
        folded = tuple(key for key in keys if key[0] != "salt")
        setting = self._names.setting(folded)
        named = self._names.named(tokens, setting, folded)
        request = self._context(str(seq_id), named, salts[0] if salts else None)
        self._settings[request.request_id] = setting
        return request

    def grown(self, request: Any, tokens: list[int]) -> Any:
        """The same request with further tokens, of which as much is computed."""
        named = self._names.named(tokens, self._settings[request.request_id])
        kept = [int(token) for token in request.tokens.all]
        grown = self._context(request.request_id, kept + named, request.cache_salt)
        if request.tokens.processed_length:
            grown.tokens.skip_processing(request.tokens.processed_length)
        return grown

    def named(self, request: Any, token: int) -> int:
        """What a sampled token of the request is called."""
        return self._names.named([token], self._settings[request.request_id])[0]

    def _context(self, request_id: str, tokens: list[int], salt: str | None) -> Any:
        row = self._numpy.array(tokens, dtype=self._numpy.int64)
        return self._new_context(
            max_length=_MOST_TOKENS,
            tokens=self._new_tokens(row),
            request_id=request_id,
            sampling_params=self._sampling,
            eos_tracker=_NoEnd(),
            cache_salt=salt,
        )
