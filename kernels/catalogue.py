"""The built-in kernel targets by name, and what each needs; nothing is imported to list them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import engine_folder, how_to_get

if TYPE_CHECKING:
    from poolproof.kernels.functions.target import FunctionTarget
    from poolproof.kernels.target import KernelTarget

__all__ = ["BUILT_INS", "SGLANG", "BuiltIn"]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A name, the packages that it needs, and the function of which module makes it.

    `sources` is an engine that `make engine-sources` fetches, in whose folder the kernel stands.
    """

    what: str
    packages: tuple[str, ...]
    module: str
    maker: str
    is_attention: bool = True
    sources: str = ""

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed, and sources that are not fetched."""
        gone = [name for name in self.packages if importlib.util.find_spec(name) is None]
        return [*gone, *([self.sources] if self._why_no_sources() else [])]

    def make(self, device: str) -> KernelTarget | FunctionTarget:
        """The target. Raises TargetError where a package or an engine's folder is missing."""
        gone = [name for name in self.missing if name != self.sources]
        if gone:
            raise TargetError(
                f"{self.what} needs {' and '.join(gone)}, which is not installed here"
            )
        why = self._why_no_sources()
        if why:
            raise TargetError(why)
        maker: Callable[[str], KernelTarget | FunctionTarget] = getattr(
            importlib.import_module(self.module), self.maker
        )
        return maker(device)

    def _why_no_sources(self) -> str:
        """Why the engine's folder cannot be used, and what to do; empty if it can."""
        try:
            if self.sources and not (engine_folder(self.sources) / _SGLANG_KERNELS).is_dir():
                return f"{self.sources} lacks {_SGLANG_KERNELS}; {how_to_get(self.sources)}"
        except TargetError as error:
            return str(error)
        return ""


_FUNCTIONS = "poolproof.kernels.functions.ours"
SGLANG = "sglang-0.5.23"
"""Name and version, which is also the name of its folder."""

