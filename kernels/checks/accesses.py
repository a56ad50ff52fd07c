"""What a Triton kernel touches, and how wide its offsets are; in the interpreter only."""

from __future__ import annotations

from dataclasses import replace

import torch

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import AttentionOptions, PagedBatch
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.interpreter import check_overflow
from poolproof.kernels.oracle import dense_attention
from poolproof.kernels.read_sets import named_tensors, recorded, unlawful_accesses
from poolproof.kernels.relations import chosen
from poolproof.kernels.target import KernelTarget

__all__ = ["ACCESS_CHECKS"]

OVERFLOW = "overflow detected"


def _read_set(target: KernelTarget, case: Case) -> Outcome:
    """The whole batch, then one sequence alone in a cache that holds the others' blocks too."""
    batch = build(case, target.device)
    wrong = _unlawful(target, batch)
    if wrong is not None or len(case.sequences) == 1:
        return Outcome(1, wrong)
    index = case.seed % len(case.sequences)
    part, rows = chosen(batch, [index])
    if not len(rows):
        return Outcome(1)
    wrong = _unlawful(target, part)
    return Outcome(2, wrong and f"with sequence {index} alone it {wrong}")


def _unlawful(target: KernelTarget, batch: PagedBatch) -> str | None:
    out = torch.full_like(batch.query, float("nan")) if target.declaration.out else None
    # A load far outside of every tensor would end the process: its address is looked at first.
    with recorded(named_tensors(batch, out)) as accesses:
        target(batch, out)
    return next(unlawful_accesses(accesses, batch, out, target.declaration), None)


def _overflow(target: KernelTarget, case: Case) -> Outcome:
    """A cache of more than 2^31 elements, of which a few blocks exist.

    Memory that is never touched does not exist: 8.6 GB of addresses cost 0.3 GB.
    """
    head_size, num_kv_heads, block_size = 128, 8, 16
    count = 2**31 // (block_size * num_kv_heads * head_size) + 64
    shape = (count, block_size, num_kv_heads, head_size)
    caches = [torch.empty(shape, dtype=torch.float16) for _ in range(2)]
    draw = torch.Generator().manual_seed(case.seed)
    blocks = [count - 1, 3, count - 20]
    for cache in caches:
        for block in blocks:
            cache[block] = torch.randn(shape[1:], generator=draw).half()
    batch = PagedBatch(
        query=torch.randn(1, num_kv_heads, head_size, generator=draw).half(),
        key_cache=caches[0],
        value_cache=caches[1],
        block_tables=torch.tensor([blocks], dtype=torch.int32),
        kv_lengths=torch.tensor([40], dtype=torch.int32),
        query_lengths=torch.tensor([1], dtype=torch.int32),
        options=AttentionOptions(scale=head_size**-0.5),
    )
    compared = 0
    prompt = replace(
        batch,
        query=torch.randn(3, num_kv_heads, head_size, generator=draw).half(),
        query_lengths=torch.tensor([3], dtype=torch.int32),
    )
    for part in (batch, prompt):
        compared += 1
        check_overflow(True)
        try:
            output = target(part)
        except Exception as error:
            if OVERFLOW not in str(error) + str(error.__cause__):
                raise
            return Outcome(compared, f"an offset does not fit into 32 bits: {_last_line(error)}")
        finally:
            check_overflow(False)
        if dense_attention(part).max_ratio(output) > 1:
            return Outcome(compared, "wrong output from blocks behind the 2^31st element")
    return Outcome(compared)


def _last_line(error: Exception) -> str:
    return (str(error).strip() or repr(error.__cause__)).splitlines()[-1]


def _is_watched(target: KernelTarget) -> bool:
    return target.uses_triton and target.device == "cpu"


ACCESS_CHECKS = (
    Check(
        name="read set",
        sentence="reads are the visible slots and needed entries, writes are the output, all of it",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_read_set,
        applies=_is_watched,
    ),
    Check(
        name="64-bit offsets",
        sentence="a cache of more than 2^31 elements is read right, and no int32 overflows",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_overflow,
        applies=lambda t: (
            _is_watched(t) and 16 in t.declaration.block_sizes and "float16" in t.declaration.dtypes
        ),
    ),
)
