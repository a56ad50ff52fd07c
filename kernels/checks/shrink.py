"""Makes a failing case smaller while the same check still finds something wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from poolproof.kernels.case import LAYOUTS, Case
from poolproof.kernels.declaration import Declaration

__all__ = ["shrink", "smaller_cases"]

MOST_ATTEMPTS = 200


def shrink(case: Case, declared: Declaration, fails: Callable[[Case], bool]) -> Case:
    """A case that `fails` as well and is larger in nothing; greedy, with a limit on attempts."""
    attempts = 0
    improved = True
    while improved:
        improved = False
        for smaller in smaller_cases(case, declared):
            attempts += 1
            if attempts > MOST_ATTEMPTS:
                return case
            if fails(smaller):
                case, improved = smaller, True
                break
    return case


def smaller_cases(case: Case, declared: Declaration) -> Iterator[Case]:
    """Smaller cases that the target supports, the boldest first."""
    return (smaller for smaller in _smaller(case, declared) if _supported(smaller, declared))


def _smaller(case: Case, declared: Declaration) -> Iterator[Case]:
    """Candidates, the boldest first."""
    count = len(case.sequences)
    for index in range(count if count > 1 else 0):
        kept = case.sequences[:index] + case.sequences[index + 1 :]
        yield replace(case, sequences=kept)
    plain: dict[str, Any] = {
        "distribution": "plain", "layout": declared.layouts[0], "alibi": False, "sinks": False,
        "softcap": None, "sliding_window": None, "cache_dtype": None, "causal": True,
        "shared_blocks": 0, "spare_entries": 0, "spare_blocks": 1, "num_kv_heads": 1,
        "queries_per_kv_head": 1, "dtype": declared.dtypes[0], "seed": 0,
    }  # fmt: skip
    if declared.layouts[0] not in LAYOUTS[:1]:
        plain.pop("layout")
    for name, value in plain.items():
        if getattr(case, name) != value:
            yield replace(case, **{name: value})
    for name, sizes in (("head_size", declared.head_sizes), ("block_size", declared.block_sizes)):
        for size in sorted(sizes):
            if size < getattr(case, name):
                smaller: dict[str, Any] = {name: size}
                yield replace(case, **smaller)
    for index, (queries, keys) in enumerate(case.sequences):
        for pair in _shorter(queries, keys):
            sequences = (*case.sequences[:index], pair, *case.sequences[index + 1 :])
            yield replace(case, sequences=sequences)
    if case.sliding_window is not None and case.sliding_window > 1:
        yield replace(case, sliding_window=case.sliding_window // 2)
        yield replace(case, sliding_window=case.sliding_window - 1)


def _supported(case: Case, declared: Declaration) -> bool:
    kinds = {"decode" if queries == 1 else "prefill" for queries, _ in case.sequences}
    return kinds <= set(declared.modes) and (declared.mixed or len(kinds) == 1)


def _shorter(queries: int, keys: int) -> Iterator[tuple[int, int]]:
    if queries > 1:
        yield 1, keys
        yield queries // 2, keys
        yield queries - 1, keys
    # Not only halves: a tail needs a length that is no multiple of the block size.
    for fewer in (1, 2, 3, keys // 2, keys // 2 + 1, keys - 2, keys - 1):
        if 0 < fewer < keys:
            yield min(queries, fewer), fewer
