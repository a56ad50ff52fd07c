# ruff: noqa: ANN001, ANN201, ARG002, PLR0917 -- the signatures that an outsider writes
"""Clones of published shapes that the adapters do not fit: not a test itself.

Each differs in one thing from a toy that holds. None has a bug.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any


def _beside(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_nano, _pool, _v0 = _beside("toy_nano"), _beside("toy_pool"), _beside("toy_v0")


class AsksForMore(_nano.LateNano):
    """`can_allocate` wants to know how many tokens are computed now."""

    def can_allocate(self, seq, num_tokens):
        return super().can_allocate(seq)


class AnswersAPair(_nano.LateNano):
    """`can_allocate` answers a pair."""

    def can_allocate(self, seq):
        return True, super().can_allocate(seq)


class AllocatesByItself(_nano.LateNano):
    """`can_allocate` answers a number, which `allocate` does not want."""

    def allocate(self, seq):
        return super().allocate(seq, self.can_allocate(seq))


class ReadsMore(_nano.LateNano):
    """Reads an attribute of a sequence that no published one has."""

    def deallocate(self, seq):
        if seq.tenant is not None:
            self.tenants.discard(seq.tenant)
        super().deallocate(seq)


class PinsThirdBlocks(_nano.LateNano):
    """The same, where a few calls do not show it: only a long sequence is asked."""

    def deallocate(self, seq):
        if len(seq.block_table) > 3 and seq.tenant is not None:
            self.tenants.discard(seq.tenant)
        super().deallocate(seq)


class NamesItsPages(_pool.BlockPool):
    """Answers ids where blocks are published."""

    def get_new_blocks(self, num_blocks):
        return [block.block_id for block in super().get_new_blocks(num_blocks)]


class FreesForSomebody(_pool.BlockPool):
    """`free_blocks` wants to know whose the blocks are."""

    def free_blocks(self, ordered_blocks, owner):
        super().free_blocks(ordered_blocks)


class ResetsDevices(_pool.BlockPool):
    """`reset_prefix_cache` wants a device: of the shape this is optional."""

    def reset_prefix_cache(self, device):
        return super().reset_prefix_cache()


class ReadsThePriority(_pool.BlockPool):
    """Reads an attribute of a request that no published one has."""

    def cache_full_blocks(
        self, request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id
    ):
        if request.priority_class:
            return
        super().cache_full_blocks(
            request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id
        )


class InsideAlone(_pool.BlockPool):
    """`cache_partial_block` forbids a prefix that ends with its block, as vLLM 0.28 does."""

    def cache_partial_block(self, request, block, num_tokens, kv_cache_group_id, block_size):
        assert num_tokens % block_size != 0
        raise NotImplementedError


class FreesTwoThings(_v0.ToySpaceManager):
    """`free` wants a reason."""

    def free(self, seq, reason):
        super().free(seq)


class ForksOnDevices(_v0.ToySpaceManager):
    """`fork` wants a device: of the shape this is optional."""

    def fork(self, parent_seq, child_seq, device):
        raise NotImplementedError
