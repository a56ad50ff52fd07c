"""A paged-attention target: a function, what it declares, how it is called; and our own two.

The function takes the tensors of `PagedBatch` in their order and the fields of `AttentionOptions`
as keywords, those of `SIGHT_KEYWORDS` only with their feature, also `out` if it declares that; it
returns the output. Its attribute `declaration`, a
mapping, holds its declaration; see `declaration.py`.
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
from poolproof.kernels.oracle import Expected, dense_attention

if TYPE_CHECKING:
    from poolproof.kernels.serving.manager_engine import ServedManager

__all__ = [
    "Attention",
    "BadOutputError",
    "KernelTarget",
    "Storage",
    "gather_target",
    "paged_target",
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
        """Dense attention, within the bound of a target that keeps scores as this one does."""
        return dense_attention(batch, rounded_scores=self.declaration.scores == "query")

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
        if self.declaration.out:
            keywords["out"] = batch.query.new_empty(batch.out_shape) if out is None else out
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
        if result.dtype != batch.query.dtype:
            raise BadOutputError(f"returned {result.dtype} for a query of {batch.query.dtype}")
        return result, lse


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
        attend=paged_attention,
        declaration=Declaration(out=True),
        version=f"triton {triton.__version__}",
        source="poolproof.kernels.paged",
        device=device,
        uses_triton=True,
        storage=Storage(reshape_and_cache, copy_blocks, swap_blocks),
    )


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
