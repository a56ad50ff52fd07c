"""A paged-attention target: a function, what it declares, how it is called; and our own two.

The function takes the tensors of `PagedBatch` in their order and the fields of `AttentionOptions`
as keywords but `quantisation`, those of `SIGHT_KEYWORDS` only with their feature; also `out` if it
declares that, and `query_scale`, `out_dtype`, `key_zeros` and `value_zeros` if it declares queries
in fp8 or zero points. It returns the output. Its attribute `declaration`, a mapping, holds its
declaration; see `declaration.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.declaration import FEATURES, SIGHTS, Declaration
from poolproof.kernels.oracle import Expected, Rounded, dense_attention

if TYPE_CHECKING:
    from poolproof.kernels.serving.manager_engine import ServedManager

__all__ = [
    "MLA_DECLARATION",
    "Attention",
    "BadOutputError",
    "KernelTarget",
    "Storage",
    "gather_target",
    "paged_mla_target",
    "paged_target",
    "returning_lse",
]

Attention = Callable[..., Any]


class BadOutputError(Exception):
    """What a target returned is not an output of attention; the message says why."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The kernels that fill a cache; signatures as in `paged.cache_write`, `paged.block_copy`."""

    write: Callable[..., None]
    copy: Callable[..., None]
    swap: Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTarget:
    """One target. `uses_triton` says that its loads and stores can be watched.

    `make_pool` builds a native block pool of so many blocks, for whole requests over a real
    allocator; `managers` are those under which requests are served.
    """

    name: str
    attend: Attention
    declaration: Declaration
    version: str = ""
    source: str = ""
    device: str = "cpu"
    uses_triton: bool = False
    storage: Storage | None = None
    make_pool: Callable[[int], Any] | None = None
    managers: tuple[ServedManager, ...] = ()

    @property
    def kind(self) -> None:
        """Attention has no other kind; see `kind.py`."""
        return None

    def expected(self, batch: PagedBatch) -> Expected:
        """Dense attention, within the bound of a target that rounds what this one does."""
        declared = self.declaration
        rounded = Rounded(
            scores=declared.scores == "query",
            dequantised=declared.dequantised == "query",
            weights=declared.weights == "cache",
        )
        return dense_attention(batch, rounded=rounded)

    def __call__(self, batch: PagedBatch, out: Tensor | None = None) -> Tensor:
        """The output for a batch. Raises BadOutputError, and whatever the target raises."""
        return self.with_lse(batch, out)[0]

    def with_lse(
        self, batch: PagedBatch, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The output, and its log-sum-exps, (num_tokens, num_heads), where they are declared.

        Raises BadOutputError, and whatever the target raises.
        """
        keywords: dict[str, Any] = batch.options.keywords(self.declaration.features)
        keywords |= self._of_quantisation(batch)
        if self.declaration.out:
            keywords["out"] = batch.new_out() if out is None else out
        with warnings.catch_warnings():
            # numpy, in the interpreter; of NaN and overflow a GPU says nothing.
            warnings.simplefilter("ignore", RuntimeWarning)
            result = self.attend(
                batch.query,
                batch.key_cache,
                batch.value_cache,
                batch.block_tables,
                batch.kv_lengths,
                batch.query_lengths,
                **keywords,
            )
        lse = None
        if self.declaration.lse != "absent":
            result, lse = _pair(result, batch)
        if self.declaration.out and result is None:
            result = keywords["out"]
        if not isinstance(result, Tensor):
            raise BadOutputError(f"returned a {type(result).__name__}, not a tensor")
        if result.shape != batch.out_shape:
            of_values = f" and values of {batch.value_size} elements"
            raise BadOutputError(
                f"returned shape {tuple(result.shape)} for a query of {tuple(batch.query.shape)}"
                + (of_values if batch.value_size != batch.query.shape[2] else "")
            )
        if result.dtype != batch.out_dtype:
            asked = (
                "" if batch.out_dtype == batch.query.dtype else f" and out_dtype={batch.out_dtype}"
            )
            raise BadOutputError(
                f"returned {result.dtype} for a query of {batch.query.dtype}{asked}"
            )
        return result, lse

    def _of_quantisation(self, batch: PagedBatch) -> dict[str, Any]:
        """The keywords that only those get who declare what they are for."""
        declared, quantisation = self.declaration, batch.options.quantisation
        keywords: dict[str, Any] = {}
        if "fp8_query" in declared.features:
            keywords |= {"query_scale": quantisation.query_scale, "out_dtype": batch.out_dtype}
        if "int4" in declared.features and declared.zero_points != "absent":
            keywords |= {
                "key_zeros": quantisation.key_zeros, "value_zeros": quantisation.value_zeros,
            }  # fmt: skip
        return keywords


def _pair(result: Any, batch: PagedBatch) -> tuple[Any, Tensor]:
    """Output and log-sum-exps. Raises BadOutputError."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise BadOutputError(f"returned a {type(result).__name__}, not output and log-sum-exp")
    output, lse = result
    if not isinstance(lse, Tensor) or lse.shape != batch.query.shape[:2]:
        shape = tuple(lse.shape) if isinstance(lse, Tensor) else type(lse).__name__
        raise BadOutputError(
            f"returned log-sum-exps of {shape} for {tuple(batch.query.shape[:2])} tokens and heads"
        )
    if lse.dtype != torch.float32:
        raise BadOutputError(f"returned log-sum-exps in {lse.dtype}, not in float32")
    return output, lse


def paged_target(device: str) -> KernelTarget:
    """Our Triton kernels; interpreted on a CPU, compiled on a GPU."""
    import triton

    from poolproof.kernels.paged.attention import paged_attention
    from poolproof.kernels.paged.block_copy import copy_blocks, swap_blocks
    from poolproof.kernels.paged.cache_write import reshape_and_cache

    return KernelTarget(
        name="paged",
        attend=returning_lse(paged_attention),
        declaration=Declaration(out=True, lse="e"),
        version=f"triton {triton.__version__}",
        source="poolproof.kernels.paged",
        device=device,
        uses_triton=True,
        storage=Storage(reshape_and_cache, copy_blocks, swap_blocks),
    )


MLA_DECLARATION = Declaration(
    # Rotary embeddings say where a token is; slopes would say it a second time.
    features=("sliding_window", "softcap", "sinks", "non_causal", "fp8"),
    head_sizes=(24, 40, 80, 576),
    value_sizes=(16, 32, 64, 512),
    latent=True,
    lse="e",
    out=True,
)
"""What our kernels over latent keys support; they promise everything."""


def paged_mla_target(device: str) -> KernelTarget:
    """Our Triton kernels over latent keys; interpreted on a CPU, compiled on a GPU."""
    import triton

    from poolproof.kernels.paged.latent import paged_latent_attention

    return KernelTarget(
        name="paged-mla",
        attend=returning_lse(paged_latent_attention),
        declaration=MLA_DECLARATION,
        version=f"triton {triton.__version__}",
        source="poolproof.kernels.paged.latent",
        device=device,
        uses_triton=True,
    )


def returning_lse(attend: Attention) -> Attention:
    """Attention that fills in log-sum-exps, as one that returns them beside its output."""

    def attendreturning_lse(
        query: Tensor, *tensors: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor]:
        lse = query.new_empty(query.shape[:2], dtype=torch.float32)
        return attend(query, *tensors, lse=lse, **options), lse

    return attendreturning_lse


def gather_target(device: str) -> KernelTarget:
    """The torch reference: one sequence after another, so that its bits depend on no batch."""
    import torch

    from poolproof.kernels.gather import gather_attention

    return KernelTarget(
        name="gather",
        attend=gather_attention,
        declaration=Declaration(out=True, features=(*FEATURES, *SIGHTS)),
        version=f"torch {torch.__version__}",
        source="poolproof.kernels.gather",
        device=device,
    )
