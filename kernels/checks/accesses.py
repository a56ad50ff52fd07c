"""What a Triton kernel touches, in the interpreter only, and how wide a kernel's offsets are."""

from __future__ import annotations

from dataclasses import replace

from poolproof.contract.violation import Severity
from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.case import Case, build
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.checks.dense import rows_with_keys
from poolproof.kernels.declaration import PROMISES, Declaration
from poolproof.kernels.interpreter import check_overflow
from poolproof.kernels.large_cases import Draw, draw_wide_cache
from poolproof.kernels.layouts import REACHES, little_memory_left
from poolproof.kernels.quantised_cases import wide_features
from poolproof.kernels.read_sets import (
    named_tensors,
    recorded,
    stray_accesses,
    unlawful_accesses,
)
from poolproof.kernels.relations import chosen
from poolproof.kernels.target import KernelTarget

__all__ = ["ACCESS_CHECKS"]

OVERFLOW = "overflow detected"
NO_MEMORY = ("can't allocate memory", "not enough memory", "Unable to allocate")
"""What torch and numpy say where memory is refused."""

ROOM_MIB = 1024
"""A kernel takes far less for a small batch; a copy of a cache that 32 bits do not count, more."""


def _read_set(target: KernelTarget, case: Case) -> Outcome:
    """The whole batch, then one sequence alone in a cache that holds the others' blocks too."""
    batch = build(case, target.device)
    whole = _unlawful(target, batch)
    if whole.wrong is not None or len(case.sequences) == 1:
        return whole
    index = case.seed % len(case.sequences)
    part, rows = chosen(batch, [index])
    if not len(rows):
        return whole
    alone = _unlawful(target, part)
    said = alone.wrong and f"with sequence {index} alone it {alone.wrong}"
    return replace(alone, compared=2, wrong=said)


def _unlawful(target: KernelTarget, batch: PagedBatch) -> Outcome:
    """The first access that is not allowed, or is missing.

    Numbers that lie outside of every tensor belong to nobody's request. If nothing else is wrong
    they were read and not used, as behind the end of a table: a device may refuse the address.
    """
    out = None
    if target.declaration.out:
        out = batch.new_out(float("nan"))
    # A load far outside of every tensor would end the process: its address is looked at first.
    with recorded(named_tensors(batch, out)) as accesses:
        target(batch, out)
    wrong = next(unlawful_accesses(accesses, batch, out, target.declaration), None)
    if wrong is None and any(stray.kind == "store" for stray in accesses.strays):
        wrong = stray_accesses(accesses)
    if wrong is None and accesses.strays:
        return Outcome(1, stray_accesses(accesses), severity=Severity.CRASH)
    return Outcome(1, wrong)


def _wide(target: KernelTarget, case: Case) -> Outcome:
    """Blocks of a cache that is larger than 32 bits can count, of which nothing else exists."""
    batch = build(case, target.device)
    rows = rows_with_keys(case)
    check_overflow_if_watched(target, checked=True)
    try:
        with little_memory_left(ROOM_MIB):
            output = target(batch).cpu()
    except Exception as error:
        text = str(error) + str(error.__cause__)
        if OVERFLOW in text:
            return Outcome(1, f"an offset does not fit into 32 bits: {_last_line(error)}")
        if any(word in text for word in NO_MEMORY):
            return Outcome(
                1,
                f"asks for memory of the size of the cache, which has more than {case.reach}: if "
                "it is meant to copy the cache at each call, declare cache_reads: copied",
            )
        raise
    finally:
        check_overflow_if_watched(target, checked=False)
    if float(target.expected(batch).ratio(output)[rows].max()) > 1:
        return Outcome(1, f"wrong output from a cache of more than {case.reach}")
    return Outcome(1)


def check_overflow_if_watched(target: KernelTarget, *, checked: bool) -> None:
    """Whether int32 arithmetic that overflows raises, if the target is interpreted."""
    if _is_watched(target):
        check_overflow(checked)


def _wide_draws(declared: Declaration) -> tuple[Draw, ...]:
    """Plain batches of every reach that is promised, and one with each feature."""
    reaches = REACHES[1 : 4 - PROMISES["cache_size"].index(declared.cache_size)]
    plain = [draw_wide_cache(reach, None) for reach in reaches]
    of_features = [draw_wide_cache(reaches[-1], *feature) for feature in wide_features(declared)]
    return (*plain, *of_features)


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
        sentence="blocks of a cache that 32 bits do not count are read right, no int32 overflows",
        severity=Severity.WRONG_DATA_OF_ANOTHER,
        run=_wide,
        applies=lambda t: t.device == "cpu" and t.declaration.promises("cache_reads"),
        draws=_wide_draws,
    ),
)
