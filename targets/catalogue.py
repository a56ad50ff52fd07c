"""The built-in targets for `poolproof list`: what each is, and whether it can be used here.

Availability is looked up without importing anything of an engine.
"""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import dataclass

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import engine_folder, how_to_get
from poolproof.targets.exllamav3_manager import EXLLAMAV3
from poolproof.targets.gllm_engine import GLLM_ENGINE
from poolproof.targets.gllm_manager import GLLM
from poolproof.targets.installed_sglang import SGLANG
from poolproof.targets.installed_vllm import HOW_TO_GET_VLLM
from poolproof.targets.lightllm_manager import LIGHTLLM
from poolproof.targets.lmcache_parts import LMCACHE
from poolproof.targets.lmdeploy_manager import LMDEPLOY
from poolproof.targets.max_manager import MAX_JENGA, MAX_MANAGER
from poolproof.targets.max_pool import MAX_JENGA_POOL, MAX_POOL
from poolproof.targets.mini_sglang_engine import MINI_SGLANG_ENGINE
from poolproof.targets.mini_sglang_manager import MINI_SGLANG
from poolproof.targets.mini_vllm_manager import MINI_VLLM
from poolproof.targets.nano_engine import NANO_ENGINE
from poolproof.targets.nano_manager import NANO_VLLM_PORT
from poolproof.targets.parallax_manager import PARALLAX
from poolproof.targets.program_engines import MISTRALRS, TGI, ProgramEngine
from poolproof.targets.source_engines import PublishedEngine, fetched_folder
from poolproof.targets.tokasaurus_manager import TOKASAURUS
from poolproof.targets.transformers_manager import HOW_TO_GET_TRANSFORMERS
from poolproof.targets.v0_manager import VLLM_V0
from poolproof.targets.vllm_fork import APHRODITE

__all__ = [
    "FORK_ENGINES",
    "MAX_ENGINES",
    "PROGRAM_ENGINES",
    "PUBLISHED_ENGINES",
    "SCHEDULERS",
    "SOURCE_ENGINES",
    "CatalogueRow",
    "catalogue",
]


SOURCE_ENGINES = {
    engine.name: engine
    for engine in (
        EXLLAMAV3,
        GLLM,
        LIGHTLLM,
        LMDEPLOY,
        MINI_SGLANG,
        MINI_VLLM,
        PARALLAX,
        TOKASAURUS,
    )
}
"""What `poolproof engines` fetches, by the name of the target."""

PROGRAM_ENGINES = {engine.name: engine for engine in (MISTRALRS, TGI)}
"""What it fetches and builds."""

FORK_ENGINES = {APHRODITE.name: APHRODITE}
"""Forks of vLLM that it fetches."""

MAX_ENGINES = {engine.name: engine for engine in (MAX_MANAGER, MAX_JENGA, MAX_POOL, MAX_JENGA_POOL)}
"""Parts of MAX, which it takes from one wheel."""

SCHEDULERS = {engine.name: engine for engine in (GLLM_ENGINE, MINI_SGLANG_ENGINE, NANO_ENGINE)}
"""Engines whose schedulers it fetches, to be driven whole."""

PUBLISHED_ENGINES: dict[str, PublishedEngine] = {
    **SOURCE_ENGINES,
    **PROGRAM_ENGINES,
    **FORK_ENGINES,
    **MAX_ENGINES,
    **SCHEDULERS,
}
"""All of them."""


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """One built-in target; `how` says how to get it if it is not available."""

    name: str
    what: str
    level: str
    available: bool
    how: str


_OWN = (
    ("impl", "Poolproof's optimised block pool, under any profile", "pool"),
    ("impl-queue", "its linked free queue", "queue"),
    ("impl-index", "its index from hashes to blocks", "index"),
    ("reference", "the specification itself, under any profile", "pool"),
    ("reference-queue", "the specification of the free queue", "queue"),
    ("reference-index", "the specification of the index", "index"),
    ("reference-manager", "the specification of managers, under any profile", "manager"),
    ("impl-manager", "Poolproof's manager in vLLM V1's shape, in several layouts", "manager"),
    ("impl-vllm-v0", "Poolproof's manager in vLLM V0's shape: forks and swapping", "manager"),
    ("impl-nano", "its manager in nano-vLLM's shape", "manager"),
    ("impl-engine", "Poolproof's small engine over its manager, in several set-ups", "engine"),
)
_VLLM = (
    ("vllm", "the BlockPool of the vLLM that is installed here", "pool"),
    ("vllm-queue", "its FreeKVCacheBlockQueue", "queue"),
    ("vllm-index", "its BlockHashToBlockMap", "index"),
    ("vllm-manager", "its KVCacheManager, in several layouts", "manager"),
    ("vllm-engine", "its schedulers, in several set-ups, over a simulated worker", "engine"),
    ("vllm-connectors", "the same with its KV connectors, over simulated transfers", "engine"),
    ("vllm-nixl", "a prefill and a decode instance of it, with its NIXL connectors", "engine"),
    ("vllm-mooncake", "such a pair with its Mooncake connector", "engine"),
    ("vllm-drop-in", "Poolproof's manager under its schedulers", "engine"),
    (
        "vllm-hybrid",
        "its schedulers with recurrent layers, and its worker's own bookkeeping",
        "engine",
    ),
    ("vllm-hybrid-connectors", "the same with its KV connectors, which move states", "engine"),
)
_TRANSFORMERS = (
    ("transformers", "the paged cache of Transformers' continuous batching", "manager"),
    ("transformers-engine", "its loop with both schedulers, over a simulated model", "engine"),
)


