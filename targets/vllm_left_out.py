"""Stand-ins for what a vLLM worker has no use for without a device and a model.

Shared by the workers of both runners (`vllm_hybrid_worker.py`, `vllm_second_worker.py`).
"""

from __future__ import annotations

import inspect
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.targets.installed_vllm import engine_module, part_of

__all__ = [
    "HandedModel",
    "alone",
    "copy_functions",
    "leave_out_builder",
    "leave_out_convolutions",
    "nothing",
    "same",
]


class HandedModel(SimpleNamespace, HandedOver):
    """What a runner asks of its model; what is missing is our fault and no finding."""


def nothing(*_arguments: Any, **_named: Any) -> None:
    """Stands where a worker without a device has nothing to do."""


def same(value: Any, *_arguments: Any, **_named: Any) -> Any:
    """Stands, with a value, where that is always the answer."""
    return value


def alone() -> SimpleNamespace:
    """The group of a worker that has no others beside it."""
    return HandedFields(
        is_last_rank=True, is_first_rank=True, rank_in_group=0, world_size=1, ranks=[0]
    )


def copy_functions() -> tuple[Any, Any]:
    """How vLLM copies the window and the recurrence of a layer."""
    names = engine_module("vllm.model_executor.layers.mamba.mamba_utils")
    return names.get_conv_copy_spec, names.get_temporal_copy_spec


def leave_out_convolutions() -> None:
    """No metadata for the kernels of a prompt's convolution. Raises TargetError, see `part_of`."""
    for backend in ("gdn_attn", "mamba_attn"):
        module = engine_module(f"vllm.v1.attention.backends.{backend}")
        part_of(module, "compute_causal_conv1d_metadata")
        _leave_out(module, "compute_causal_conv1d_metadata")


def leave_out_builder(builder: Any) -> None:
    """No metadata about the chunks in which a kernel computes a prompt."""
    for name in ("_build_chunk_metadata", "_build_chunk_metadata_tensors"):
        _leave_out(builder, name)


def _leave_out(owner: Any, name: str) -> None:
    """Let what computes for kernels answer None for each value that it says it returns."""
    function = getattr(owner, name, None)
    if function is not None and not isinstance(function, partial):
        returned = inspect.signature(function).return_annotation
        setattr(owner, name, partial(same, (None,) * len(get_args(returned))))
