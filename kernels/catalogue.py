"""The built-in kernel targets by name, and what each needs; nothing is imported to list them."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolproof.contract.target import TargetError

if TYPE_CHECKING:
    from poolproof.kernels.functions.target import FunctionTarget
    from poolproof.kernels.target import KernelTarget

__all__ = ["BUILT_INS", "BuiltIn"]

_FUNCTIONS = "poolproof.kernels.functions.ours"


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A name, the packages that it needs, and the function of which module makes it."""

    what: str
    packages: tuple[str, ...]
    module: str
    maker: str

    @property
    def missing(self) -> list[str]:
        """Packages that are not installed."""
        return [name for name in self.packages if importlib.util.find_spec(name) is None]

    @property
    def is_attention(self) -> bool:
        """Whether it is attention, and no function beside it."""
        return self.module != _FUNCTIONS

    def make(self, device: str) -> KernelTarget | FunctionTarget:
        """The target. Raises TargetError where a package is missing."""
        if self.missing:
            raise TargetError(
                f"{self.what} needs {' and '.join(self.missing)}, which is not installed here"
            )
        maker: Callable[[str], KernelTarget | FunctionTarget] = getattr(
            importlib.import_module(self.module), self.maker
        )
        return maker(device)


_OURS = "poolproof.kernels.target"
_PEERS = "poolproof.kernels.peers"
BUILT_INS: dict[str, BuiltIn] = {
    "paged": BuiltIn("our Triton kernels", ("torch", "triton"), _OURS, "paged_target"),
    "paged-mla": BuiltIn(
        "our Triton kernels of MLA over latent keys", ("torch", "triton"), _OURS, "paged_mla_target"
    ),
    "paged-write": BuiltIn("our cache write", ("torch", "triton"), _FUNCTIONS, "write_target"),
    "paged-copy": BuiltIn("our block copy", ("torch", "triton"), _FUNCTIONS, "copy_target"),
    "paged-swap": BuiltIn("our swap of blocks", ("torch", "triton"), _FUNCTIONS, "swap_target"),
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