# The modules that the sources of an engine need besides themselves.
_UNPACKED = (
    ("vllm-v0", "the BlockSpaceManager of vLLM 0.2.7 (V0)", VLLM_V0, ()),
    ("vllm-v0-engine", "its Scheduler, with recomputation and swapping", VLLM_V0, ()),
    (
        "nano-vllm", "the BlockManager of nano-vLLM: a published port, or nano-vllm:PATH",
        NANO_VLLM_PORT, ("xxhash", "numpy"),
    ),
    ("sglang", "the RadixCache of SGLang 0.5.23 over its allocators", SGLANG, ("torch", "triton")),
    (
        "sglang-unified", "its UnifiedRadixCache, full attention and sliding windows", SGLANG,
        ("torch", "triton"),
    ),
    (
        "sglang-engine", "its Scheduler over that, with and without recurrent layers", SGLANG,
        ("torch", "triton", "msgspec"),
    ),
    (
        "sglang-hicache-engine", "the same with its tier in host memory (HiCache)", SGLANG,
        ("torch", "triton"),
    ),
    ("vllm-lmcache", "vLLM's schedulers with LMCache's connector 0.5.6", LMCACHE, ("vllm",)),
    (
        "lmcache", "the LocalCPUBackend of LMCache 0.5.6 with each of its policies", LMCACHE,
        ("sortedcontainers",),
    ),
)  # fmt: skip


def _unpacked_row(name: str, what: str, folder: str, needs: tuple[str, ...]) -> CatalogueRow:
    """An engine whose sources are read without being installed."""
    how = _missing(needs)
    try:
        engine_folder(folder)
    except TargetError:
        how = how_to_get(folder)
    level = "engine" if name.endswith(("-engine", "vllm-lmcache")) else "manager"
    return CatalogueRow(name, what, level, not how, how)


def _missing(needs: tuple[str, ...]) -> str:
    """What has to be installed of the modules that an engine needs, as half a sentence."""
    missing = [module for module in needs if importlib.util.find_spec(module) is None]
    return f"install {' and '.join(missing)}" if missing else ""


def _fetched_rows() -> list[CatalogueRow]:
    """The engines that `poolproof engines` fetches."""
    rows = []
    for engine in PUBLISHED_ENGINES.values():
        what = f"{engine.what} at {engine.commit[:7]}, or {engine.name}:PATH"
        how = _missing(engine.needs)
        if isinstance(engine, ProgramEngine) and shutil.which(engine.compiler) is None:
            how = f"install {engine.compiler}"
        try:
            fetched_folder(engine)
        except TargetError:
            how = f"run `poolproof engines {engine.name}`"
        rows.append(CatalogueRow(engine.name, what, engine.level, not how, how))
    return rows


def catalogue() -> list[CatalogueRow]:
    """A row for each built-in target."""
    has_vllm = importlib.util.find_spec("vllm") is not None
    has_transformers = all(map(importlib.util.find_spec, ("transformers", "torch")))
    return (
        [CatalogueRow(name, what, level, True, "") for name, what, level in _OWN]
        + [
            CatalogueRow(name, what, level, has_vllm, "" if has_vllm else HOW_TO_GET_VLLM)
            for name, what, level in _VLLM
        ]
        + [_unpacked_row(*row) for row in _UNPACKED]
        + _fetched_rows()
        + [
            CatalogueRow(
                name,
                what,
                level,
                has_transformers,
                "" if has_transformers else HOW_TO_GET_TRANSFORMERS,
            )
            for name, what, level in _TRANSFORMERS
        ]
    )
