"""Builds the simulated worker side of a connector with the classes of the installed vLLM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poolproof.targets.installed_vllm import engine_module, part_of
from poolproof.targets.vllm_connector_workers import (
    FaultWorker,
    OffloadingWorker,
    SimpleCpuWorker,
    WorkerSide,
)
from poolproof.targets.vllm_engine_setups import FAULT_CONNECTOR, ConnectorSetup

__all__ = ["make_worker"]

_CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1"


def make_worker(connector: ConnectorSetup) -> WorkerSide:
    """The worker side of a set-up. Raises TargetError where vLLM lacks a part of it."""
    return _WORKERS[connector.worker](connector)


def _simple(_connector: ConnectorSetup) -> WorkerSide:
    module = engine_module("vllm.v1.simple_kv_offload.metadata")
    return SimpleCpuWorker(part_of(module, "SimpleCPUOffloadWorkerMetadata"))


def _offloading(connector: ConnectorSetup) -> WorkerSide:
    module = engine_module(f"{_CONNECTORS}.offloading.common")
    blocks_per_chunk: Any = connector.extra.get("blocks_per_chunk", 1)
    return OffloadingWorker(part_of(module, "OffloadingWorkerMetadata"), blocks_per_chunk)


def _faults(_connector: ConnectorSetup) -> WorkerSide:
    module = engine_module(FAULT_CONNECTOR)
    return FaultWorker(part_of(module, "FaultWorkerMetadata"))


_WORKERS: dict[str, Callable[[ConnectorSetup], WorkerSide]] = {
    "simple": _simple,
    "offloading": _offloading,
    "faults": _faults,
}
