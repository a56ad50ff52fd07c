"""Drives vLLM V1 with recurrent layers and a KV connector, which moves their states as well.

The scheduler, the scheduler side of the connector and the worker's bookkeeping of states are
vLLM's own (`vllm_hybrid.py`); what the worker side of the connector moves is simulated
(`vllm_connector_workers.py`). A transfer takes, or replaces, all that a block holds when it runs:
KV and states are one memory. So a state that is stored too early, or too late, is one of another
prefix for whoever starts from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from poolproof.targets.engine_target import engine_target
from poolproof.targets.installed_vllm import import_of_vllm, version_of_vllm
from poolproof.targets.target import EngineLayout, Target
from poolproof.targets.vllm_engine import VllmConnectorEngine
from poolproof.targets.vllm_engine_setups import BLOCK_SIZE
from poolproof.targets.vllm_hybrid import OWN_MODULES, VllmHybridEngine
from poolproof.targets.vllm_hybrid_connector_setups import HYBRID_CONNECTOR_SETUPS
from poolproof.targets.vllm_hybrid_parts import HybridParts
from poolproof.targets.vllm_hybrid_setups import HybridSetup

__all__ = [
    "VllmHybridConnectorEngine",
    "installed_vllm_hybrid_connectors",
    "vllm_hybrid_connector_layouts",
]


class VllmHybridConnectorEngine(VllmHybridEngine, VllmConnectorEngine):
    """A scheduler with a connector, a worker that moves states, and the connector's worker side."""


def vllm_hybrid_connector_layouts(
    setups: Sequence[HybridSetup] = HYBRID_CONNECTOR_SETUPS,
) -> list[EngineLayout]:
    """The set-ups of the installed vLLM. Raises TargetError where it is none that is known."""
    return [
        EngineLayout(setup.name, setup.profile(), partial(_made, HybridParts(setup)), BLOCK_SIZE)
        for setup in setups
    ]


def _made(
    parts: HybridParts, num_blocks: int, enable_caching: bool, /
) -> VllmHybridConnectorEngine:
    """An engine. One that vLLM refuses to build without caching is built with it instead."""
    connector = parts.setup.connector
    needs_caching = connector is not None and connector.name == "OffloadingConnector"
    return VllmHybridConnectorEngine(
        parts, num_blocks, enable_caching=enable_caching or needs_caching
    )


def installed_vllm_hybrid_connectors(name: str, declared: Mapping[str, Any]) -> Target:
    """The real schedulers, connectors and workers. Raises TargetError as `vllm-hybrid` does."""
    scheduler = import_of_vllm("vllm.v1.core.sched.scheduler", "Scheduler")
    return engine_target(
        name,
        declared,
        vllm_hybrid_connector_layouts(),
        scheduler,
        version=version_of_vllm(),
        own_modules=OWN_MODULES,
    )
