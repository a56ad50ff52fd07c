"""Functions beside attention in Triton, of vLLM and SGLang: merges of two parts, a cache write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from poolproof.kernels.catalogue import SGLANG
from poolproof.kernels.functions.cache_write import CACHE_WRITE
from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.functions.merge import MERGE
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.kind import Kind
from poolproof.kernels.peers.sglang_modules import sglang_module
from poolproof.kernels.peers.vllm_modules import NAMES, vllm_module, vllm_version

__all__ = [
    "sglang_merge_target",
    "vllm_merge_target",
    "vllm_write_scaled_target",
    "vllm_write_target",
]


def vllm_merge_target(device: str) -> FunctionTarget:
    """`merge_attn_states`: log-sum-exps are (num_heads, num_tokens)."""
    forward = vllm_module("triton_merge_attn_states", device).merge_attn_states

    def merge(outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        prefix, suffix = outputs
        output, lse = torch.empty_like(prefix), torch.empty_like(lses[0]).T
        forward(output, prefix, lses[0].T, suffix, lses[1].T, output_lse=lse)
        return output, lse.T

    return _target(
        "vllm-merge", MERGE, merge, vllm_version(), f"{NAMES}.triton_merge_attn_states", device,
        parts="two", dtypes=_dtypes(device),
    )  # fmt: skip


def sglang_merge_target(device: str) -> FunctionTarget:
    """`merge_state_triton`, which takes packed tensors."""
    forward = sglang_module("merge_state").merge_state_triton

    def merge(outputs: Tensor, lses: Tensor) -> Any:
        return forward(outputs[0], lses[0], outputs[1], lses[1])

    version, source = SGLANG.replace("-", " "), "sglang.kernels.ops.attention.merge_state"
    return _target(
        "sglang-merge", MERGE, merge, version, source, device, parts="two", strides="packed",
        # Its own kernels give a part without keys zeros (`extend_attention`, `no_kv`).
        dtypes=_dtypes(device), empty_part="finite",
    )  # fmt: skip


def vllm_write_target(device: str) -> FunctionTarget:
    """`triton_reshape_and_cache_flash`, which takes the strides of the values from the keys."""
    forward = vllm_module("triton_reshape_and_cache_flash", device).triton_reshape_and_cache_flash
    one = torch.ones(1, dtype=torch.float32, device=device)

    def write(
        key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor
    ) -> None:
        with _capability(device):
            forward(key, value, key_cache, value_cache, slot_mapping, "auto", one, one)

    # A cache in fp8 is refused where the device has no such type, and the interpreter truncates
    # float32 to bfloat16.
    casts = [] if device == "cpu" else ["half"]
    return _target(
        "vllm-write", CACHE_WRITE, write, vllm_version(),
        f"{NAMES}.triton_reshape_and_cache_flash", device, casts=casts, layouts_apart=False,
    )  # fmt: skip


def vllm_write_scaled_target(device: str) -> FunctionTarget:
    """`triton_reshape_and_cache_flash_per_token_head_quant`: int8, and fp8 on a GPU."""
    module = vllm_module("triton_reshape_and_cache_flash", device)
    forward = module.triton_reshape_and_cache_flash_per_token_head_quant

    def write(
        key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor,
        *, key_scales: Tensor, value_scales: Tensor,
    ) -> None:  # fmt: skip
        mode = module.KVQuantMode
        is_int8 = key_cache.dtype is torch.int8
        forward(key, value, key_cache, value_cache, key_scales, value_scales, slot_mapping,
                mode.INT8_PER_TOKEN_HEAD if is_int8 else mode.FP8_PER_TOKEN_HEAD)  # fmt: skip

    return _target(
        "vllm-write-scaled", CACHE_WRITE, write, vllm_version(),
        f"{NAMES}.triton_reshape_and_cache_flash", device, dtypes=_dtypes(device),
        scales="measured", fp8_types=["float8_e4m3fn"],
        # The interpreter loses the carry where fp8 rounds up to a power of two.
        casts=["int8"] if device == "cpu" else ["fp8", "int8"],
        # It counts the rows of the keys; vLLM's runner fills slots of padding with -1.
        extra_rows="absent",
    )  # fmt: skip


def _dtypes(device: str) -> list[str]:
    """The interpreter truncates a sum in float32 to bfloat16."""
    return ["float32", "float16", *([] if device == "cpu" else ["bfloat16"])]


@contextmanager
def _capability(device: str) -> Iterator[None]:
    """On a CPU, a GPU's: the function asks for it to choose its tile."""
    if device != "cpu":
        yield
        return
    asked = torch.cuda.get_device_capability
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    try:
        yield
    finally:
        torch.cuda.get_device_capability = asked


def _target(
    name: str, kind: Kind, function: Any, version: str, source: str, device: str, **rows: Any
) -> FunctionTarget:
    return FunctionTarget(
        name=name,
        function=function,
        declaration=FunctionDeclaration.from_mapping({"kind": kind.name, **rows}),
        kind=kind,
        version=version,
        source=source,
        device=device,
        uses_triton=True,
    )
