"""The classes of vLLM 0.2.7 (V0) that keep its blocks, from the sources of its wheel.

`block.py`, `utils.py`, `sampling_params.py`, `sequence.py` and `core/block_manager.py` are the
engine's own files, unmodified. Stubbed, because they are only named there and never called by the
block manager: `torch` (`Tensor`, in an annotation), `psutil` and `vllm._C.cuda_utils`.
`vllm/__init__.py`, which starts the engine, is not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.targets.engine_folder import engine_folder
from poolproof.targets.source_package import import_from_source, stub_module

__all__ = ["VLLM_V0", "VllmV0", "vllm_v0"]

VLLM_V0 = "vllm-0.2.7"
"""Name and version, which is also the name of its folder."""

_MODULES = ("utils", "block", "sampling_params", "sequence", "core.block_manager")


@dataclass(frozen=True)
class VllmV0:
    """What the adapter uses of the engine, by the engine's own names."""

    folder: Path
    BlockSpaceManager: Any
    BlockAllocator: Any
    AllocStatus: Any
    Sequence: Any
    SequenceGroup: Any
    SequenceStatus: Any
    SamplingParams: Any


def vllm_v0() -> VllmV0:
    """The engine's classes. Raises TargetError, which says how to get the sources."""
    folder = engine_folder(VLLM_V0)
    stubs = {
        "torch": stub_module("torch", Tensor=object),
        "psutil": stub_module("psutil"),
        "vllm._C": stub_module("vllm._C", cuda_utils=None),
    }
    modules = import_from_source(folder, "vllm", _MODULES, stubs)
    blocks, sequences = modules["core.block_manager"], modules["sequence"]
    return VllmV0(
        folder=folder,
        BlockSpaceManager=blocks.BlockSpaceManager,
        BlockAllocator=blocks.BlockAllocator,
        AllocStatus=blocks.AllocStatus,
        Sequence=sequences.Sequence,
        SequenceGroup=sequences.SequenceGroup,
        SequenceStatus=sequences.SequenceStatus,
        SamplingParams=modules["sampling_params"].SamplingParams,
    )
