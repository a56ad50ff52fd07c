"""Builds a scheduler of vLLM V1 for a model with recurrent layers, and the worker below it.

The model is described by a few numbers as that of `vllm_engine_parts.py` is, with one layer of
attention and one with a recurrence (Qwen3-Next's description, which both metadata builders take).
Blocks of states are as long as those of attention; vLLM makes them longer on a device, to have
pages of one size, which decides nothing here.
"""

from __future__ import annotations

import copy
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

from poolproof.targets.installed_vllm import engine_module, part_of
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import BLOCK_SIZE, LONGEST_REQUEST
from poolproof.targets.vllm_hybrid_setups import HybridSetup
from poolproof.targets.vllm_hybrid_states import CONV_WIDTH
from poolproof.targets.vllm_hybrid_worker import HybridWorker, prepare_workers
from poolproof.targets.vllm_second_worker import (
    SecondWorker,
    prepare_second_workers,
    second_runner_chosen,
)

__all__ = ["HybridParts"]

_MODEL = {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 64,
    "max_position_embeddings": LONGEST_REQUEST,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_conv_kernel_dim": CONV_WIDTH,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "mamba_chunk_size": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_BACKENDS = {
    "gdn": ("vllm.v1.attention.backends.gdn_attn", "GDNAttentionBackend", "GDN_ATTN"),
    "mamba2": ("vllm.v1.attention.backends.mamba2_attn", "Mamba2AttentionBackend", "MAMBA2"),
}


class HybridParts(SchedulerParts):
    """What a set-up with recurrent layers needs of vLLM: the same, and a worker.

    Raises TargetError where vLLM is not installed, or is a release that has other parts.
    """

    setup: HybridSetup

    def __init__(self, setup: HybridSetup) -> None:
        super().__init__(setup)
        module, name, _ = _BACKENDS[setup.layers]
        self._backend = part_of(engine_module(module), name)
        utilities = engine_module("vllm.v1.core.kv_cache_utils")
        self._sizes = part_of(utilities, "resolve_kv_cache_block_sizes")
        if setup.is_second_runner:
            prepare_second_workers()
        else:
            prepare_workers()

    @cached_property
    def _config(self) -> Any:
        with self._runner_chosen():
            return super()._config

    def refused(self) -> str | None:
        """What vLLM's own checks say against the set-up's configuration, if anything."""
        try:
            _ = self._config
        except ValueError as error:
            return " ".join(str(error).split())
        return None

    def _runner_chosen(self) -> AbstractContextManager[None]:
        return second_runner_chosen() if self.setup.is_second_runner else nullcontext()

    def model(self) -> dict[str, Any]:
        """A description with a recurrent layer."""
        return _MODEL

    def configuration(self, num_blocks: int, *, enable_caching: bool) -> Any:
        """As a server has it once it knows its layers: what caches states aligns them to blocks."""
        config = super().configuration(num_blocks, enable_caching=enable_caching)
        cache = config.cache_config
        cache.block_size = BLOCK_SIZE
        cache.mamba_cache_mode = "align" if enable_caching else "none"
        longest = config.model_config.max_model_len
        cache.mamba_block_size = BLOCK_SIZE if enable_caching else longest
        if self.setup.draft_tokens and self.setup.drops_block:
            config.speculative_config = copy.copy(config.speculative_config)
            for name in ("use_eagle", "use_eagle_block_drop"):
                object.__setattr__(config.speculative_config, name, _yes)
        return config

    def groups_of(self, config: Any) -> list[Any]:
        """Attention in group 0, states in the others."""
        return [
            self.interface.KVCacheGroupSpec(
                [f"layer.{number}"],
                self._state_spec(config) if group.is_state else self._spec(group),
            )
            for number, group in enumerate(self.setup.groups)
        ]

    def _state_spec(self, config: Any) -> Any:
        torch = engine_module("torch")
        drafts = self.setup.draft_tokens
        return self.interface.MambaSpec(
            block_size=config.cache_config.mamba_block_size,
            shapes=((CONV_WIDTH - 1 + drafts, 1), (1,)),
            dtypes=(torch.int64, torch.int64),
            mamba_type=self._mamba_type(),
            mamba_cache_mode=config.cache_config.mamba_cache_mode,
            num_speculative_blocks=drafts,
            page_size_padded=self._spec(self.setup.groups[0]).page_size_bytes,
        )

    def _mamba_type(self) -> Any:
        registry = engine_module("vllm.v1.attention.backends.registry")
        types = part_of(registry, "MambaAttentionBackendEnum")
        return types[_BACKENDS[self.setup.layers][2]]

    def make_pair(
        self, num_blocks: int, *, enable_caching: bool
    ) -> tuple[Any, HybridWorker | SecondWorker]:
        """A scheduler and its worker. What their constructors raise passes through."""
        config = self.configuration(num_blocks, enable_caching=enable_caching)
        cache = self.cache_of(config)
        sizes = self._sizes(cache, config)
        with self._runner_chosen():
            worker = self._worker(config, cache)
            return self.scheduler_of(config, cache, *sizes), worker

    def _worker(self, config: Any, cache: Any) -> HybridWorker | SecondWorker:
        if self.setup.is_second_runner:
            return SecondWorker(config, cache, self._backend)
        return HybridWorker(config, cache, self._backend, host_lags=self.setup.host_lags)


def _yes() -> bool:
    return True
