"""OpenVINO's PagedAttention operation on its CPU plugin, through `_PagedAttentionExtension`.

The operation writes the newest tokens into the cache itself: they are taken out of the case's
cache and handed in as key and value. A model of one operation is compiled for each set of heads.
The 28 inputs are those of OpenVINO 2026; the last 14 are empty but for the sinks.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor

from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.target import KernelTarget

__all__ = ["openvino_target"]

BLOCK_SIZE = 32


@functools.cache
def _compiled(num_heads: int, num_kv_heads: int, head_size: int) -> Any:
    """One operation, compiled; float32 throughout."""
    import openvino as ov
    from openvino import opset13
    from openvino.op import _PagedAttentionExtension

    def parameter(shape: list[int], kind: Any) -> Any:
        return opset13.parameter(ov.PartialShape(shape), kind)

    def empty(kind: Any, *shape: int) -> Any:
        return opset13.constant(np.zeros(shape, dtype=kind))

    cache = [-1, num_kv_heads, BLOCK_SIZE, head_size]
    width = num_kv_heads * head_size
    rows = [
        parameter([-1, num_heads * head_size], ov.Type.f32),
        parameter([-1, width], ov.Type.f32),
        parameter([-1, width], ov.Type.f32),
        parameter(cache, ov.Type.f32),
        parameter(cache, ov.Type.f32),
        *(parameter([-1], ov.Type.i32) for _ in range(4)),
        parameter([], ov.Type.f32),
        parameter([], ov.Type.i32),
        parameter([-1], ov.Type.f32),
        parameter([], ov.Type.i32),
        parameter([-1], ov.Type.i32),
    ]
    rest = [
        empty(np.int32, 0),
        empty(np.int32, 0),
        empty(np.float32, 0),
        empty(np.float32, 0),
        empty(np.int32),
        empty(np.int32),
    ]
    sinks = parameter([-1, -1, 1, 1], ov.Type.f32)
    tail = [
        empty(np.int32),
        *(empty(np.int32, 0) for _ in range(4)),
        empty(np.uint8, 0),
        empty(np.int32, 0),
    ]
    operation = _PagedAttentionExtension([node.output(0) for node in (*rows, *rest, sinks, *tail)])
    sizes = {"num_k_heads": num_kv_heads, "k_head_size": head_size,
             "num_v_heads": num_kv_heads, "v_head_size": head_size}  # fmt: skip
    for name, value in sizes.items():
        operation.get_rt_info()[name] = value
    model = ov.Model([operation.output(0)], [*rows, sinks])
    settings = {"KV_CACHE_PRECISION": "f32", "INFERENCE_PRECISION_HINT": "f32",
                "INFERENCE_NUM_THREADS": 1}  # fmt: skip
    return ov.Core().compile_model(model, "CPU", settings).create_infer_request()


def _attend(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    kv_lengths: Tensor,
    query_lengths: Tensor,
    **options: Any,
) -> Tensor:
    import openvino as ov

    batch = PagedBatch(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        block_tables=block_tables,
        kv_lengths=kv_lengths,
        query_lengths=query_lengths,
        options=AttentionOptions(**options),
    )
    num_heads, head_size = query.shape[1:]
    request = _compiled(num_heads, batch.num_kv_heads, head_size)
    newest: list[list[Tensor]] = [[], []]
    blocks: list[int] = []
    begins = [0]
    for sequence in batch.sequences():
        own = batch.blocks_of(sequence)
        blocks += own
        begins.append(len(blocks))
        positions = torch.arange(sequence.first_position, sequence.kv_length)
        places = torch.tensor(own)[positions // BLOCK_SIZE], positions % BLOCK_SIZE
        for rows, cache in zip(newest, (key_cache, value_cache), strict=True):
            rows.append(cache[places].flatten(1))
    starts = torch.cumsum(query_lengths, 0).tolist()
    slopes, sinks = options["alibi_slopes"], options["sinks"]
    inputs = [
        query.flatten(1).contiguous(),
        *(torch.cat(rows).contiguous() for rows in newest),
        # The operation writes into these.
        key_cache.transpose(1, 2).contiguous().clone(),
        value_cache.transpose(1, 2).contiguous().clone(),
        (kv_lengths - query_lengths).int(),
        torch.tensor([0, *starts], dtype=torch.int32),
        torch.tensor(blocks, dtype=torch.int32),
        torch.tensor(begins, dtype=torch.int32),
        torch.tensor(options["scale"], dtype=torch.float32),
        torch.tensor(options["sliding_window"] or 0, dtype=torch.int32),
        torch.zeros(0) if slopes is None else slopes,
        kv_lengths.max().int(),
        # Scores are not asked for; with another length than the batch's nothing at all is computed.
        torch.zeros(len(kv_lengths), dtype=torch.int32),
        torch.zeros(0, 0, 1, 1) if sinks is None else sinks.reshape(1, -1, 1, 1),
    ]
    for index, tensor in enumerate(inputs):
        request.set_input_tensor(index, ov.Tensor(tensor.numpy()))
    request.infer()
    output = torch.from_numpy(request.get_output_tensor(0).data.copy())
    return output.reshape(query.shape)


def openvino_target(device: str) -> KernelTarget:
    """The target; its block size is fixed."""
    import openvino as ov

    return KernelTarget(
        name="openvino",
        attend=_attend,
        declaration=Declaration(
            features=("sliding_window", "alibi", "sinks"),
            dtypes=("float32",),
            layouts=("slots-heads",),
            head_sizes=(16, 32, 64),
            block_sizes=(BLOCK_SIZE,),
            cache_writes="newest",
            cache_reads="copied",
            empty_row="undefined",
        ),
        version=f"openvino {ov.__version__}",
        source="openvino.op._PagedAttentionExtension",
        device=device,
    )
