"""The built-in targets for `poolproof list`: what each is, and whether it can be used here.

Availability is looked up without importing anything of an engine.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from poolproof.targets.installed_vllm import HOW_TO_GET_VLLM

__all__ = ["CatalogueRow", "catalogue"]


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """One built-in target; `how` says how to get it where it is not available."""

    name: str
    what: str
    level: str
    available: bool
    how: str


_OWN = (
    ("impl", "Poolproof's optimised block pool, under any profile", "pool"),
    ("impl-queue", "its linked free queue", "queue"),
    ("reference", "the specification itself, under any profile", "pool"),
    ("reference-queue", "the specification of the free queue", "queue"),
)
_VLLM = (
    ("vllm", "the BlockPool of the vLLM that is installed here", "pool"),
    ("vllm-queue", "its FreeKVCacheBlockQueue", "queue"),
)


def catalogue() -> list[CatalogueRow]:
    """A row for each built-in target."""
    has_vllm = importlib.util.find_spec("vllm") is not None
    return [CatalogueRow(name, what, level, True, "") for name, what, level in _OWN] + [
        CatalogueRow(name, what, level, has_vllm, "" if has_vllm else HOW_TO_GET_VLLM)
        for name, what, level in _VLLM
    ]