_SGLANG_KERNELS = "sglang/kernels/ops/attention"
_OURS = "poolproof.kernels.target"
_PEERS = "poolproof.kernels.peers"
BUILT_INS: dict[str, BuiltIn] = {
    "paged": BuiltIn("our Triton kernels", ("torch", "triton"), _OURS, "paged_target"),
    "paged-mla": BuiltIn(
        "our Triton kernels of MLA over latent keys", ("torch", "triton"), _OURS, "paged_mla_target"
    ),
    "paged-write": BuiltIn(
        "our cache write", ("torch", "triton"), _FUNCTIONS, "write_target", False
    ),
    "paged-copy": BuiltIn("our block copy", ("torch", "triton"), _FUNCTIONS, "copy_target", False),
    "paged-swap": BuiltIn(
        "our swap of blocks", ("torch", "triton"), _FUNCTIONS, "swap_target", False
    ),
    "gather": BuiltIn("the torch reference", ("torch",), _OURS, "gather_target"),
    "gather-mla": BuiltIn(
        "the torch reference of MLA over latent keys",
        ("torch",),
        "poolproof.kernels.torch_mla",
        "mla_target",
    ),
    "gather-quantised": BuiltIn(
        "the torch reference of attention over quantised caches",
        ("torch",),
        "poolproof.kernels.torch_quantised",
        "quantised_target",
    ),
    "torch-sdpa": BuiltIn(
        "torch's scaled_dot_product_attention over gathered pages",
        ("torch",),
        f"{_PEERS}.torch_sdpa",
        "sdpa_target",
    ),
    "torch-flex": BuiltIn(
        "torch's flex_attention over its experimental PagedAttention",
        ("torch",),
        f"{_PEERS}.torch_flex",
        "flex_target",
    ),
    "torch-flex-reused": BuiltIn(
        "the same with its own page table, after a request was erased",
        ("torch",),
        f"{_PEERS}.torch_flex_reused",
        "flex_reused_target",
    ),
    "vllm-cpu": BuiltIn(
        "vLLM's C++ attention for CPUs", ("torch", "vllm"), f"{_PEERS}.vllm_cpu", "vllm_cpu_target"
    ),
    "openvino": BuiltIn(
        "OpenVINO's PagedAttention on a CPU",
        ("torch", "openvino"),
        f"{_PEERS}.openvino_cpu",
        "openvino_target",
    ),
    "flash-attn": BuiltIn(
        "FlashAttention with a paged cache, on a GPU",
        ("torch", "flash_attn"),
        f"{_PEERS}.flash_attention",
        "flash_attention_target",
    ),
    "flashinfer": BuiltIn(
        "FlashInfer's paged wrappers, on a GPU",
        ("torch", "flashinfer"),
        f"{_PEERS}.flashinfer_gpu",
        "flashinfer_target",
    ),
    "vllm-triton": BuiltIn(
        "vLLM's unified attention in Triton",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.vllm_triton",
        "vllm_triton_target",
    ),
    "vllm-triton-3d": BuiltIn(
        "the same in segments of keys, for decode",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.vllm_triton",
        "vllm_triton_3d_target",
    ),
    "vllm-prefix": BuiltIn(
        "vLLM's attention of new tokens behind cached ones, in Triton",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.vllm_prefix",
        "vllm_prefix_target",
    ),
    "vllm-prefix-cached": BuiltIn(
        "the same where new tokens are in the cache as well",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.vllm_prefix",
        "vllm_prefix_cached_target",
    ),
    "vllm-decode": BuiltIn(
        "vLLM's decode in Triton",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.vllm_decode",
        "vllm_decode_target",
    ),
    "vllm-mla": BuiltIn(
        "the same over latent keys",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.vllm_decode",
        "vllm_mla_target",
    ),
    "vllm-merge": BuiltIn(
        "vLLM's merge of two parts in Triton",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.triton_functions",
        "vllm_merge_target",
        is_attention=False,
    ),
    "vllm-write": BuiltIn(
        "vLLM's cache write in Triton",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.triton_functions",
        "vllm_write_target",
        is_attention=False,
    ),
    "vllm-write-scaled": BuiltIn(
        "the same that measures the scale of each token and head",
        ("torch", "triton", "vllm"),
        f"{_PEERS}.triton_functions",
        "vllm_write_scaled_target",
        is_attention=False,
    ),
    "sglang-decode": BuiltIn(
        "SGLang's decode in Triton",
        ("torch", "triton"),
        f"{_PEERS}.sglang_triton",
        "sglang_decode_target",
        sources=SGLANG,
    ),
    "sglang-mla": BuiltIn(
        "the same over latent keys",
        ("torch", "triton"),
        f"{_PEERS}.sglang_triton",
        "sglang_mla_target",
        sources=SGLANG,
    ),
    "sglang-extend": BuiltIn(
        "SGLang's extend in Triton",
        ("torch", "triton"),
        f"{_PEERS}.sglang_triton",
        "sglang_extend_target",
        sources=SGLANG,
    ),
    "sglang-unified": BuiltIn(
        "SGLang's extend of deterministic inference, in Triton",
        ("torch", "triton"),
        f"{_PEERS}.sglang_triton",
        "sglang_unified_target",
        sources=SGLANG,
    ),
    "sglang-merge": BuiltIn(
        "SGLang's merge of two parts in Triton",
        ("torch", "triton"),
        f"{_PEERS}.triton_functions",
        "sglang_merge_target",
        is_attention=False,
        sources=SGLANG,
    ),
    "transformers-eager": BuiltIn(
        "Transformers' paged attention for continuous batching, eager",
        ("torch", "transformers"),
        f"{_PEERS}.transformers_paged",
        "transformers_eager_target",
    ),
    "transformers-sdpa": BuiltIn(
        "the same over scaled_dot_product_attention",
        ("torch", "transformers"),
        f"{_PEERS}.transformers_paged",
        "transformers_sdpa_target",
    ),
}
