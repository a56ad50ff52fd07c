"""A function of one's own that writes a paged cache, to be certified: one right, one not.

    poolproof kernels examples/cache_write.py:write
    poolproof kernels examples/cache_write.py:padded_write

The second lets padding go where -1 leads: to the last slot of the cache.
"""

from __future__ import annotations

import torch


def write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """Store each token in its slot; negative slots are padding."""
    tokens = (slot_mapping >= 0).nonzero().flatten()
    _store(key, key_cache, slot_mapping[tokens], tokens)
    _store(value, value_cache, slot_mapping[tokens], tokens)


def padded_write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """The same without a look at what is padding."""
    tokens = torch.arange(len(slot_mapping))
    _store(key, key_cache, slot_mapping, tokens)
    _store(value, value_cache, slot_mapping, tokens)


# What is not named here is promised: `poolproof kernels` prints it as assumed.
write.declaration = {  # type: ignore[attr-defined] # read by Poolproof
    "kind": "cache-write",
    "casts": ["half"],
}
padded_write.declaration = write.declaration  # type: ignore[attr-defined] # the same


def _store(
    rows: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor, tokens: torch.Tensor
) -> None:
    block_size = cache.shape[1]
    slots = slots.long()
    cache[slots // block_size, slots % block_size] = rows[tokens].to(cache.dtype)
