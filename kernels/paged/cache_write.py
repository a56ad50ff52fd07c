"""Writes new tokens into their slots of the paged cache: `reshape_and_cache`.

A slot is `block * block_size + place in the block`, as engines compute it; a negative slot is a
padding token and is skipped. With an fp8 cache the numbers are divided by their scale, cut to the
type's range (an overflow would become NaN) and rounded.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from poolproof.kernels.arguments import (
    DTYPES,
    INTEGERS,
    require,
    require_strides,
    require_tensor,
)
from poolproof.kernels.batch import FP8_DTYPES
from poolproof.kernels.paged.attention import INTERPRETED

__all__ = ["reshape_and_cache", "write_tokens"]


@triton.jit
def write_tokens(
    source,
    cache,
    slots,
    inverse_scale,
    largest,
    stride_token,
    stride_token_head,
    stride_block,
    stride_slot,
    stride_head,
    num_heads,
    HEADS_PADDED: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SCALED: tl.constexpr,
):
    """One program: all heads of one token, keys or values."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    heads = tl.arange(0, HEADS_PADDED)
    elements = tl.arange(0, HEAD_PADDED)
    mask = (heads < num_heads)[:, None] & (elements < HEAD_SIZE)[None, :]
    numbers = tl.load(
        source + token * stride_token + heads[:, None] * stride_token_head + elements[None, :],
        mask=mask,
        other=0.0,
    )
    if SCALED:
        numbers = numbers.to(tl.float32) * inverse_scale
        numbers = tl.minimum(tl.maximum(numbers, -largest), largest)
    place = slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE * stride_slot
    addresses = cache + place + heads[:, None] * stride_head + elements[None, :]
    tl.store(addresses, numbers.to(cache.dtype.element_ty), mask=mask)


def reshape_and_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    *,
    key_scale: float = 1.0,
    value_scale: float = 1.0,
    values_checked: bool = False,
) -> None:
    """Write each token's keys and values into its slot; nothing else of the cache changes.

    Args:
        key: (num_tokens, num_kv_heads, head_size).
        value: the same.
        key_cache: (num_blocks, block_size, num_kv_heads, head_size), of key's type or fp8.
        value_cache: the same.
        slots: (num_tokens,) int64 or int32, negative for padding; no slot twice.
        key_scale: what a number of an fp8 cache is multiplied by when it is read.
        value_scale: the same.
        values_checked: slots are known to be right and are not read back from the device.

    Raises:
        KernelArgumentError: before anything is launched.
    """
    _check(key, value, key_cache, value_cache, slots)
    for name, scale in (("key_scale", key_scale), ("value_scale", value_scale)):
        require(scale > 0, name, scale, "above 0")
        is_fp8 = key_cache.dtype in FP8_DTYPES
        require(is_fp8 or scale == 1, name, scale, f"1 with a cache of {key_cache.dtype}")
    if not values_checked:
        _check_slots(slots, key_cache.shape[0] * key_cache.shape[1])
    for source, cache, scale in ((key, key_cache, key_scale), (value, value_cache, value_scale)):
        _write(source, cache, slots, scale)


def _write(source: Tensor, cache: Tensor, slots: Tensor, scale: float) -> None:
    if not source.shape[0]:
        return
    scaled = cache.dtype in FP8_DTYPES
    target = cache
    if scaled and INTERPRETED:
        # The interpreter's cast to fp8 truncates: it writes float32, torch rounds.
        target = torch.empty((source.shape[0], *cache.shape[2:]), dtype=torch.float32)
        target = target[:, None]
        block_size, places = 1, torch.where(slots < 0, -1, torch.arange(len(slots)))
    else:
        block_size, places = cache.shape[1], slots
    write_tokens[(source.shape[0],)](
        source, target, places, 1.0 / scale, torch.finfo(cache.dtype).max,
        *source.stride()[:2], *target.stride()[:3], source.shape[1],
        HEADS_PADDED=triton.next_power_of_2(source.shape[1]), HEAD_SIZE=source.shape[2],
        HEAD_PADDED=triton.next_power_of_2(source.shape[2]), BLOCK_SIZE=block_size, SCALED=scaled,
    )  # fmt: skip
    if target is not cache:
        kept = slots >= 0
        blocks = torch.div(slots[kept], cache.shape[1], rounding_mode="floor")
        cache[blocks.long(), (slots[kept] % cache.shape[1]).long()] = target[kept, 0].to(
            cache.dtype
        )


def _check(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> None:
    tokens = ("num_tokens", "num_kv_heads", "head_size")
    blocks = ("num_blocks", "block_size", "num_kv_heads", "head_size")
    require_tensor("key", key, tokens, DTYPES)
    require_tensor("value", value, tokens, [key.dtype])
    require_tensor("key_cache", key_cache, blocks, [key.dtype, *FP8_DTYPES])
    require_tensor("value_cache", value_cache, blocks, [key_cache.dtype])
    require_tensor("slots", slots, ("num_tokens",), INTEGERS)
    named = {"key": key, "value": value, "key_cache": key_cache, "value_cache": value_cache}
    for name, tensor in named.items():
        require_strides(name, tensor)
        require(
            tensor.shape[-2:] == key.shape[-2:],
            name,
            f"of {tensor.shape[-2]} heads of size {tensor.shape[-1]}",
            f"of key's {key.shape[-2]} heads of size {key.shape[-1]}",
        )
    for name, tensor in (*named.items(), ("slots", slots)):
        require(tensor.device == key.device, name, f"on {tensor.device}", f"on {key.device}")
    for name, tensor in (("value", value), ("slots", slots)):
        count = tensor.shape[0]
        require(count == key.shape[0], name, f"of {count} tokens", f"of key's {key.shape[0]}")
    shape = tuple(value_cache.shape)
    wanted = tuple(key_cache.shape)
    require(shape == wanted, "value_cache", f"of shape {shape}", f"of key_cache's shape {wanted}")


def _check_slots(slots: Tensor, num_slots: int) -> None:
    seen: set[int] = set()
    for index, slot in enumerate(slots.tolist()):
        if slot < 0:
            continue
        require(slot < num_slots, f"slots[{index}]", slot, f"below {num_slots}, or negative")
        require(slot not in seen, f"slots[{index}]", slot, "in the list only once")
        seen.add(slot)
